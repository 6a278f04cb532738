"""Points of a series to rows of the archive: time-weighted means of rates, never the server's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    end = np.minimum(time + interval, np.append(time[1:], np.iinfo(np.int64).max))
    within = (end > window.start) & (time < window.end)
    return _means(np.maximum(time[within], window.start), np.minimum(end[within], window.end), rate[within] + 0.0, step, window)


def _inside(time: Times, rate: Rates, window: Window) -> tuple[Times, Rates]:
    within = (time >= window.start) & (time < window.end)
    return time[within], rate[within] + 0.0


# Cut at the rows' edges and summed row by row: differences of a sum over the whole day would drown small rates in large ones.
def _means(start: Times, end: Times, rate: Rates, step: int, window: Window) -> tuple[Times, Rates]:
    first = (start - window.start) // step
    pieces = (end - 1 - window.start) // step - first + 1
    of = np.repeat(np.arange(len(start)), pieces)
    row = first[of] + np.arange(len(of)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    left = window.start + row * step
    seconds = np.minimum(end[of], left + step) - np.maximum(start[of], left)
    covered = np.bincount(row, seconds)
    had = np.flatnonzero(covered)
    return window.start + had * step, np.bincount(row, seconds * rate[of])[had] / covered[had]
