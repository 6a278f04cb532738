"""The contract of a collector: a window in, batches out.

A module collectors/KIND.py is a plugin of that kind. It holds

    class Config(SourceConfig)   its part of a [[source]] stanza
    class Saved(SavedOptions)    the options of `tokioctl archive KIND`, one option per field, and of a [[source]] with `watch`
    def live(config, site)       a Collector that asks the configured source
    def saved(inputs, options, site)  a SavedCollector over files that are finished

and is named nowhere else. A collector never knows whether a window is now, a retry, a repair or a backfill of last March.
It has three parts that can be tested apart: fetch (awaitable: raw bytes or rows), parse (pure), and the join of the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

import msgspec

from tokiod.units import Duration
from tokiod.window_data import Collected, WindowMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tokiod.batch import Extent
    from tokiod.clock import Clock
    from tokiod.window import Calendar, Window
    from tokiod.window_data import WindowData


LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names of this machine: what goes there crosses no network."""


class SourceConfig(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """What every [[source]] stanza may hold; each collector's Config adds its own.

    polled: asked window by window; not so are watched folders (tokiod.watch), whose files are collected as they come.
    replayable: as of its Collector; what is stored of the others can't be had again, so the ledger syncs each of its transactions.
    recount: how long after a window was stored the source is asked how many records it has by now, where it can tell.
    heal_rate: seconds of its past that a source is asked for in a second at most, behind live polling; 0: as quick as it answers.
    """

    polled: ClassVar[bool] = True
    replayable: ClassVar[bool] = True

    name: str
    kind: str
    system: str
    window: Duration = Duration(60)
    settle: Duration = Duration(15)
    retention: Duration = Duration(90 * 86400)
    timeout: Duration = Duration(60)
    recount: tuple[Duration, ...] = (Duration(3600), Duration(86400))
    heal_rate: Annotated[float, msgspec.Meta(ge=0)] = 300.0

    @property
    def step(self) -> int:
        """Seconds between the rows of the source's datasets."""
        raise NotImplementedError(f"{type(self).__module__}.Config must have a step")

    def seconds_for(self, window: Window) -> float:
        """Return the time limit of a window that may be longer than live polling's: `timeout` for each `window` of it."""
        return self.timeout * max(1, window.seconds / self.window)

    def only(self, datasets: frozenset[str]) -> SourceConfig:  # noqa: ARG002 - for those that can
        """Return this source asked for no more than some datasets, as far as it can be; it may still bring others."""
        return self

    def datasets(self) -> frozenset[str]:
        """Return the logical names of all datasets that this source fills."""
        raise NotImplementedError(f"{type(self).__module__}.Config must tell its datasets")

    def faults(self) -> list[str]:
        """Return what is wrong between fields, each as "field: sentence"; nothing by default."""
        return []

    def warnings(self) -> list[str]:
        """Return warnings about values that are allowed but probably not intended, each as "field: sentence"."""
        return []


class SavedOptions(msgspec.Struct, kw_only=True, frozen=True):
    """How to read a kind's saved files; each collector's Saved adds its own, as options of `archive` and as keys beside `watch`."""

    @property
    def step(self) -> int:
        """Seconds between the rows of the kind's datasets; a field where files don't fix it."""
        raise NotImplementedError(f"{type(self).__module__}.Saved must have a step")

    def datasets(self) -> frozenset[str]:
        """Return the logical names of all datasets that the files can fill."""
        raise NotImplementedError(f"{type(self).__module__}.Saved must tell its datasets")

    def faults(self) -> list[str]:
        """Return what is wrong between options, each as "option: sentence"; nothing by default."""
        return []


def _no_secret(name: str) -> str:
    raise KeyError(name)


def _untold(_bytes: int) -> None:
    pass


class Site(msgspec.Struct, frozen=True):
    """What a collector may know of the place it works for.

    secret: reads the secret named by a `*_file` or `*_env` field (raises ConfigError where it can't be had).
    read: told how many bytes of saved files were read, by a collector that reads all of them before its first window; by any thread.
    """

    calendar: Calendar
    clock: Clock
    secret: Callable[[str], str] = _no_secret
    read: Callable[[int], None] = _untold


class Collector(Protocol):
    """One source, asked window by window.

    step: seconds between the rows of its datasets.
    replayable: the source can be asked about the past.
    needs_sample_at_end: the last cell of a span is a difference to the sample at the span's end, so whoever archives a closed span
    asks for the step after it too and keeps that step's counters.
    """

    step: int
    replayable: ClassVar[bool]
    needs_sample_at_end: ClassVar[bool]

    async def collect(self, window: Window) -> WindowData:
        """Return all data of a window, or raise.

        Every sample lies in the window; a (dataset, column, row) comes once. No batch, or batches without cells, mean that the
        source is past this window and has no data for it. Collecting a window again returns the same.
        Raises Transient, NotYet or Fatal; asyncio.CancelledError passes through and leaves the source usable.
        """
        ...

    async def count(self, window: Window) -> int | None:
        """Return how many records the source holds for a window now, or None where it can't count; see WindowData.records."""
        ...

    async def close(self) -> None:
        """Give connections and files back; the collector is not used again."""
        ...


class SavedCollector(Collector, Protocol):
    """Files that are finished, asked window by window."""

    async def spans(self) -> list[Window]:
        """Return where the files hold samples, oldest first, see tokiod.sample_spans: whoever collects these has collected every sample.

        Raises TokiodError for a file that can't be read.
        """
        ...


class Plugin(Protocol):
    """What a module in collectors/ holds."""

    Config: type[SourceConfig]
    Saved: type[SavedOptions]

    def live(self, config: Any, site: Site) -> Collector:
        """Return the collector of a [[source]] stanza. Opens nothing: the first collect does."""
        ...

    def saved(self, inputs: Sequence[str | Path], options: Any, site: Site) -> SavedCollector:
        """Return the collector over saved files, or over a server that is read as it stands where the kind knows such URLs.

        Raises TokiodError for a file that is missing or no such thing.
        """
        ...


class Origin(Protocol):
    """What a window is labelled with: a SourceConfig, or what takes its place for files."""

    @property
    def name(self) -> str:
        """The source's name."""
        ...

    @property
    def kind(self) -> str:
        """The collector's kind."""
        ...

    @property
    def system(self) -> str:
        """The system whose file holds the data."""
        ...


async def collect_window(
    collector: Collector, origin: Origin, window: Window, *, seconds: float | None = None, extent: Extent = "whole"
) -> Collected:
    """Collect a window within a time limit in seconds of the event loop; None: without a limit.

    Raises what the collector raises, and TimeoutError.
    """
    import asyncio  # noqa: PLC0415 - 30 ms, which commands that only read the configuration need not spend

    async with asyncio.timeout(seconds):
        data = await collector.collect(window)
    meta = WindowMeta(origin.name, origin.kind, origin.system, window, data.records, data.dropped, extent)
    return Collected(meta, data.batches, data.tables)
