"""Which cells of a batch may be stored: what lies outside the window or can't be a value is counted by reason and dropped."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.tts.schema import missing

if TYPE_CHECKING:
    from collections import Counter

    from numpy.typing import NDArray

    from tokiod.sample import Batch
    from tokiod.window import Window


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The storable samples of a batch: time i8[n], column [n] into batch.columns, value [n].

    times: i8[rows] where they are whole rows, every column once and in order, row after row; None otherwise. That is the normal case,
    and everything can then be done once per row instead of once per cell.
    """

    batch: Batch
    time: NDArray[np.int64]
    column: NDArray[np.integer]
    value: NDArray[Any]
    times: NDArray[np.int64] | None = None


def select(batch: Batch, window: Window, dropped: Counter[str]) -> Cells:
    """Return the cells that may be stored, counting the others in `dropped`; a measured -0.0 becomes +0.0."""
    value: NDArray[Any] = batch.value
    if batch.form == "counter":
        sane, reason = value >= 0, "negative counter"
    else:
        sane, reason = np.isfinite(value), "not a number"
        value = value + 0.0 if missing(value).any() else value
    times = _times_of_whole_rows(batch)
    of_rows = batch.time if times is None else times
    inside = (of_rows >= window.start) & (of_rows < window.end)
    if inside.all() and sane.all():
        return Cells(batch, batch.time, batch.column, value, times)
    if times is not None:
        inside = inside.repeat(len(batch.columns))
    _count(dropped, "outside the window", ~inside)
    _count(dropped, reason, inside & ~sane)
    good = inside & sane
    return Cells(batch, batch.time[good], batch.column[good], value[good])


def _times_of_whole_rows(batch: Batch) -> NDArray[np.int64] | None:
    width = len(batch.columns)
    if not width or not len(batch) or len(batch) % width or batch.column[width - 1] != width - 1 or batch.time[0] != batch.time[width - 1]:
        return None
    times = batch.time[::width]
    whole = (batch.column.reshape(-1, width) == _every_column(width)).all()
    return times if whole and (batch.time.reshape(-1, width) == times[:, np.newaxis]).all() else None


@lru_cache(maxsize=64)
def _every_column(width: int) -> NDArray[np.uint32]:
    return np.arange(width, dtype=np.uint32)


def _count(dropped: Counter[str], reason: str, mask: NDArray[np.bool_]) -> None:
    if n := int(np.count_nonzero(mask)):
        dropped[reason] += n
