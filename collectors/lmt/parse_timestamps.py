"""LMT's local time stamps, ordered by TS_ID, to UTC epoch seconds."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokiod.window import Window

MINUTE = 60
HOUR = 3600
DAY = 24 * HOUR
MIN_LOCAL, MAX_LOCAL = DAY, 253_370_764_800
"""Local times that have an instant with a date in any zone; a damaged file may contain others."""
SHIFT_REACH = 3 * HOUR
"""Seconds from a window within which a change of the clocks affects the meaning of its time stamps."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The clocks change at `at` (epoch seconds), from one offset to another (seconds east of UTC)."""

    at: int
    before: int
    after: int

    @property
    def repeated(self) -> tuple[int, int]:
        """The local times [first, last) that occur twice; empty in spring."""
        return self.at + self.after, self.at + max(self.before, self.after)


# LMT stores the result of FROM_UNIXTIME: local time without an offset, so each time stamp of an autumn hour stands for two instants.
# TS_IDs only grow, so where time stamps ordered by TS_ID go back by more than NTP would move them, the clocks were put back, and what
# follows is the second pass. LMT may have been down just then: without such a step back, but with time stamps after the repeated hour,
# the step is in the widest gap. Without either, only the first pass can have happened.
class LocalTime:
    """The clocks of an LMT server: which local times to query, and which instants they were."""

    def __init__(self, zone: dt.tzinfo) -> None:
        self.zone = zone

    def bounds(self, window: Window) -> tuple[int, int]:
        """Return the local times [first, last), in seconds since 1970-01-01T00:00 local, that epochs() needs for a window."""
        shifts = self._shifts(window)
        offsets = [self._offset(window.start), self._offset(window.end)]
        first, last = window.start + min(offsets), window.end + max(offsets)
        for start, end in (shift.repeated for shift in shifts):
            if start < end:
                first, last = min(first, start - HOUR), max(last, end + HOUR)
        return first, last

    def epochs(self, local: NDArray[np.int64], window: Window) -> NDArray[np.int64]:
        """Return the instants of local times that are ordered by TS_ID and lie in bounds(window)."""
        shifts = self._shifts(window)
        offset = np.full(len(local), self._offset(window.start - SHIFT_REACH), np.int64)
        for shift in shifts:
            start, end = shift.repeated
            later = local >= shift.at + max(shift.before, shift.after)
            second = np.arange(len(local)) >= _second_pass(local, start, end)
            offset[later | (second & (local >= start))] = shift.after
        return np.subtract(local, offset, dtype=np.int64)

    def instant(self, local: int) -> int:
        """Return the instant of a local time; the first one if there are two."""
        return self.instants(local)[0]

    def instants(self, local: int) -> tuple[int, int]:
        """Return both instants of a local time, equal outside of repeated hours. Times before 1970 or after 9998 are clamped."""
        local = min(max(local, MIN_LOCAL), MAX_LOCAL)
        shown = dt.datetime.fromtimestamp(local, dt.UTC).replace(tzinfo=self.zone)
        return int(shown.timestamp()), int(shown.replace(fold=1).timestamp())

    def _offset(self, time: int) -> int:
        offset = dt.datetime.fromtimestamp(time, self.zone).utcoffset()
        return int(offset.total_seconds()) if offset is not None else 0

    def _shifts(self, window: Window) -> list[Shift]:
        shifts = []
        times = [*range(window.start - SHIFT_REACH, window.end + SHIFT_REACH, HOUR), window.end + SHIFT_REACH]
        offsets = [self._offset(time) for time in times]
        for left, right, before, after in zip(times, times[1:], offsets, offsets[1:], strict=False):
            if before != after:
                shifts.append(Shift(self._change(left, right), before, after))
        return shifts

    def _change(self, left: int, right: int) -> int:
        """Return the first second that has the offset of `right`."""
        old = self._offset(left)
        while right - left > 1:
            middle = (left + right) // 2
            left, right = (middle, right) if self._offset(middle) == old else (left, middle)
        return right


def _second_pass(local: NDArray[np.int64], start: int, end: int) -> int:
    """Return the index from which local times in [start, end) belong to the second pass."""
    if start >= end:
        return len(local)
    near = np.flatnonzero((local >= start - HOUR) & (local < end + HOUR))
    shown = local[near]
    steps = np.diff(shown, prepend=start - HOUR - 1)
    if len(steps) and steps.min() < -MINUTE:
        return int(near[steps.argmin()])
    past = np.flatnonzero(shown >= end)
    if not len(past):
        return len(local)
    return int(near[steps[: past[0] + 1].argmax()])


def seconds(shown: Sequence[Any]) -> NDArray[np.int64]:
    """Return local times, text or naive datetimes, in seconds since 1970-01-01T00:00 local."""
    return np.array(shown, "datetime64[s]").astype(np.int64)


def text(local: int) -> str:
    """Return a local time as LMT's databases compare it."""
    return dt.datetime.fromtimestamp(local, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")
