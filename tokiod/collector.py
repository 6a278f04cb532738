"""The contract of a collector: a window in, its data out.

A kind of source is a module in collectors/, or an entry point `tokiod.collectors` of another distribution (tokiod.config.plugins). It has

    class Config(SourceConfig)   its part of a [[source]] section
    class Saved(SavedOptions)    the options of `tokioctl archive KIND`, one option for each field, and of a [[source]] with `watch`
    def live(config, site)       returns a Collector that queries the configured source
    def saved(inputs, options, site)  returns a SavedCollector over files that are complete
    def raw(config, site)        optional: returns a RawSource, for `tokioctl fetch`

A collector does not know whether a window is collected live, again after a failure, or by a backfill of last March.
It has three parts that can be tested alone: fetch (awaitable: raw bytes or rows), parse (pure), and the join of the two.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads annotations
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, runtime_checkable

import msgspec

from tokiod.option import option
from tokiod.tts.schema import UNITS
from tokiod.units import NEVER, Duration, DurationOrNever

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tokiod.batch import Extent
    from tokiod.clock import Clock
    from tokiod.window import Calendar, Window
    from tokiod.window_data import Collected, WindowData


LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names of this machine: what goes there crosses no network."""


EMPTY_WINDOWS, EMPTY_SECONDS = 10, 900
"""A source without `empty_after` is empty after so many windows without a record, and not before so many seconds."""


MAX_RATE = 1e18
"""The largest limit of a rate: a counter has 63 bits."""


