"""Window arithmetic: half-open intervals of UTC epoch seconds, aligned to the days of a site.

A window never crosses a site day: its edges are counted from the day's start and the day's last window ends with the day.
"""

from __future__ import annotations

import datetime as dt
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec

from tokiod.times import LATEST, iso

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "BULK_SECONDS", "LATEST", "MAX_WINDOW_BYTES", "SAMPLE_BYTES", "Calendar", "Day", "Window", "bulk_length", "cut", "iso", "whole_rows",
]  # fmt: skip

SAMPLE_BYTES = 20
"""Of a sample in a batch: its time, column and value."""
MAX_WINDOW_BYTES = 512 << 20
"""Of a window's samples, which the writer holds as a whole before it stores them."""


class Window(msgspec.Struct, frozen=True, order=True):
    """The half-open interval [start, end) of UTC epoch seconds."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise ValueError(f"a window must end after it starts: [{self.start}, {self.end})")

    @property
    def seconds(self) -> int:
        """Length in seconds."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"[{iso(self.start)}, {iso(self.end)})"


class Day(msgspec.Struct, frozen=True, order=True):
    """One day of a site: 23, 24 or 25 hours from local midnight to local midnight."""

    start: int
    end: int
    date: dt.date


def _zone(timezone: str) -> dt.tzinfo:
    """Return a time zone by its name. Raises KeyError, ValueError or OSError for an unknown one."""
    if timezone == "UTC":
        return dt.UTC
    return ZoneInfo(timezone)


class Calendar:
    """The days of a site in its IANA time zone."""

    def __init__(self, timezone: str) -> None:
        self.timezone = timezone
        self.zone = _zone(timezone)
        self.day_of_date = lru_cache(maxsize=64)(self._day_of_date)

    def day(self, time: int) -> Day:
        """Return the site day that holds an epoch second.

        Where the clock falls back across midnight, as in St. John's until 2011, a day begins at the first of its two midnights.
        """
        day = self.day_of_date(dt.datetime.fromtimestamp(time, self.zone).date())
        return day if time < day.end else self.day_of_date(day.date + dt.timedelta(days=1))

    def _day_of_date(self, date: dt.date) -> Day:
        return Day(self._midnight(date), self._midnight(date + dt.timedelta(days=1)), date)

    def _midnight(self, date: dt.date) -> int:
        return int(dt.datetime(date.year, date.month, date.day, tzinfo=self.zone).timestamp())

    def window(self, time: int, length: int) -> Window:
        """Return the aligned window of `length` seconds that holds an epoch second."""
        day = self.day(time)
        start = day.start + (time - day.start) // length * length
        return Window(start, min(start + length, day.end))

    def split(self, span: Window, length: int) -> Iterator[Window]:
        """Cut a span at the aligned edges of windows of `length` seconds, oldest first."""
        start = span.start
        while start < span.end:
            day = self.day(start)
            yield from cut(Window(start, min(day.end, span.end)), day.start, length)
            start = day.end


def cut(span: Window, origin: int, length: int) -> Iterator[Window]:
    """Cut a span at origin + k x length, oldest first: of windows so cut, each row of a file that begins at `origin` is in one only."""
    start = span.start
    while start < span.end:
        end = min(start + length - (start - origin) % length, span.end)
        yield Window(start, end)
        start = end


def whole_rows(span: Window, file: Window, step: int) -> Window:
    """Widen a span within a file to whole rows of `step` seconds, which are counted from the file's start."""
    start, end = span.start - (span.start - file.start) % step, span.end + (file.start - span.end) % step
    return Window(start, max(span.end, min(end, file.end)))


BULK_SECONDS = 180


def bulk_length(window: int) -> int:
    """Return the seconds of a window in which the past is collected, a multiple of the source's `window`.

    Longer ones than live polling's are kinder to a source; three minutes of a large site are some 30 MB.
    """
    return max(BULK_SECONDS, window) // window * window
