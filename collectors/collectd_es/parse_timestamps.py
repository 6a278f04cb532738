"""ISO 8601 time stamps to epoch milliseconds, many at once.

    2017-12-13T08:30:43[.951...](Z|+01:00|+0100|+01)      0 to 9 digits of a second; digits after the millisecond are cut off

They are read by columns: time stamps of equal length make a matrix of characters, and nearly all pages have one length.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

INVALID = np.iinfo(np.int64).min
"""The time of a malformed time stamp."""

HOUR, MINUTE, DAY = 3600, 60, 86_400
_EPOCH = dt.date(1970, 1, 1).toordinal()
_PATTERN = "dddd-dd-ddTdd:dd:dd"
_DATE, _WHOLE = len("dddd-dd-dd"), len(_PATTERN)
_ZONES = {len(pattern): pattern for pattern in ("Z", "+dd", "+dddd", "+dd:dd")}
_FINEST = 9
_LONGEST = _WHOLE + len(".") + _FINEST + max(_ZONES)


def milliseconds(texts: list[str]) -> NDArray[np.int64]:
    """Return i8[n] UTC epoch milliseconds; INVALID for text without a zone, of another form, or with an impossible date."""
    length = len(texts[0]) if texts else 0
    joined = "\n".join(texts) + "\n"
    # There are as many line breaks as texts. So if all rows but their last characters are time stamps, those are the line breaks, and all
    # texts have one length. Measuring each text takes longer.
    if _WHOLE < length <= _LONGEST and len(joined) == (length + 1) * len(texts):
        times = _of_rows(_matrix(joined, length + 1)[:, :-1])
        if (times != INVALID).all():
            return times
    return _of_any_length(texts)


def _of_any_length(texts: list[str]) -> NDArray[np.int64]:
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    times = np.full(len(texts), INVALID, np.int64)
    for length in np.unique(lengths[(lengths > _WHOLE) & (lengths <= _LONGEST)]).tolist():
        where = np.flatnonzero(lengths == length)
        times[where] = _of_rows(_matrix("".join([texts[i] for i in where.tolist()]), length))
    return times


def _matrix(joined: str, width: int) -> NDArray[np.uint8]:
    # "replace" makes one byte of every character that is not ASCII, and never a digit.
    return np.frombuffer(joined.encode("ascii", "replace"), np.uint8).reshape(-1, width)


def _of_rows(rows: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Parse u1[n, characters]."""
    length = rows.shape[1]
    times = np.full(len(rows), INVALID, np.int64)
    for zone in _ZONES:
        if length >= _WHOLE + zone:
            mark = rows[:, -zone]
            mine = mark == ord("Z") if zone == len("Z") else (mark == ord("+")) | (mark == ord("-"))
            if mine.all():
                return _Columns(rows, zone).milliseconds()
            if mine.any():
                times[mine] = _Columns(rows[mine], zone).milliseconds()
    return times


class _Columns:
    """Time stamps of one length with zones of one length, character by character: u1[characters, n]."""

    def __init__(self, rows: NDArray[np.uint8], zone: int) -> None:
        self.characters = np.ascontiguousarray(rows.T)
        self.digits = self.characters - np.uint8(ord("0"))
        self.zone = len(self.characters) - zone
        fraction = self.zone - _WHOLE
        self.pattern = _PATTERN + ("." + "d" * (fraction - 1) if fraction else "") + _ZONES[zone]
        self.good = np.full(len(rows), 0 <= fraction <= 1 + _FINEST and fraction != 1)

    def milliseconds(self) -> NDArray[np.int64]:
        self._check_characters()
        (hour, minute, second), offset = (self._below(place, limit) for place, limit in ((11, 24), (14, 60), (17, 60))), self._offset()
        of_day = hour.astype(np.int32) * HOUR + minute.astype(np.int32) * MINUTE + second - offset
        times = (of_day + self._days() * DAY) * 1000 + self._fraction()
        return np.where(self.good, times, INVALID)

    def _check_characters(self) -> None:
        for place, kind in enumerate(self.pattern):
            if kind in "-T:.":
                self.good &= self.characters[place] == ord(kind)
        self.good &= (self.digits[[kind == "d" for kind in self.pattern]] <= ord("9") - ord("0")).all(axis=0)

    def _below(self, place: int, limit: int) -> NDArray[np.uint8]:
        """Return the number of two digits; mark those at or above a limit as invalid. Characters that are no digits are marked already."""
        number: NDArray[np.uint8] = self.digits[place] * np.uint8(10) + self.digits[place + 1]
        self.good &= number < limit
        return number

    def _fraction(self) -> NDArray[np.int32]:
        milliseconds = np.zeros(len(self.good), np.int32)
        for digit, unit in zip(self.digits[_WHOLE + 1 : self.zone], (100, 10, 1), strict=False):
            milliseconds += digit * np.int32(unit)
        return milliseconds

    def _offset(self) -> NDArray[np.int32] | int:
        """Return the seconds east of UTC."""
        zone = self.pattern[self.zone :]
        if zone == "Z":
            return 0
        seconds = self._below(self.zone + 1, 24).astype(np.int32) * HOUR
        if "dd" in zone[3:]:
            seconds += self._below(len(self.pattern) - 2, 60).astype(np.int32) * MINUTE
        return np.where(self.characters[self.zone] == ord("-"), -seconds, seconds)

    def _days(self) -> NDArray[np.int64]:
        """Return the days since 1970-01-01; a page has one or two different ones."""
        if (self.characters[:_DATE] == self.characters[:_DATE, :1]).all():
            days = np.full(len(self.good), _day(self.characters[:_DATE, 0].tobytes()))
        else:
            dates, which = np.unique(np.ascontiguousarray(self.characters[:_DATE].T).view(f"S{_DATE}")[:, 0], return_inverse=True)
            days = np.array([_day(date) for date in dates.tolist()], np.int64)[which]
        self.good &= days != INVALID
        return days


def _day(date: bytes) -> int:
    try:
        return dt.date.fromisoformat(date.decode("ascii")).toordinal() - _EPOCH
    except ValueError:
        return int(INVALID)
