"""Local time stamps of rows to UTC epoch seconds."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import numpy as np

from collectors.mmperfmon.parse_legend import CACHE_BYTES, STAMP
from tokiod.toolkit.bytes_cache import cached_for_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEVER = np.iinfo(np.int64).min
"""The instant of an impossible time stamp."""

_PARTS = np.dtype([("hour", "S13"), ("", "S1"), ("minute", "S2"), ("", "S1"), ("second", "S2")])
"""A time stamp, 2019-05-15-13:59:00."""

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - subtracted from naive datetimes
DAY = 86400
FOREVER = 10**12
SECOND, NO_OFFSET = dt.timedelta(seconds=1), dt.timedelta(0)


# Files of one hour have the same rows, so nearly all calls are answered from the cache.
@cached_for_bytes(CACHE_BYTES)
def to_instants(stamps: bytes, zone: dt.tzinfo) -> NDArray[np.int64]:
    """Return the instants of joined time stamps, in the order of the rows; NEVER for a time that no clock in the zone showed."""
    instants = _in_steady_hours(stamps, zone)
    if instants is None:
        first, second = _both_instants(stamps, zone)
        instants = np.where(_second_pass(first, second), second, first)
    instants.flags.writeable = False
    return instants


@cached_for_bytes(CACHE_BYTES)
def to_later_instants(stamps: bytes, zone: dt.tzinfo) -> NDArray[np.int64] | None:
    """Return the instants if the rows at the end, of an hour that occurs twice, are of its second pass; None where the rows decide that."""
    first, second = _both_instants(stamps[-STAMP:], zone)
    if not len(first) or first[0] == second[0]:
        return None
    first, second = _both_instants(stamps, zone)
    is_second = _second_pass(first, second)
    if is_second[-1]:
        return None
    is_second |= (first < second) & (first > first[-1] - DAY)
    return np.where(is_second, second, first)


def _both_instants(stamps: bytes, zone: dt.tzinfo) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    pairs = [_instants(stamps[place : place + STAMP].decode(), zone) for place in range(0, len(stamps), STAMP)]
    first, second = np.array(pairs, np.int64).reshape(-1, 2).T
    return first, second


def _in_steady_hours(stamps: bytes, zone: dt.tzinfo) -> NDArray[np.int64] | None:
    """Return the instants where the offset changes in no hour of the time stamps, and all of them are possible; else None."""
    parts = np.frombuffer(stamps, _PARTS)
    minute, second = parts["minute"].astype(np.int64), parts["second"].astype(np.int64)
    each, place = np.unique(parts["hour"], return_inverse=True)
    begins = [_begin_of_steady_hour(hour.decode(), zone) for hour in each.tolist()]
    if NEVER in begins or max(minute.max(initial=0), second.max(initial=0)) > 59:  # noqa: PLR2004 - of a minute, and of an hour
        return None
    return np.array(begins, np.int64)[place] + 60 * minute + second


# No zone changes its offset twice in an hour, so it is the same all through one that begins and ends with it.
def _begin_of_steady_hour(hour: str, zone: dt.tzinfo) -> int:
    """Return the beginning of an hour of one offset, NEVER of another or an impossible one."""
    begins, ends = _instants(f"{hour}:00:00", zone), _instants(f"{hour}:59:59", zone)
    return begins[0] if {*begins, *(end - 3599 for end in ends)} == {begins[0]} else NEVER


def _instants(stamp: str, zone: dt.tzinfo) -> tuple[int, int]:
    """Return both instants of a local time, equal unless clocks are put back."""
    try:
        local = dt.datetime.fromisoformat(f"{stamp[:10]}T{stamp[11:]}")
        first = _instant(local, zone.utcoffset(local))
        second = _instant(local, zone.utcoffset(local.replace(fold=1)))
    except (ValueError, OverflowError):
        return NEVER, NEVER
    # Where clocks are put forward, the hour in between has instants too, which show another time.
    return (first, second) if first <= second else (NEVER, NEVER)


def _instant(local: dt.datetime, offset: dt.timedelta | None) -> int:
    return (local - (offset or NO_OFFSET) - EPOCH) // SECOND


# Rows go forward, so where their time stamps go back by half the change or more, the second pass of the repeated hour begins; a smaller
# step back is a row out of order. Without such a step, the rows around decide: if rows after the repeated hour follow, the second pass
# begins after the widest gap; the gap before the first row of a file counts as infinite. Rows that nothing follows are the first pass,
# unless the time at which the file was written shows the second.
def _second_pass(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.bool_]:
    steps = np.diff(first[first != NEVER])
    if np.count_nonzero(steps < 0) > np.count_nonzero(steps > 0) + 1:  # backwards: forwards, only the change is a step back
        return _second_pass(first[::-1], second[::-1])[::-1]
    is_second = np.zeros(len(first), bool)
    twice = np.flatnonzero(first < second)
    for rows in np.split(twice, np.flatnonzero(np.abs(np.diff(first[twice])) > DAY) + 1):
        if len(rows):
            is_second[rows] = _are_second(first, rows, int(second[rows[0]] - first[rows[0]]))
    return is_second


def _are_second(first: NDArray[np.int64], rows: NDArray[np.intp], change: int) -> NDArray[np.bool_]:
    """Return which rows of one repeated hour belong to its second pass. change: seconds by which clocks were put back."""
    hour = first[rows]
    steps = np.diff(hour)
    if len(steps) and 2 * steps.min() <= -change:
        return np.arange(len(rows)) > steps.argmin()
    if not (first > hour.max() + change).any():
        return np.zeros(len(rows), bool)
    in_order, before = np.unique(hour), first[(first < hour.min()) & (first != NEVER)]
    gaps = np.diff(in_order, prepend=before.max() if len(before) else hour.min() - FOREVER)
    are_second: NDArray[np.bool_] = hour >= in_order[gaps.argmax()]
    return are_second
