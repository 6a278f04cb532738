"""ISO 8601 time stamps to epoch milliseconds, many at once.

    2017-12-13T08:30:43[.951...](Z|+01:00|+0100|+01)      0 to 9 digits of a second; what is finer than a millisecond is cut off

By columns: time stamps of equal length make a matrix of characters, and a page has one length nearly always.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BAD = np.iinfo(np.int64).min
"""What a text becomes that is no time stamp."""

MINUTE, HOUR, DAY = 60, 3600, 86_400
_EPOCH = dt.date(1970, 1, 1).toordinal()
_WHOLE = len("2017-12-13T08:30:43")
_DATE = len("2017-12-13")
_PUNCTUATION = {4: "-", 7: "-", 10: "T", 13: ":", 16: ":"}
_PARTS = {"year": (0, 4), "month": (5, 7), "day": (8, 10), "hour": (11, 13), "minute": (14, 16), "second": (17, 19)}
_ZONES = {len("Z"): (), len("+01"): ((1, 3),), len("+0100"): ((1, 3), (3, 5)), len("+01:00"): ((1, 3), (4, 6))}
_FINEST = 9


def milliseconds(texts: list[str]) -> NDArray[np.int64]:
    """Return i8[n] UTC epoch milliseconds; BAD for what is no time stamp with a zone, or no date of the calendar."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    if len(texts) and (lengths == lengths[0]).all():
        return _of_length(texts, int(lengths[0]))
    times = np.full(len(texts), BAD, np.int64)
    for length in np.unique(lengths).tolist():
        where = np.flatnonzero(lengths == length)
        times[where] = _of_length([texts[i] for i in where.tolist()], length)
    return times


def _of_length(texts: list[str], length: int) -> NDArray[np.int64]:
    times = np.full(len(texts), BAD, np.int64)
    if not _WHOLE < length <= _WHOLE + 1 + _FINEST + max(_ZONES):
        return times
    # "replace" makes one byte of every character that is not ASCII, and no digit of it.
    rows = np.frombuffer("".join(texts).encode("ascii", "replace"), np.uint8).reshape(-1, length)
    for zone in _ZONES:
        if length >= _WHOLE + zone:
            mine = rows[:, -zone] == ord("Z") if zone == 1 else (rows[:, -zone] == ord("+")) | (rows[:, -zone] == ord("-"))
            if mine.all():
                return _Columns(rows, zone).milliseconds()
            times[mine] = _Columns(rows[mine], zone).milliseconds()
    return times


class _Columns:
    """Time stamps of one length with zones of one length, character by character: u1[characters, n]."""

    def __init__(self, rows: NDArray[np.uint8], zone: int) -> None:
        self.characters = np.ascontiguousarray(rows.T)
        self.digits = self.characters - np.uint8(ord("0"))
        self.zone = len(self.characters) - zone
        self.good = np.ones(len(rows), np.bool_)

    def milliseconds(self) -> NDArray[np.int64]:
        fraction = self._fraction()
        for place, mark in _PUNCTUATION.items():
            self.good &= self.characters[place] == ord(mark)
        hour, minute, second = (self._number(*_PARTS[part], below) for part, below in (("hour", 24), ("minute", 60), ("second", 60)))
        of_day = hour * HOUR + minute * MINUTE + second - self._offset()
        times = (self._days() * DAY + of_day) * 1000 + fraction
        return np.where(self.good, times, BAD).astype(np.int64, copy=False)

    def _number(self, first: int, last: int, below: int) -> NDArray[np.int32]:
        number = np.zeros(len(self.good), np.int32)
        for digit in self.digits[first:last]:
            self.good &= digit <= 9  # noqa: PLR2004 - the last digit
            number = number * 10 + digit
        self.good &= number < below
        return number

    def _fraction(self) -> NDArray[np.int32]:
        """Return the milliseconds of the second's digits, of which there may be none."""
        if self.zone == _WHOLE:
            return np.zeros(len(self.good), np.int32)
        self.good &= (self.characters[_WHOLE] == ord(".")) & (_WHOLE + 1 < self.zone <= _WHOLE + 1 + _FINEST)
        for digit in self.digits[_WHOLE + 4 : self.zone]:
            self.good &= digit <= 9  # noqa: PLR2004 - the last digit
        known = min(self.zone - _WHOLE - 1, 3)
        return self._number(_WHOLE + 1, _WHOLE + 1 + known, 1000) * np.int32(10 ** (3 - known))

    def _offset(self) -> NDArray[np.int32]:
        """Return the seconds east of UTC."""
        seconds = np.zeros(len(self.good), np.int32)
        for (first, last), (unit, below) in zip(_ZONES[len(self.characters) - self.zone], ((HOUR, 24), (MINUTE, 60)), strict=False):
            seconds += self._number(self.zone + first, self.zone + last, below) * unit
        if len(self.characters) - self.zone == len("+01:00"):
            self.good &= self.characters[self.zone + 3] == ord(":")
        return np.where(self.characters[self.zone] == ord("-"), -seconds, seconds) if seconds.any() else seconds

    def _days(self) -> NDArray[np.int64]:
        """Return the days since 1970-01-01."""
        year, month, day = (self._number(*_PARTS[part], 10_000) for part in ("year", "month", "day"))
        dates, which = np.unique((year * 100 + month) * 100 + day, return_inverse=True)
        days = np.array([_day(date) for date in dates.tolist()], np.int64)
        self.good &= (days != BAD)[which]
        return days[which]


def _day(date: int) -> int:
    try:
        return dt.date(date // 10_000, date // 100 % 100, date % 100).toordinal() - _EPOCH
    except ValueError:
        return int(BAD)
