"""How much of each of the site's days is stored, source by source: what a calendar shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tokiod.ledger.expected import expected
from tokiod.ledger.known_sources import known_sources
from tokiod.ranges import Ranges
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tokiod.collector import SourceConfig
    from tokiod.ledger.expected import Expected
    from tokiod.ledger.ledger import Ledger
    from tokiod.window import Calendar, Day


class SourceDay(msgspec.Struct, frozen=True):
    """A source's part of one of the site's days, [start, end) in UTC epoch seconds; date: as 2018-01-28.

    Seconds of the day: stored; due, what the source should have answered by now since its registration, and what is stored besides, None of
    a watched folder, whose windows are unknown; lost, no longer available.
    """

    date: str
    start: int
    end: int
    system: str
    source: str
    stored: int
    due: int | None
    lost: int


def days(sources: Sequence[SourceConfig], ledger: Ledger, calendar: Calendar, span: Window, now: float) -> list[SourceDay]:
    """Return every day that overlaps a span, of each source, oldest first."""
    known, dates, lines = known_sources(sources, ledger), list(_dates(calendar, span)), list[SourceDay]()
    for source in sources:
        row = known.get(source.name)
        ours = expected(source, None if row is None else row.since, ledger, calendar, now)
        lines += _of_source(source, ours, ledger, dates, is_known=row is not None)
    return sorted(lines, key=lambda one: (one.start, one.source))


def _of_source(source: SourceConfig, ours: Expected, ledger: Ledger, dates: list[Day], *, is_known: bool) -> Iterator[SourceDay]:
    whole = Window(dates[0].start, dates[-1].end)
    stored = ledger.stored(source.name, whole) if is_known else Ranges()
    lost = [*ours.gone, *(one.window for one in ledger.unstored(source.name) if one.state == "lost")] if is_known else []
    for day in dates:
        here = Ranges((one.start, one.end) for one in stored.within(day.start, day.end))
        due = due_seconds(here, day, ours.since, ours.settled) if source.polled else None
        yield SourceDay(f"{day.date}", day.start, day.end, source.system, source.name, here.total, due, _within(lost, day))


def due_seconds(stored: Ranges, day: Day, since: int, settled: int) -> int:
    """Return how much of a day should be stored: from the registration to what is settled, and what a backfill stored besides.

    stored: of the day alone.
    """
    due = stored.copy()
    due.add(max(day.start, since), min(day.end, settled))
    return due.total


def _within(windows: Iterable[Window], day: Day) -> int:
    return sum(max(0, min(one.end, day.end) - max(one.start, day.start)) for one in windows)


def _dates(calendar: Calendar, span: Window) -> Iterator[Day]:
    time = span.start
    while time < span.end:
        day = calendar.day(time)
        yield day
        time = day.end
