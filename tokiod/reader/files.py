"""The files of an archive by system and site day."""

from __future__ import annotations

import datetime as dt
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokiod.errors import NoPermission
from tokiod.jobs.span import Days
from tokiod.path_template import files_of, fill, jobs_of, systems_of
from tokiod.reader.errors import NoSuchSystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tokiod.config.sections import ArchiveConfig
    from tokiod.reader.span import Span
    from tokiod.window import Calendar, Day

FIRST_YEAR = 2000
"""Files of days before it are not found: no source is older."""
LAST_DATE = dt.date(9999, 12, 30)


@dataclass(frozen=True, slots=True)
class DayFile:
    """An existing file: its system, its site day, its size."""

    system: str
    day: Day
    path: Path
    nbytes: int


# A template may hold any field of strftime, which has no inverse. So it is filled for every day: 0.1 s for 30 years of a system.
def day_files(archive: ArchiveConfig, calendar: Calendar, systems: Iterable[str], now: float) -> Iterator[DayFile]:
    """Yield the files of systems, sorted by system and day, until tomorrow. now: epoch seconds.

    Raises NoPermission for an archive that the user may not read: it would look empty.
    """
    _check_readable(archive.root)
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


def _check_readable(root: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        try:
            root.stat()
        except PermissionError:
            raise NoPermission(root) from None
        if not os.access(root, os.R_OK | os.X_OK):
            raise NoPermission(root)


@dataclass(frozen=True, slots=True)
class Templates:
    """Where the files of days are: path templates, see tokiod.path_template. Of several that have a file of a day, the first one counts."""

    templates: tuple[str, ...]

    def paths(self, system: str, span: Span, calendar: Calendar | None = None) -> list[Path]:
        """Return the path of each date that may have rows in a span, oldest first: the existing file, or where the first template has none.

        calendar: of the site; without it, a date more on either side, because a site's date begins at most a day before or after that of
        UTC. Raises NoSuchSystem if the templates have files of other systems only, PermissionError for a directory that the user may not
        search.
        """
        found: dict[Path, bool] = {}
        for date in _dates(span) if calendar is None else _site_dates(span, calendar):
            ways = [fill(template, date, system) for template in self.templates]
            there = next((path for path in ways if _exists(path)), None)
            found[there or ways[0]] = there is not None
        if not any(found.values()):
            known = {name for template in self.templates for name in systems_of(template)}
            if known and system not in known and not self.jobs(system).dates():
                raise NoSuchSystem(system, known, self.templates)
        return list(found)

    def jobs(self, system: str) -> Days:
        """Return the job table of a system."""
        return Days(tuple(map(jobs_of, self.templates)), system)

    def days(self, system: str) -> tuple[dt.date, dt.date] | None:
        """Return the first and the last site day of which a system has a file, None without one, or where a file may be of several days."""
        found = {path for template in self.templates for path in files_of(template)}
        date, last, known = dt.date(FIRST_YEAR, 1, 1), dt.datetime.now(dt.UTC).date() + dt.timedelta(days=2), list[dt.date]()
        while found and date <= last:
            known += [date] if any(fill(template, date, system) in found for template in self.templates) else []
            date += dt.timedelta(days=1)
        return (known[0], known[-1]) if known and len(known) <= len(found) else None


def _dates(span: Span) -> Iterator[dt.date]:
    """Yield each date on which some place of the world has an instant of the span."""
    first, last = (dt.datetime.fromtimestamp(time, dt.UTC).date() for time in (span.start, span.end - 1))
    date = first - dt.timedelta(days=1)
    while date <= min(last + dt.timedelta(days=1), LAST_DATE):
        yield date
        date += dt.timedelta(days=1)


def _site_dates(span: Span, calendar: Calendar) -> Iterator[dt.date]:
    start = span.start
    while start < span.end:
        day = calendar.day(start)
        yield day.date
        start = day.end


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
