"""Which cells of a batch may be stored: what lies outside the window or can't be a value is counted by reason and dropped."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.tts.schema import ABSENT

if TYPE_CHECKING:
    from collections import Counter

    from numpy.typing import NDArray

    from tokiod.sample import Batch
    from tokiod.window import Window


@dataclass(slots=True, eq=False)
class WholeRows:
    """Samples that are whole rows: every column once and in order, row after row.

    time i8[n], column [n]: the batch's; width: its columns; times: i8[rows], one of each row. This is the normal case, and everything
    can then be done once per row instead of once per cell.
    """

    time: NDArray[np.int64]
    column: NDArray[np.integer]
    width: int
    times: NDArray[np.int64]
    _places: dict[tuple[int, int], RowsOfFile | None] = field(default_factory=dict)

    def are_of(self, batch: Batch) -> bool:
        """Whether a batch has the same times and columns."""
        return self.width == len(batch.columns) and _same(self.time, batch.time) and _same(self.column, batch.column)

    def rows(self, start: int, step: int) -> RowsOfFile | None:
        """Return where they stand in a file that begins at `start`; None where they don't follow one another there."""
        if (start, step) not in self._places:
            rows = (self.times - start) // step
            follow = bool((rows[1:] - rows[:-1] == 1).all())
            aligned = bool((start + rows * step == self.times).all())
            self._places[start, step] = RowsOfFile(int(rows[0]), len(rows), aligned) if follow else None
        return self._places[start, step]


@dataclass(frozen=True, slots=True)
class RowsOfFile:
    """`count` rows of a file from row `first` on; aligned: the samples' times are those of the rows."""

    first: int
    count: int
    aligned: bool


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The storable samples of a batch: time i8[n], column [n] into batch.columns, value [n]; whole: where they are whole rows."""

    batch: Batch
    time: NDArray[np.int64]
    column: NDArray[np.integer]
    value: NDArray[Any]
    whole: WholeRows | None = None


@dataclass(slots=True, eq=False)
class Selection:
    """What may be stored of the batches of a window; dropped counts the rest.

    Batches of a window mostly have the very same times and columns: what was found of one is known of the next after one comparison.
    """

    window: Window
    dropped: Counter[str]
    _latest: WholeRows | None = None

    def cells(self, batch: Batch) -> Cells:
        """Return a batch's cells that may be stored; a measured -0.0 becomes +0.0."""
        value, sane, reason = _sane(batch)
        whole = self._whole_rows(batch)
        of_rows = batch.time if whole is None else whole.times
        inside = (of_rows >= self.window.start) & (of_rows < self.window.end)
        if inside.all() and sane.all():
            return Cells(batch, batch.time, batch.column, value, whole)
        if whole is not None:
            inside = inside.repeat(len(batch.columns))
        self._count("outside the window", ~inside)
        self._count(reason, inside & ~sane)
        good = inside & sane
        return Cells(batch, batch.time[good], batch.column[good], value[good])

    def _whole_rows(self, batch: Batch) -> WholeRows | None:
        if self._latest is None or not self._latest.are_of(batch):
            times = _times_of_whole_rows(batch)
            if times is None:
                return None
            self._latest = WholeRows(batch.time, batch.column, len(batch.columns), times)
        return self._latest

    def _count(self, reason: str, mask: NDArray[np.bool_]) -> None:
        if n := int(np.count_nonzero(mask)):
            self.dropped[reason] += n


def _sane(batch: Batch) -> tuple[NDArray[Any], NDArray[np.bool_], str]:
    """Return a batch's values, which of them can be stored, and what is wrong with the others."""
    value: NDArray[Any] = batch.value
    if batch.form == "counter":
        return value, value >= 0, "negative counter"
    # No other number has bits as small as those of -0.0.
    if len(value) and value.view(np.int64).min() == ABSENT:
        value = value + 0.0
    return value, np.isfinite(value), "not a number"


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


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one is other or (len(one) == len(other) and bool((one == other).all()))
