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


def latest(time: Times, rate: Rates) -> tuple[Times, Rates]:
    """Return points of i8[n], f8[n] in the order of their times, each time once: the last that is no NaN, as null is told, stands."""
    known = ~np.isnan(rate)
    time, rate = time[known][::-1], rate[known][::-1]
    time, first = np.unique(time, return_index=True)
    return time, rate[first]


def rows(time: Times, rate: Rates, interval: int, step: int, window: Window) -> tuple[Times, Rates]:
    """Return the left edges i8[m] and means f8[m] of a window's rows of `step` seconds that points say anything of.

    time: i8[n], ascending; a point's rate holds for `interval` seconds or until the next point. Where both are the same, a point is
    its row's.
    """
    if interval == step:
        time = window.start + (time - window.start) // step * step
        return _inside(*latest(time, rate), window)
    start, end, within = _held(time, interval, window)
    return _means(start, end, rate[within] + 0.0, step, window)


# A point that is longer than a row says something of several, perhaps of several windows. When it becomes known, each of them has more than
# it had; the number of points would have grown in the first of them alone.
def told(time: Times, interval: int, step: int, window: Window) -> int:
    """Return of how many rows of a window points say anything, each point for itself; time, interval and step as of rows()."""
    if interval == step:
        return int(np.count_nonzero((time >= window.start) & (time < window.end)))
    start, end, _ = _held(time, interval, window)
    return int(_pieces(start - window.start, end - window.start, step).sum())


def _held(time: Times, interval: int, window: Window) -> tuple[Times, Times, NDArray[np.bool_]]:
    """Return from when to when the points that hold in a window do so, and which ones that are."""
    end = np.minimum(time + interval, np.append(time[1:], np.iinfo(np.int64).max))
    within = (end > window.start) & (time < window.end)
    return np.maximum(time[within], window.start), np.minimum(end[within], window.end), within


def _pieces(start: Times, end: Times, step: int) -> Times:
    return (end - 1) // step - start // step + 1


def _inside(time: Times, rate: Rates, window: Window) -> tuple[Times, Rates]:
    within = (time >= window.start) & (time < window.end)
    return time[within], rate[within] + 0.0


# Cut at the rows' edges and summed row by row: differences of a sum over the whole day would drown small rates in large ones.
def _means(start: Times, end: Times, rate: Rates, step: int, window: Window) -> tuple[Times, Rates]:
    first = (start - window.start) // step
    pieces = _pieces(start - window.start, end - window.start, step)
    of = np.repeat(np.arange(len(start)), pieces)
    row = first[of] + np.arange(len(of)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    left = window.start + row * step
    seconds = np.minimum(end[of], left + step) - np.maximum(start[of], left)
    covered = np.bincount(row, seconds)
    had = np.flatnonzero(covered)
    return window.start + had * step, np.bincount(row, seconds * rate[of])[had] / covered[had]


Series = tuple[str, str]
"""An interface and a direction."""


def batches(points: Mapping[Series, Points], columns: Sequence[str], interval: int, step: int, window: Window) -> Iterator[Batch]:
    """Yield both directions; interval: of points whose answer doesn't say."""
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
    return rows(*latest(points.time, points.rate), points.interval or interval, step, window)


def count(points: Mapping[Series, Points], interval: int, step: int, window: Window) -> int:
    """Return of how many rows of a window known points say anything; interval and step as of batches()."""
    return sum(told(np.unique(one.time), one.interval or interval, step, window) for one in points.values())
