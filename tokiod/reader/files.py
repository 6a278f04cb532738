"""The files of an archive by system and site day."""

from __future__ import annotations

import datetime as dt
import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from tokiod.archive.layout import FileSlot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tokiod.config.load import ArchiveConfig
    from tokiod.window import Calendar, Day, Window

FIRST_YEAR = 2000
"""Files of days before it are not found: no source is older."""


class DayFile(msgspec.Struct, frozen=True):
    """An existing file: its system, its site day, its size."""

    system: str
    day: Day
    path: Path
    nbytes: int


# A template may hold any field of strftime, which has no inverse. So it is filled for every day: 0.1 s for 30 years of a system.
def day_files(archive: ArchiveConfig, calendar: Calendar, systems: Iterable[str], now: float) -> Iterator[DayFile]:
    """Yield the files of systems, sorted by system and day, until tomorrow. now: epoch seconds.

    Raises PermissionError for an archive that the user may not read: it would look empty.
    """
    if archive.root.exists() and not os.access(archive.root, os.R_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(archive.root))
    found = set(archive.files())
    last = calendar.day(calendar.day(int(now)).end).date
    for system in sorted(set(systems)):
        date = dt.date(FIRST_YEAR, 1, 1)
        while found and date <= last:
            path, date_of = archive.file_of(date, system), date
            date += dt.timedelta(days=1)
            if path in found:
                with suppress(FileNotFoundError):  # moved away since
                    yield DayFile(system, calendar.day_of_date(date_of), path, path.stat().st_size)


def day_slots(archive: ArchiveConfig, calendar: Calendar, system: str, span: Window) -> Iterator[FileSlot]:
    """Yield the slot of each site day that a span touches, oldest first, whether its file exists or not."""
    start = span.start
    while start < span.end:
        day = calendar.day(start)
        yield FileSlot(system, archive.file_of(day.date, system), day.start, day.end)
        start = day.end
