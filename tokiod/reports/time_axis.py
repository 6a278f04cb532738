"""Labels of a time axis on round local times: hours within a day, dates over several."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = (5, 15, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200)
_DAYS = (1, 2, 7, 14, 28, 91, 182, 365)
_DAY = 86400
LONGEST_OF_HOURS = 3 * _DAY // 2
"""Seconds of a span that is never labelled with dates."""


def labels(start: int, end: int, zone: dt.tzinfo, count: int) -> Iterator[tuple[float, str]]:
    """Yield about `count` labels of a span of UTC epoch seconds: a place from 0 to 1, and its local time."""
    longest = None if end - start > LONGEST_OF_HOURS else _SECONDS[-1]
    every = next((step for step in _SECONDS if (end - start) / step <= count), longest)
    for time in _dates(start, end, zone, count) if every is None else _times(start, end, zone, every):
        form = "%m-%d" if every is None else "%H:%M:%S" if every % 60 else "%H:%M"
        yield (time - start) / (end - start), dt.datetime.fromtimestamp(time, zone).strftime(form)


def ends(start: int, end: int, zone: dt.tzinfo) -> str:
    """Write both ends of a span: `2018-01-28 00:00 to 2018-01-29 00:00 PST`; each has its own zone's name if they differ."""
    first, last = (dt.datetime.fromtimestamp(time, zone) for time in (start, end))
    form = "%Y-%m-%d %H:%M" if start % 60 == end % 60 == 0 else "%Y-%m-%d %H:%M:%S"
    names = ("", f" {last.tzname()}") if first.tzname() == last.tzname() else (f" {first.tzname()}", f" {last.tzname()}")
    return f"{first.strftime(form)}{names[0]} to {last.strftime(form)}{names[1]}"


def _times(start: int, end: int, zone: dt.tzinfo, every: int) -> Iterator[int]:
    local = dt.datetime.fromtimestamp(start, zone)
    # Across a clock change the places stay even and the hours follow.
    first = start + -(local.hour * 3600 + local.minute * 60 + local.second) % every
    return iter(range(first, end + 1, every))


def _dates(start: int, end: int, zone: dt.tzinfo, count: int) -> Iterator[int]:
    days = next((days for days in _DAYS if (end - start) / (days * _DAY) <= count), _DAYS[-1])
    date = dt.datetime.fromtimestamp(start, zone).date()
    while True:
        time = int(dt.datetime(date.year, date.month, date.day, tzinfo=zone).timestamp())
        if time > end:
            return
        if time >= start:
            yield time
        date += dt.timedelta(days=days if time >= start else 1)
