"""What sinks of rows and of days share: the cursor follows the change log, a new epoch, other systems and requests to rewind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec
import structlog

from tokiod.change_sink import Acknowledged, Opened
from tokiod.forwarding import rewind
from tokiod.forwarding.change_reader import ChangeReader
from tokiod.forwarding.cursor import Cursor, CursorFile
from tokiod.forwarding.file_rows import FileRows, Known

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator
    from pathlib import Path

    from tokiod.change_sink import SinkConfig
    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.forwarding.change_reader import LogPart
    from tokiod.forwarding.shown_state import ShownState
    from tokiod.window import Day

log = structlog.get_logger()

S = TypeVar("S", bound=Opened)


class Follower(Generic[S]):
    """Passes what changed to a sink and moves the cursor, step by step. Its subclasses know what is sent.

    directory: the state directory of the sink, which exists. Blocking work is done in threads.
    """

    def __init__(self, config: Config, section: SinkConfig, directory: Path, clock: Clock, shown: ShownState) -> None:
        self.config, self.section, self.directory, self.clock, self.shown = config, section, directory, clock, shown
        self.calendar = config.calendar
        self.rows = FileRows(config.templates, self.calendar, Known(directory), section.window)
        self._reader = ChangeReader(config.archive.ledger_copy)
        self._file = CursorFile(directory)
        self.cursor = self._file.load()

    @property
    def systems(self) -> tuple[str, ...]:
        """The systems that are sent, sorted."""
        return tuple(sorted(self.section.systems or self.config.systems))

    def close(self) -> None:
        """Close the files."""
        self.rows.close()

    async def step(self, sink: S) -> bool:
        """Send what is next, and move the cursor; return whether there may be more. Raises what the sink raises, Transient and Fatal."""
        part = await asyncio.to_thread(self._reader.read, -1 if self.cursor is None else self.cursor.seq)
        if part is None:
            return False
        if await self._has_moved_elsewhere(part):
            return True
        assert self.cursor is not None  # noqa: S101 - for the type
        more = await self.send(sink, part, self.cursor)
        left = max(0, part.waiting - len(part.changes))
        self.shown.at(self.cursor, left, part.changes[-1].time if left and part.changes else None)
        self.shown.write_if_due(is_changed=more)
        return more

    async def send(self, sink: S, part: LogPart, cursor: Cursor) -> bool:
        """Send the changes of a part of the log, and some of the backlog; save the cursor. Return whether anything was sent."""
        raise NotImplementedError

    async def from_files(self, part: LogPart, cursor: Cursor, systems: tuple[str, ...], since: int) -> Cursor:
        """Return the cursor with all rows of systems that the files have from a time on, epoch seconds, still to be sent.

        Rows that were sent and are gone from the files are still to be sent as missing.
        """
        raise NotImplementedError

    def newest(self, part: LogPart, system: str) -> int:
        """Return the later of now and the end of the newest window, epoch seconds: this clock may be behind the writer's."""
        return max(int(self.clock.time()), part.data_ends.get(system, 0))

    def days_of(self, start: int, end: int) -> Iterator[Day]:
        """Yield the site days that have a part of [start, end), epoch seconds."""
        while start < end:
            day = self.calendar.day(start)
            yield day
            start = day.end

    # Files of older days may be moved or deleted at any time. Their rows stay in the receiver, as at any other time.
    def held_since(self, part: LogPart, system: str) -> int:
        """Return the epoch second from which the daemon reports a missing file, by the rule of tokiod.writer.maintenance."""
        now = int(self.clock.time())
        retention = max((int(source.retention) for source in self.config.source if source.system == system), default=0)
        return min(now, part.data_ends.get(system, now)) - retention

    async def within(self, answer: Awaitable[object]) -> object:
        """Await a sink within its time limit. Raises TimeoutError with a sentence."""
        try:
            async with asyncio.timeout(self.section.timeout):
                return await answer
        except TimeoutError as error:
            raise TimeoutError(str(error) or f"no acknowledgement within {self.section.timeout} s") from error

    async def acknowledged(self, answer: Awaitable[object]) -> None:
        """Await the acknowledgement of a sink, and count it. Raises TypeError for a sink that returns anything else."""
        done = await self.within(answer)
        if not isinstance(done, Acknowledged):
            raise TypeError(f"the sink returned {type(done).__name__} instead of Acknowledged")
        self.count(done)

    def count(self, done: Acknowledged) -> None:
        """Count what was acknowledged and rejected."""
        self.shown.acknowledged(done)
        for reason, records in done.rejected.items():
            log.warning("sink.rejected", sink=self.section.name, records=records, reason=reason)

    def save(self, cursor: Cursor) -> None:
        """Move the cursor, durably. It takes a millisecond."""
        self._file.save(cursor)
        self.cursor = cursor

    async def _has_moved_elsewhere(self, part: LogPart) -> bool:
        """Start from the files where the log does not reach back, or as asked for; return whether the cursor is another one now."""
        before, state = self.cursor, part.state
        if before is None or before.epoch != state.epoch or before.seq < state.trimmed:
            fresh = Cursor(state.epoch, state.head, self.systems, days={} if before is None else before.days)
            reason = "first start" if before is None else "new epoch" if before.epoch != state.epoch else "the log is trimmed"
            log.info("sink.from_files", sink=self.section.name, reason=reason, epoch=state.epoch, cursor=state.head)
            self.save(await self.from_files(part, fresh, self.systems, 0))
            return True
        cursor = before
        if self.systems != before.systems:
            cursor = self._only(cursor)
            cursor = await self.from_files(part, cursor, tuple(sorted({*self.systems} - {*before.systems})), 0)
        requests = await asyncio.to_thread(rewind.requested, self.directory)
        if requests:
            log.info("sink.rewound", sink=self.section.name, start=min(requests.values()))
            cursor = await self.from_files(part, cursor, self.systems, min(requests.values()))
        if cursor != before:
            self.save(cursor)
        # Also a request that changes nothing: the backlog has all of it, or no day of it was stored.
        rewind.done(list(requests))
        return cursor != before

    def _only(self, cursor: Cursor) -> Cursor:
        """Return the cursor for the present systems: without what was to be sent of others."""
        backlog = {name: one for name, one in cursor.backlog.items() if name in self.systems}
        days = {name: one for name, one in cursor.days.items() if name in self.systems}
        return msgspec.structs.replace(cursor, systems=self.systems, backlog=backlog, days=days)
