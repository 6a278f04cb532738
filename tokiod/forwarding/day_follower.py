"""Follows the change log for a sink of sealed days: a day is stored once its file is sealed, and again when it is sealed again.

The log states which days to look at; what counts is the file. A kill between a sealing and its change leaves the change out, so all files
are looked at when the process starts, and each hour.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import structlog

from tokiod.change_sink import Acknowledged, Block, DaySink
from tokiod.errors import Transient
from tokiod.forwarding.cursor import StoredDay
from tokiod.forwarding.file_rows import DamagedFile
from tokiod.forwarding.follower import Follower
from tokiod.forwarding.row_follower import DAMAGED
from tokiod.reader.errors import NotTts
from tokiod.window import Day, Window

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokiod.change_sink import SinkConfig
    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.forwarding.change_reader import LogPart
    from tokiod.forwarding.cursor import Cursor
    from tokiod.forwarding.shown_state import ShownState
    from tokiod.reader.part import Part

log = structlog.get_logger()

SCAN_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class FileDay:
    """A sealed file as a sink gets it: see tokiod.change_sink.SealedDay."""

    part: Part
    system: str
    day: Day
    revision: int
    epoch: int

    @property
    def date(self) -> dt.date:
        """Its date at the site."""
        return self.day.date

    @property
    def window(self) -> Window:
        """Its span."""
        return Window(self.day.start, self.day.end)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The logical names of its datasets."""
        with _readable():
            return self.part.names

    def blocks(self, dataset: str, rows: int) -> Iterator[Block]:
        """Yield the rows of a dataset."""
        with _readable():
            shape, units = self.part.shape(dataset), self.part.units(dataset)
            step = shape.step or self.window.seconds
            for first, last in pairwise([*range(0, shape.rows, rows), shape.rows]):
                values = self.part.read(dataset, first, last)
                yield Block(self.system, dataset, shape.start + first * step, step, shape.columns, values, units, self.revision, self.epoch)


class DayFollower(Follower[DaySink]):
    """Sends sealed days."""

    def __init__(self, config: Config, section: SinkConfig, directory: Path, clock: Clock, shown: ShownState) -> None:
        super().__init__(config, section, directory, clock, shown)
        self._due: dict[tuple[str, Day], int] = {}
        self._damaged: dict[tuple[str, Day], tuple[int, ...]] = {}
        self._scanned_at = float("-inf")

    async def send(self, sink: DaySink, part: LogPart, cursor: Cursor) -> bool:
        """Note which days changed, and store one that is sealed."""
        if part.changes:
            cursor = await self._note_changes(sink, part, cursor)
            self.save(cursor)
        if self.clock.monotonic() - self._scanned_at >= SCAN_SECONDS:
            for system in self.systems:
                for day in await asyncio.to_thread(self._days, part, system, cursor):
                    self._due.setdefault((system, day), cursor.seq)
            self._scanned_at = self.clock.monotonic()
        if not self._due:
            return bool(part.changes)
        system, day = next(iter(self._due))
        revision = self._due.pop((system, day))
        try:
            await self._store(sink, system, day, revision, cursor)
        except BaseException:
            # The other days come first: this one may fail for long, such as at a bad sector, or take longer than the time limit.
            self._due[system, day] = revision
            raise
        return True

    async def from_files(self, part: LogPart, cursor: Cursor, systems: tuple[str, ...], since: int) -> Cursor:  # noqa: ARG002 - of rows
        """Look at all files again. Those that are stored are stored again only after a rewind."""
        self._scanned_at = float("-inf")
        self._damaged.clear()
        for system in systems if since else ():
            for date, stored in cursor.days.get(system, {}).items():
                if self.calendar.day_of_date(dt.date.fromisoformat(date)).end > since:
                    cursor = cursor.day(system, date, msgspec.structs.replace(stored, file=()))
        return cursor

    def _days(self, part: LogPart, system: str, cursor: Cursor) -> list[Day]:
        """Return the days of which there are files, and those that were stored and whose files are gone."""
        since = self.held_since(part, system)
        today = self.calendar.day(self.newest(part, system)).date
        stored = (self.calendar.day_of_date(dt.date.fromisoformat(date)) for date in cursor.days.get(system, {}))
        return sorted({*self.rows.days(system, today), *(day for day in stored if day.end > since)})

    async def _note_changes(self, sink: DaySink, part: LogPart, cursor: Cursor) -> Cursor:
        """Report the stored days that are no longer sealed; the other days that changed are looked at."""
        for change in (one for one in part.changes if one.system in self.systems):
            for day in self.days_of(change.window.start, change.window.end):
                stored = cursor.days.get(change.system, {}).get(str(day.date))
                file = await asyncio.to_thread(self._identity, change.system, day)
                if change.kind != "sealed" and stored is not None and stored.file and stored.file != file:
                    await self.within(sink.reopened(change.system, day.date, change.seq))
                    cursor = cursor.day(change.system, str(day.date), StoredDay(change.seq))
                if change.kind == "sealed" or stored is not None:
                    self._due[change.system, day] = change.seq
        return cursor.moved(part.changes[-1].seq)

    def _identity(self, system: str, day: Day) -> tuple[int, ...]:
        """Return what another file of the day would have differently; empty without a file. Raises Transient and Fatal."""
        path = self.rows.path(system, day)
        try:
            status = None if path is None else path.stat()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise Transient(f"{path} can't be read: {error.strerror or error}") from error
        return () if status is None else (status.st_ino, status.st_size, status.st_mtime_ns)

    async def _store(self, sink: DaySink, system: str, day: Day, revision: int, cursor: Cursor) -> None:
        """Store a day if its file is sealed and not stored yet; report one that was stored and is no longer sealed."""
        stored = cursor.days.get(system, {}).get(str(day.date))
        file = await asyncio.to_thread(self._identity, system, day)
        if (stored is not None and stored.file == file) or (file and file == self._damaged.get((system, day))):
            return
        try:
            part = await asyncio.to_thread(self._sealed, system, day)
            if part is not None:
                await self.acknowledged(sink.store(FileDay(part, system, day, revision, cursor.epoch)))
                self.save(cursor.day(system, str(day.date), StoredDay(revision, file)))
            elif stored is not None and stored.file:
                # The log has this change mostly, but not where it was trimmed, or begins with another epoch.
                await self.within(sink.reopened(system, day.date, revision))
                self.save(cursor.day(system, str(day.date), StoredDay(revision)))
        except DamagedFile as error:
            # Waiting does not help. The daemon sets the file aside and seals another, which is a change; it is counted once until then.
            self._damaged[system, day] = file
            log.warning("sink.file_damaged", sink=self.section.name, window=str(Window(day.start, day.end)), error=str(error))
            self.count(Acknowledged(0, Counter({DAMAGED: 1})))

    def _sealed(self, system: str, day: Day) -> Part | None:
        """Return the file of a day if it is sealed, or of another program. Raises DamagedFile and Transient."""
        path = self.rows.path(system, day)
        part = None if path is None else self.rows.part(path)
        with _readable():
            return None if part is None or part.form == "live" else part


@contextmanager
def _readable() -> Iterator[None]:
    """Raise DamagedFile for a file that is damaged, Transient where the system can't read it."""
    try:
        yield
    except NotTts as error:
        raise DamagedFile(str(error)) from error
    except OSError as error:
        raise Transient(str(error)) from error
