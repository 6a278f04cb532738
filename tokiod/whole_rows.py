"""Whole rows: samples that are every column once and in order, row after row; how nearly everything comes, and what is fast."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def times_of_rows(time: NDArray[np.int64], column: NDArray[np.integer[Any]], width: int) -> NDArray[np.int64] | None:
    """Return the time of each row, i8[rows], if samples of `width` columns are whole rows."""
    n = len(time)
    if not width or not n or n % width or column[width - 1] != width - 1 or time[0] != time[width - 1]:
        return None
    times = time[::width]
    whole = (column.reshape(-1, width) == columns_of(1, width)).all()
    return times if whole and (time.reshape(-1, width) == times[:, np.newaxis]).all() else None


# The datasets of a window mostly have the same rows, and a source's windows are equally long.
@lru_cache(maxsize=4)
def times_of(start: int, count: int, step: int, width: int) -> NDArray[np.int64]:
    """Return the times of the samples of `count` rows, the first of them at `start`; shared, and so read-only."""
    times = _times_after(count, step, width) + start
    times.flags.writeable = False
    return times


@lru_cache(maxsize=16)
def _times_after(count: int, step: int, width: int) -> NDArray[np.int64]:
    return np.arange(0, count * step, step, dtype=np.int64).repeat(width)


@lru_cache(maxsize=16)
def columns_of(count: int, width: int) -> NDArray[np.uint32]:
    """Return the columns of the samples of `count` rows; shared, and so read-only."""
    columns = np.tile(np.arange(width, dtype=np.uint32), count)
    columns.flags.writeable = False
    return columns