class MaxRate(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """The largest plausible rates of counters per second: a larger difference of two samples is implausible, and its cell is missing.

    A kind with counters has a field `max_rate` of this type in Config and Saved, with defaults for what it measures.
    """

    bytes: Annotated[float, msgspec.Meta(gt=0, le=MAX_RATE)] = 1e11
    operations: Annotated[float, msgspec.Meta(gt=0, le=MAX_RATE)] = 1e7

    def of(self, dataset: str) -> float:
        """Return the limit of a logical dataset. Raises KeyError for one that counts neither bytes nor operations."""
        return {"bytes": self.bytes, "ops": self.operations}[UNITS[dataset]]


class SourceConfig(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """The keys of every [[source]] section; each kind's Config adds its own.

    polled: collected window by window; False for watched folders, whose files are collected as they arrive.
    replayable: as in Collector. Data of other sources can't be collected again, so the ledger syncs each of its transactions.
    units: of the kind's datasets that it measures in other units than tokiod.tts.schema.UNITS.
    tables: logical names of the tables that the kind fills with rows; live polling alone fills them.
    selected_by: the kind's keys that select what is collected, which an administrator of an empty source should check.
    needs_hub: it asks the hub of the nodes, Site.hub.
    """

    needs_hub: ClassVar[bool] = False
    polled: ClassVar[bool] = True
    replayable: ClassVar[bool] = True
    units: ClassVar[Mapping[str, str]] = {}
    tables: ClassVar[frozenset[str]] = frozenset()
    selected_by: ClassVar[tuple[str, ...]] = ()

    name: Annotated[
        str,
        option(
            "The name of the source in logs, commands, metrics and the ledger. With another name it is another source, whose past is "
            "collected anew.",
            '"cscratch-lmt"',
            values="letters, digits, `.`, `_` and `-`; unique",
        ),
    ]
    kind: Annotated[str, option("The kind of the source.", '"lmt"', values="a kind below, or one of another package")]
    system: Annotated[
        str,
        option(
            "The file system or network whose file the data goes to. Several sources may fill one system, each with its own datasets.",
            '"cscratch"',
            values="letters, digits, `.`, `_` and `-`",
        ),
    ]
    window: Annotated[Duration, option("Length of one query.", values="a multiple of the step that divides 24 h")] = Duration(60)
    settle: Annotated[Duration, option("Delay before a window is queried, for late data.", values="zero or more")] = Duration(15)
    retention: Annotated[Duration, option("How far back gaps are filled. Older gaps are lost.", values="at least one window")] = Duration(
        90 * 86400
    )
    timeout: Annotated[Duration, option("Time limit for the answer to one window.", values="greater than zero")] = Duration(60)
    recount: Annotated[
        tuple[Duration, ...],
        option(
            "Times after storing a window at which its records are counted again at the source, if the kind supports it. A window with "
            "more records is collected again.",
            values="[] for never",
        ),
    ] = (Duration(3600), Duration(86400))
    heal_rate: Annotated[
        float, option("Catch-up limit after an outage: seconds of history per second, after live data; 0 = unlimited.", ge=0)
    ] = 300.0
    empty_after: Annotated[
        DurationOrNever | None,
        option(
            "How long a source that answers may return no record until status, /healthz and an alert report it as empty; default: the "
            "longer of 10 windows and 15 minutes. Its windows are queried again once it returns records. A watched folder without this "
            "key is empty if none of its files was ever collected.",
            '"1h"',
            values='"never" for a source that may be silent',
        ),
    ] = None

    @property
    def empty_seconds(self) -> int:
        """Seconds without a record after which the source counts as empty; more than any span if it never does."""
        return max(EMPTY_WINDOWS * self.window, EMPTY_SECONDS) if self.empty_after is None else min(self.empty_after, NEVER)

    @property
    def can_be_empty(self) -> bool:
        """Whether the source ever counts as empty."""
        return self.empty_seconds < NEVER

    @property
    def selection(self) -> str:
        """The keys that select what is collected, with their values, as the configuration writes them; empty without any."""
        chosen = [(name, getattr(self, name)) for name in self.selected_by]
        return ", ".join(f"{name} = {msgspec.json.encode(value).decode()}" for name, value in chosen if value)

    @property
    def step(self) -> int:
        """Seconds between the rows of the source's datasets."""
        raise NotImplementedError(f"{type(self).__module__}.Config must have a step")

    def reach(self, calendar: Calendar, now: float) -> int:
        """Return the time before which a replayable source can't be queried any more; now: epoch seconds."""
        return calendar.window(int(now) - self.retention - 1, self.window).end

    @property
    def why_lost(self) -> tuple[str, str]:
        """Why a window before reach() is lost, as an error's class and message."""
        return "Retention", f"older than the {self.retention} s that the source keeps"

    def seconds_for(self, window: Window) -> float:
        """Return the time limit of a window that may be longer than live polling's: `timeout` for each `window` of it."""
        return self.timeout * max(1, window.seconds / self.window)

    def only(self, datasets: frozenset[str]) -> SourceConfig:  # noqa: ARG002 - for those that can
        """Return a copy that collects only some datasets, where the kind can; it may still return others."""
        return self

    def datasets(self) -> frozenset[str]:
        """Return the logical names of all datasets that this source fills."""
        raise NotImplementedError(f"{type(self).__module__}.Config must have datasets()")

    def columns(self) -> Mapping[str, int]:
        """Return how many columns each dataset has, for those of which the configuration names all columns."""
        return {}

    def reporters(self) -> frozenset[str]:
        """Return what reports the rows of its tables, as the configuration names it: NAME, or NAME/PART for a part of what it reports.

        No two sources of a system may have one in common, or one a part and the other all.
        """
        return frozenset()

    def max_rates(self) -> Mapping[str, float]:
        """Return the largest plausible rates per second of counters, by logical dataset; other counters have no limit."""
        return {}

    def faults(self) -> list[str]:
        """Return the errors that types can't express, each as "field: sentence"; none by default."""
        return []

    def warnings(self) -> list[str]:
        """Return warnings about values that are allowed but probably not intended, each as "field: sentence"."""
        return []


class SavedOptions(msgspec.Struct, kw_only=True, frozen=True):
    """How to read a kind's saved files; each kind's Saved adds its own, as options of `archive` and as keys next to `watch`.

    units, tables: as in SourceConfig; example: inputs and own options of an example in the help of `archive`; no_files: the sentence that
    refuses files of a kind that has none, and says what to use instead.
    """

    units: ClassVar[Mapping[str, str]] = {}
    tables: ClassVar[frozenset[str]] = frozenset()
    example: ClassVar[str] = ""
    no_files: ClassVar[str] = ""

    @property
    def step(self) -> int:
        """Seconds between the rows of the kind's datasets; a field where the files don't determine it."""
        raise NotImplementedError(f"{type(self).__module__}.Saved must have a step")

    def datasets(self) -> frozenset[str]:
        """Return the logical names of all datasets that the files can fill."""
        raise NotImplementedError(f"{type(self).__module__}.Saved must have datasets()")

    def max_rates(self) -> Mapping[str, float]:
        """Return the largest plausible rates per second, as SourceConfig.max_rates() does."""
        return {}

    def faults(self) -> list[str]:
        """Return the errors that types can't express, each as "option: sentence"; none by default."""
        return []


def _no_secret(name: str) -> str:
    raise KeyError(name)


def _uncounted(_bytes: int) -> None:
    pass


class Site(msgspec.Struct, frozen=True):
    """What a collector gets from the site.

    secret: returns the secret that a `*_file` or `*_env` field names; raises ConfigError where it is missing.
    read: a callback, from any thread, for the number of bytes read of saved files that are read before the first window.
    hub: the endpoint at which the hub of the nodes answers.
    shows_users: examples of dropped records may name users and commands, as a command of a person shows them; otherwise, as in the daemon,
    whose log and ledger are read by others and kept for longer, they have the shape of a job id alone (tokiod.dropped.shape).
    """

    calendar: Calendar
    clock: Clock
    secret: Callable[[str], str] = _no_secret
    read: Callable[[int], None] = _uncounted
    hub: str = ""
    shows_users: bool = False


class Collector(Protocol):
    """One source, collected window by window.

    step: seconds between the rows of its datasets.
    replayable: the source has a past that can be collected.
    needs_sample_at_end: the last cell of a span is a difference to the sample at the span's end. The caller that archives a closed span
    also collects the step after it, for that step's counters.
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
        """Return how many records the source has for a window now, None where it can't count; see WindowData.records."""
        ...

    async def close(self) -> None:
        """Close connections and files; the collector is not used again."""
        ...


@runtime_checkable
class NotesStored(Protocol):
    """A collector that must know which of its windows are stored: what it returned in others, it returns in a later window again."""

    def note_stored(self, window: Window) -> None:
        """Take a window for stored, in the file and in the ledger."""
        ...


class SavedCollector(Collector, Protocol):
    """Files that are complete, collected window by window."""

    async def spans(self) -> list[Window]:
        """Return the spans that hold every sample of the files, oldest first; see tokiod.sample_spans.

        Raises TokiodError for a file that can't be read.
        """
        ...


class RawFile(Protocol):
    """A file of raw output that is being written. Both methods block, and raise OSError."""

    def add(self, raw: Any) -> None:
        """Append the raw output of the next window, as RawSource.fetch() returned it."""
        ...

    def close(self) -> None:
        """Complete the file. It is not used again."""
        ...


class RawSource(Protocol):
    """The raw output of a source, as `saved` reads it: what a live collector fetches, before it is parsed to batches.

    collector: the live collector, which closes the connections. suffix: of a file's name; file_seconds: the longest span of one file;
    window_seconds: the longest window that is fetched at once, if it is longer than the source's own.
    """

    suffix: ClassVar[str]
    file_seconds: ClassVar[int]
    window_seconds: ClassVar[int]

    @property
    def collector(self) -> Collector:
        """The live collector."""
        ...

    async def fetch(self, window: Window) -> Any:
        """Return the raw output of a window, complete. Raises as Collector.collect()."""
        ...

    def create(self, path: Path) -> RawFile:
        """Create a file for the raw output of windows in order; of a source without a past some may be missing. Raises OSError."""
        ...

    def options(self) -> list[str]:
        """Return the options with which `tokioctl archive` gives the cells of the source; without a secret."""
        ...


class Plugin(Protocol):
    """The parts of a kind. A kind whose raw output can be fetched has raw(config, site) too, which returns a RawSource."""

    Config: type[SourceConfig]
    Saved: type[SavedOptions]

    def live(self, config: Any, site: Site) -> Collector:
        """Return the collector of a [[source]] section. It opens nothing before the first collect."""
        ...

    def saved(self, inputs: Sequence[str | Path], options: Any, site: Site) -> SavedCollector:
        """Return the collector over saved files, or over a server that is read in its present state where the kind accepts such URLs.

        Raises TokiodError for a file that is missing or of another format.
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

    @property
    def units(self) -> Mapping[str, str]:
        """As in SourceConfig."""
        ...


async def collect_window(
    collector: Collector, origin: Origin, window: Window, *, seconds: float | None = None, extent: Extent = "whole"
) -> Collected:
    """Collect a window within a time limit in seconds of the event loop; None: without a limit. Cells out of bounds are dropped.

    Raises what the collector raises, and TimeoutError.
    """
    # All take 33 ms, which commands that only read the configuration need not spend.
    import asyncio  # noqa: PLC0415 - as above

    from tokiod.bounds import plausible  # noqa: PLC0415 - as above
    from tokiod.window_data import Collected, WindowMeta  # noqa: PLC0415 - as above

    async with asyncio.timeout(seconds):
        data = plausible(await collector.collect(window), origin.units)
    meta = WindowMeta(origin.name, origin.kind, origin.system, window, data.records, data.dropped, extent)
    return Collected(meta, data.batches, data.tables, data.trouble, data.why)
