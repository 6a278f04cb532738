"""Collectors that another process asks, and their answers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from tokiod.collector import NotesStored, collect_window
from tokiod.config import plugins
from tokiod.crossing import dialogue
from tokiod.crossing.parts import PART_BYTES, encoded
from tokiod.errors import Fatal, Refusal, Transient
from tokiod.runtime.backoff import outcome_of
from tokiod.runtime.log import Repeats
from tokiod.runtime.secrets import mask
from tokiod.window import Window
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from tokiod.clock import Clock
    from tokiod.collector import Collector, Site, SourceConfig
    from tokiod.crossing.codec import Frame

    Send = Callable[[Sequence[Frame]], Awaitable[None]]

log = structlog.get_logger()


@dataclass(slots=True)
class _Lane:
    source: SourceConfig
    collector: Collector


class Lanes:
    """The collectors that another process has asked for, and the requests at which they work.

    name: of this process, for sentences: "host zone-b"; part_bytes: of a message with data.
    """

    def __init__(self, name: str, clock: Clock, part_bytes: int = PART_BYTES) -> None:
        self._name, self._part_bytes, self._repeats = name, part_bytes, Repeats(clock)
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._sources: Mapping[str, SourceConfig] = {}

    def use(self, sources: Mapping[str, SourceConfig], site: Site) -> None:
        """Use these sources, by name. Collectors of sources that changed are closed, and made again when they are asked for."""
        before, self._sources, self._site = self._sources, sources, site
        changed = {name for name in before if before[name] != sources.get(name)}
        self._start_closing([key for key in self._lanes if key[0] in changed])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the host's sources."""
        return tuple(self._sources)

    @property
    def requests(self) -> int:
        """How many requests are being worked at."""
        return len(self._tasks)

    def handle(self, send: Send, message: dialogue.Asked) -> None:
        """Begin to answer a message of the daemon."""
        match message:
            case dialogue.Collect():
                self._start(message.id, self._collect(send, message))
            case dialogue.Count():
                self._start(message.id, self._count(send, message))
            case dialogue.Cancel():
                if (task := self._tasks.get(message.id)) is not None:
                    task.cancel()
            case dialogue.Stored():
                lane = self._lanes.get((message.source, message.lane))
                if lane is not None and isinstance(lane.collector, NotesStored):
                    lane.collector.note_stored(Window(message.start, message.end))
            case dialogue.Close():
                self._start_closing([(message.source, message.lane)])

    async def cancel_all(self) -> None:
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

    async def _collect(self, send: Send, asked: dialogue.Collect) -> None:
        window = Window(asked.start, asked.end)
        try:
            lane = self._lane(asked.source, asked.lane, asked.datasets)
            self._check_same(lane.source, asked)
            found = await collect_window(lane.collector, lane.source, window, seconds=asked.seconds)
            data = WindowData(found.batches, found.meta.records, found.meta.dropped, found.tables, found.trouble, found.why)
            parts = encoded(asked.source, data, self._part_bytes)
        except Refusal as never:
            await send([dialogue.encode(dialogue.Failed(asked.id, "rejected", str(never)))])
            return
        except Exception as error:  # noqa: BLE001 - a collector may raise anything: who asks decides what follows
            await self._fail(send, asked, error)
            return
        log.debug("window.collected", source=asked.source, window=str(window), cells=sum(map(len, data.batches)))
        for number, frames in enumerate(parts):
            await send([dialogue.encode(dialogue.Data(asked.id, number, len(parts))), *frames])

    def _check_same(self, source: SourceConfig, asked: dialogue.Collect) -> None:
        if (source.system, source.kind) != (asked.system, asked.kind):
            raise Fatal(
                f"source {source.name} is {asked.kind!r} of {asked.system!r} where it is asked, and {source.kind!r} of {source.system!r} "
                "here: give both the same configuration"
            )

    async def _count(self, send: Send, asked: dialogue.Count) -> None:
        try:
            lane = self._lane(asked.source, asked.lane)
            async with asyncio.timeout(asked.seconds):
                records = await lane.collector.count(Window(asked.start, asked.end))
        except Exception as error:  # noqa: BLE001 - as above
            await self._fail(send, asked, error)
            return
        await send([dialogue.encode(dialogue.Counted(asked.id, records))])

    async def _fail(self, send: Send, asked: dialogue.Collect | dialogue.Count, error: Exception) -> None:
        outcome = outcome_of(error)
        text = mask(str(error)) or (f"no answer within {asked.seconds:.0f} s" if outcome == "timeout" else type(error).__name__)
        if times := self._repeats((asked.source, outcome, text)):
            window, is_bug = str(Window(asked.start, asked.end)), outcome == "bug"
            report = log.error if is_bug else log.info
            report("window.failed", source=asked.source, window=window, error=text, times=times, exc_info=error if is_bug else None)
        text = f"{type(error).__name__}: {text}" if outcome == "bug" else text
        ended_at = error.ended_at if isinstance(error, Transient) else None
        await send([dialogue.encode(dialogue.Failed(asked.id, outcome, text[: dialogue.MAX_TEXT], ended_at))])

    def _lane(self, name: str, number: int, datasets: Sequence[str] | None = None) -> _Lane:
        """Return a lane, a new one when it is first asked for. Raises Fatal for a source of another host, and what its kind raises."""
        if (name, number) not in self._lanes:
            if (source := self._sources.get(name)) is None:
                raise Fatal(f"the configuration of {self._name} gives it no source {name!r}: give all hosts the same configuration")
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
