"""Whole rows: samples that are every column once and in order, row after row; how nearly everything comes, and what is fast."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHARED = 2**16
"""Cells of a message up to which its times and columns are kept for the next one: those of thousands of hosts would take hundreds of MB."""


def times_of_rows(time: NDArray[np.int64], column: NDArray[np.integer[Any]], width: int) -> NDArray[np.int64] | None:
    """Return the time of each row, i8[rows], if samples of `width` columns are whole rows."""
    n = len(time)
    if not width or not n or n % width or column[width - 1] != width - 1 or time[0] != time[width - 1]:
        return None
    times = time[::width]
    whole = (column.reshape(-1, width) == columns_of(1, width)).all()
    return times if whole and (time.reshape(-1, width) == times[:, np.newaxis]).all() else None


def times_of(start: int, count: int, step: int, width: int) -> NDArray[np.int64]:
    """Return the times of the samples of `count` rows, the first of them at `start`; it may be shared, and is read-only."""
    make = _times_of if count * width <= SHARED else _times_of.__wrapped__
    return make(start, count, step, width)


def columns_of(count: int, width: int) -> NDArray[np.uint32]:
    """Return the columns of the samples of `count` rows; it may be shared, and is read-only."""
    make = _columns_of if count * width <= SHARED else _columns_of.__wrapped__
    return make(count, width)


# The datasets of a window mostly have the same rows, and a source's windows are equally long.
@lru_cache(maxsize=4)
def _times_of(start: int, count: int, step: int, width: int) -> NDArray[np.int64]:
    return _read_only(np.arange(start, start + count * step, step, dtype=np.int64).repeat(width))


@lru_cache(maxsize=16)
def _columns_of(count: int, width: int) -> NDArray[np.uint32]:
    return _read_only(np.tile(np.arange(width, dtype=np.uint32), count))


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
