"""Points to rows of the archive and to batches: time-weighted means of rates, never the server's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collectors.esnet_snmp.datasets import DATASETS
from tokiod.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from collectors.esnet_snmp.parse import Points
    from tokiod.window import Window

    Times = NDArray[np.int64]
    Rates = NDArray[np.float64]


def each_time_once(time: Times, rate: Rates) -> tuple[Times, Rates]:
    """Return points of i8[n], f8[n] in the order of their times, each time once: the last one that is not NaN (null) counts."""
    known = ~np.isnan(rate)
    time, rate = time[known][::-1], rate[known][::-1]
    time, first = np.unique(time, return_index=True)
    return time, rate[first]


def rows(time: Times, rate: Rates, interval: int, step: int, window: Window) -> tuple[Times, Rates]:
    """Return the left edges i8[m] and means f8[m] of those rows of a window, `step` seconds long, that points cover.

    time: i8[n], ascending; a point's rate holds for `interval` seconds or until the next point. Where interval and step are the same,
    each point is one row.
    """
    if interval == step:
        time = window.start + (time - window.start) // step * step
        return _within(*each_time_once(time, rate), window)
    start, end, within = _holding(time, interval, window)
    return _means(start, end, rate[within] + 0.0, step, window)


# A point that is longer than a row covers several rows, perhaps of several windows. When it becomes known, the count of each of these
# windows must grow; the number of points would grow only in the first of them.
def covered_rows(time: Times, interval: int, step: int, window: Window) -> int:
    """Return how many rows of a window points cover, each point by itself; time, interval and step as in rows()."""
    if interval == step:
        return int(np.count_nonzero((time >= window.start) & (time < window.end)))
    start, end, _ = _holding(time, interval, window)
    return int(_pieces(start - window.start, end - window.start, step).sum())


def _holding(time: Times, interval: int, window: Window) -> tuple[Times, Times, NDArray[np.bool_]]:
    """Return the start and end of each point that holds in a window, cut to the window, and which points these are."""
    end = np.minimum(time + interval, np.append(time[1:], np.iinfo(np.int64).max))
    within = (end > window.start) & (time < window.end)
    return np.maximum(time[within], window.start), np.minimum(end[within], window.end), within


def _pieces(start: Times, end: Times, step: int) -> Times:
    return (end - 1) // step - start // step + 1


def _within(time: Times, rate: Rates, window: Window) -> tuple[Times, Rates]:
    within = (time >= window.start) & (time < window.end)
    return time[within], rate[within] + 0.0


# Points are cut at the rows' edges and summed row by row: differences of a running sum over the day would lose small rates next to
# large ones.
def _means(start: Times, end: Times, rate: Rates, step: int, window: Window) -> tuple[Times, Rates]:
    first = (start - window.start) // step
    pieces = _pieces(start - window.start, end - window.start, step)
    of = np.repeat(np.arange(len(start)), pieces)
    row = first[of] + np.arange(len(of)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    left = window.start + row * step
    seconds = np.minimum(end[of], left + step) - np.maximum(start[of], left)
    covered = np.bincount(row, seconds)
    known = np.flatnonzero(covered)
    return window.start + known * step, np.bincount(row, seconds * rate[of])[known] / covered[known]


Series = tuple[str, str]
"""An interface and a direction."""


def batches(points: Mapping[Series, Points], columns: Sequence[str], interval: int, step: int, window: Window) -> Iterator[Batch]:
    """Yield a batch per direction; interval: seconds of a point where the answer does not report it."""
    for direction, dataset in DATASETS.items():
        found = [_rows(points.get((name, direction)), interval, step, window) for name in columns]
        column = np.repeat(np.arange(len(found), dtype=np.uint32), [len(time) for time, _ in found])
        time = np.concatenate([np.empty(0, np.int64), *(time for time, _ in found)])
        rate = np.concatenate([np.empty(0, np.float64), *(rate for _, rate in found)])
        order = np.lexsort((column, time))
        yield Batch(dataset, "gauge", step, tuple(columns), time[order], column[order], rate[order])


def _rows(points: Points | None, interval: int, step: int, window: Window) -> tuple[Times, Rates]:
    if points is None:
        return np.empty(0, np.int64), np.empty(0, np.float64)
    return rows(*each_time_once(points.time, points.rate), points.interval or interval, step, window)


def count(points: Mapping[Series, Points], interval: int, step: int, window: Window) -> int:
    """Return how many rows of a window known points cover; interval and step as in batches()."""
    return sum(covered_rows(np.unique(one.time), one.interval or interval, step, window) for one in points.values())
