"""Follows the change log for a sink of rows: the newest changes first, then a piece of the backlog, and again."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import structlog

from tokiod.change_sink import Acknowledged, ChangeSink
from tokiod.forwarding.change_reader import spans
from tokiod.forwarding.file_rows import DamagedFile
from tokiod.forwarding.follower import Follower
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from tokiod.forwarding.change_reader import LogPart
    from tokiod.forwarding.cursor import Cursor
    from tokiod.forwarding.file_rows import Piece
    from tokiod.window import Day

log = structlog.get_logger()

AHEAD_SECONDS = 3600
"""Rows after now that are sent of today: sources may have clocks that are fast."""
DAMAGED = "damaged file"
MAX_DIVISOR = 128
"""A piece is at least 64 KiB, then."""
QUICK_SHARE = 0.25
"""Of the time limit: a piece that is acknowledged so soon may be followed by one of twice its size."""


class RowFollower(Follower[ChangeSink]):
    """Sends spans of rows."""

    async def send(self, sink: ChangeSink, part: LogPart, cursor: Cursor) -> bool:
        """Send the changes, then a piece of the backlog."""
        if part.changes:
            cursor = await self._send_changes(sink, part, cursor)
            self.save(cursor)
        newest = cursor.newest_of_backlog()
        if newest is not None:
            system, window, revision = newest
            piece = await asyncio.to_thread(self._next_piece, system, window)
            await self._send_piece(sink, piece, revision, cursor.epoch)
            self.save(cursor.sent(system, piece.window))
        return bool(part.changes) or newest is not None

    async def from_files(self, part: LogPart, cursor: Cursor, systems: tuple[str, ...], since: int) -> Cursor:
        """Put the days into the backlog of which there are files, or whose files are gone since rows of them were sent."""
        for system in systems:
            latest = self.newest(part, system) + AHEAD_SECONDS
            days = await asyncio.to_thread(self.rows.days, system, self.calendar.day(latest).date)
            for day in sorted({*days, *self._sent_days(system, self.held_since(part, system))}):
                start, end = max(day.start, since), min(day.end, latest)
                if start < end:
                    cursor = cursor.later(system, Window(start, end), cursor.seq)
        return cursor

    def _sent_days(self, system: str, since: int) -> Iterator[Day]:
        """Yield the days from the first to the last of which rows were sent, and that end after a time."""
        if (sent := self.rows.sent(system)) is not None:
            yield from self.days_of(max(since, sent.start), sent.end)

    async def _send_changes(self, sink: ChangeSink, part: LogPart, cursor: Cursor) -> Cursor:
        """Send the spans that are one piece; return the cursor after the changes, with the longer ones in its backlog."""
        cursor = cursor.moved(part.changes[-1].seq)
        for span in spans(part.changes, self.systems):
            pieces = await asyncio.to_thread(self._two_pieces, span.system, span.window)
            if len(pieces) == 1:
                await self._send_piece(sink, pieces[0], span.seq, cursor.epoch)
            else:
                cursor = cursor.later(span.system, span.window, span.seq)
        return cursor

    def _two_pieces(self, system: str, window: Window) -> list[Piece]:
        return list(islice(self.rows.pieces(system, window), 2))

    def _next_piece(self, system: str, window: Window) -> Piece:
        """Return the first piece of the last day of a span."""
        day = self.calendar.day(window.end - 1)
        return next(self.rows.pieces(system, Window(max(day.start, window.start), window.end)))

    async def _send_piece(self, sink: ChangeSink, piece: Piece, revision: int, epoch: int) -> None:
        try:
            calls = await asyncio.to_thread(self.rows.blocks, piece, revision, epoch)
        except DamagedFile as error:
            # Waiting does not help. The daemon sets aside a file that it finds damaged, and stores its windows again, which is a change.
            log.warning("sink.file_damaged", sink=self.section.name, window=str(piece.window), error=str(error))
            self.count(Acknowledged(0, Counter({DAMAGED: 1})))
            return
        for blocks in filter(None, calls):
            await self._in_time(sink.send(blocks))

    async def _in_time(self, answer: Awaitable[object]) -> None:
        """Await an acknowledgement. A receiver that is slow, or nearly always busy, then gets pieces that it can take in the time limit."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            await self.acknowledged(answer)
        except TimeoutError:
            self.rows.divisor = min(MAX_DIVISOR, self.rows.divisor * 2)
            raise
        if loop.time() - begun < self.section.timeout * QUICK_SHARE:
            self.rows.divisor = max(1, self.rows.divisor // 2)
