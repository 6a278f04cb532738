"""A collector whose windows another host collects. The poller, the retries and the ledger are here, and as those of every source."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, cast

from tokiod.bus import host_protocol as protocol
from tokiod.collector import NotesStored
from tokiod.errors import Fatal, Transient
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from tokiod.clock import Clock
    from tokiod.collector import Collector, SourceConfig
    from tokiod.polling.hosts.remote_host import RemoteHost
    from tokiod.window import Window
    from tokiod.window_data import Collected

_lanes = count(1)


class RemoteCollector:
    """A lane of a source on another host.

    twin: the source's collector as it would be here. It is never asked; it knows what it can do. datasets: only these, None for all.
    clock: the daemon's.
    """

    def __init__(
        self, host: RemoteHost, config: SourceConfig, twin: Collector, clock: Clock, datasets: frozenset[str] | None = None
    ) -> None:
        self.step = twin.step
        self.replayable = twin.replayable
        self.needs_sample_at_end = twin.needs_sample_at_end
        self._host, self._config, self._clock = host, config, clock
        self._datasets = None if datasets is None else tuple(sorted(datasets))
        self._lane = next(_lanes)

    async def collect(self, window: Window) -> WindowData:
        """Return what the host collected of a window.

        Raises as its collector does; Transient while the host can't be asked, and for a window of a source without a past that was not
        the current one from the question to the answer.
        """
        asked_at = self._clock.time()
        source, seconds = self._config.name, self._config.seconds_for(window)
        make = partial(
            protocol.Collect,
            source=source,
            lane=self._lane,
            start=window.start,
            end=window.end,
            seconds=seconds,
            datasets=self._datasets,
        )
        if self._config.tables:
            self._host.check_tables()
        collected = cast("Collected", await self._host.ask(make))
        self._check_is_current(window, asked_at)
        meta = collected.meta
        if (meta.system, meta.kind) != (self._config.system, self._config.kind):
            raise Fatal(
                f"source {source} is {self._config.kind!r} of {self._config.system!r} here, and {meta.kind!r} of {meta.system!r} on host "
                f"{self._host.config.name}: give both the same configuration"
            )
        return WindowData(collected.batches, meta.records, meta.dropped, collected.tables, collected.trouble, collected.why)

    # The host's collector compares the window with the daemon's clock too, but knows that clock only as well as the way of the messages
    # allows, and before the first of them not at all. What it saw was seen between the question and the answer.
    def _check_is_current(self, window: Window, asked_at: float) -> None:
        if not self.replayable and not window.start <= asked_at <= self._clock.time() < window.end:
            raise Transient(
                f"{self._config.name} answered on host {self._host.config.name} while {window} was not the current window: "
                "what it saw may belong to another"
            )

    async def count(self, window: Window) -> int | None:
        """Return how many records the source has for a window, as the host counts them."""
        seconds = self._config.seconds_for(window)
        make = partial(protocol.Count, source=self._config.name, lane=self._lane, start=window.start, end=window.end, seconds=seconds)
        return cast("int | None", await self._host.ask(make))

    async def close(self) -> None:
        """Have the host close its collector."""
        self._host.tell(protocol.Close(self._config.name, self._lane))


class NotingRemoteCollector(RemoteCollector):
    """One whose collector must know which of its windows are stored."""

    def note_stored(self, window: Window) -> None:
        """Pass on that a window is stored."""
        self._host.tell(protocol.Stored(self._config.name, self._lane, window.start, window.end))


def remote_collector(host: RemoteHost, config: SourceConfig, twin: Collector, clock: Clock, datasets: frozenset[str] | None) -> Collector:
    """Return a lane of a source on another host; see RemoteCollector."""
    made = NotingRemoteCollector if isinstance(twin, NotesStored) else RemoteCollector
    return cast("Collector", made(host, config, twin, clock, datasets))
