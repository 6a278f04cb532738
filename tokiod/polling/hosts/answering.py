"""The collectors of a host that is not the writer's, and their answers to what the daemon asks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from tokiod.bus import host_protocol as protocol
from tokiod.bus.pieces import pieces, refusal
from tokiod.collector import NotesStored, Site, collect_window
from tokiod.config import plugins
from tokiod.config.hosts import sources_of
from tokiod.errors import Fatal, Transient
from tokiod.runtime.backoff import outcome_of
from tokiod.runtime.log import Repeats
from tokiod.runtime.secrets import mask
from tokiod.window import Calendar, Window

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from tokiod.bus.connection import Connection
    from tokiod.clock import Clock
    from tokiod.collector import Collector, SourceConfig
    from tokiod.config.hosts import HostConfig
    from tokiod.config.schema import Config

log = structlog.get_logger()

MAX_TEXT = 4000
"""Characters of an error."""


@dataclass(slots=True)
class _Lane:
    source: SourceConfig
    collector: Collector


class Lanes:
    """The collectors that the daemon has asked for, and the requests at which they work."""

    def __init__(self, config: Config, host: HostConfig, clock: Clock) -> None:
        self._clock, self._repeats = clock, Repeats(clock)
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._sources: dict[str, SourceConfig] = {}
        self.use(config, host)

    def use(self, config: Config, host: HostConfig) -> None:
        """Use another configuration. Collectors of sources that changed are closed, and made again when they are asked for."""
        before = self._sources
        self._host, self._sources = host, {source.name: source for source in sources_of(config, host)}
        self._site = Site(Calendar(config.timezone), self._clock, config.secret)
        changed = {name for name in before if before[name] != self._sources.get(name)}
        self._start_closing([key for key in self._lanes if key[0] in changed])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the host's sources."""
        return tuple(self._sources)

    @property
    def requests(self) -> int:
        """How many requests are being worked at."""
        return len(self._tasks)

    def handle(self, link: Connection, message: protocol.ToHost) -> None:
        """Begin to answer a message of the daemon."""
        match message:
            case protocol.Collect():
                self._start(message.id, self._collect(link, message))
            case protocol.Count():
                self._start(message.id, self._count(link, message))
            case protocol.Cancel():
                if (task := self._tasks.get(message.id)) is not None:
                    task.cancel()
            case protocol.Stored():
                lane = self._lanes.get((message.source, message.lane))
                if lane is not None and isinstance(lane.collector, NotesStored):
                    lane.collector.note_stored(Window(message.start, message.end))
            case protocol.Close():
                self._start_closing([(message.source, message.lane)])

    async def cancel(self) -> None:
        """End all requests: their answers would reach no one."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Close all collectors."""
        await self._close(list(self._lanes))

    def _start(self, number: int, work: Coroutine[None, None, None]) -> None:
        task = self._tasks[number] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._tasks.pop(number, None))

    async def _collect(self, link: Connection, asked: protocol.Collect) -> None:
        window = Window(asked.start, asked.end)
        try:
            lane = self._lane(asked.source, asked.lane, asked.datasets)
            collected = await collect_window(lane.collector, lane.source, window, seconds=asked.seconds)
            if (never := refusal(collected)) is not None:
                await link.send([protocol.encode(protocol.Failed(asked.id, "rejected", str(never)))])
                return
        except Exception as error:  # noqa: BLE001 - a collector may raise anything: the daemon decides what follows
            await self._fail(link, asked, error)
            return
        log.debug("window.collected", source=asked.source, window=str(window), cells=sum(map(len, collected.batches)))
        await link.send([protocol.encode(protocol.Answered(asked.id, collected.trouble, dict(collected.why)))])
        for frames in pieces(collected, asked.id):
            await link.send(frames)

    async def _count(self, link: Connection, asked: protocol.Count) -> None:
        try:
            lane = self._lane(asked.source, asked.lane)
            async with asyncio.timeout(asked.seconds):
                records = await lane.collector.count(Window(asked.start, asked.end))
        except Exception as error:  # noqa: BLE001 - as above
            await self._fail(link, asked, error)
            return
        await link.send([protocol.encode(protocol.Counted(asked.id, records))])

    async def _fail(self, link: Connection, asked: protocol.Collect | protocol.Count, error: Exception) -> None:
        outcome = outcome_of(error)
        text = mask(str(error)) or (f"no answer within {asked.seconds:.0f} s" if outcome == "timeout" else type(error).__name__)
        if times := self._repeats((asked.source, outcome, text)):
            window, is_bug = str(Window(asked.start, asked.end)), outcome == "bug"
            report = log.error if is_bug else log.info
            report("window.failed", source=asked.source, window=window, error=text, times=times, exc_info=error if is_bug else None)
        text = f"{type(error).__name__}: {text}" if outcome == "bug" else text
        ended_at = error.ended_at if isinstance(error, Transient) else None
        await link.send([protocol.encode(protocol.Failed(asked.id, outcome, text[:MAX_TEXT], ended_at))])

    def _lane(self, name: str, number: int, datasets: Sequence[str] | None = None) -> _Lane:
        """Return a lane, a new one when it is first asked for. Raises Fatal for a source of another host, and what its kind raises."""
        if (name, number) not in self._lanes:
            if (source := self._sources.get(name)) is None:
                raise Fatal(
                    f"the configuration of host {self._host.name} gives it no source {name!r}: give all hosts the same configuration"
                )
            source = source if datasets is None else source.only(frozenset(datasets))
            self._lanes[name, number] = _Lane(source, plugins.load(source.kind).live(source, self._site))
        return self._lanes[name, number]

    def _start_closing(self, keys: Sequence[tuple[str, int]]) -> None:
        """Close collectors while others go on: one that hangs must not delay them."""
        if keys:
            task = asyncio.ensure_future(self._close(keys))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close(self, keys: Sequence[tuple[str, int]]) -> None:
        for key in keys:
            if (lane := self._lanes.pop(key, None)) is not None:
                with suppress(Exception):
                    await lane.collector.close()
