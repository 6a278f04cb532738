"""Which cells of a batch may be stored: what lies outside the window or can't be a value is counted by reason and dropped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.batch import times_of_rows
from tokiod.tts.schema import ABSENT

if TYPE_CHECKING:
    from collections import Counter

    from numpy.typing import NDArray

    from tokiod.batch import Batch, Form, Rows
    from tokiod.window import Window


_BITS: dict[Form, int] = {"gauge": 0x7FF0_0000_0000_0000, "counter": 0x8000_0000_0000_0000}
"""The bits of the first float that is no finite number and of the first negative integer; those of all negative numbers are greater."""


@dataclass(slots=True, eq=False)
class WholeRows:
    """Samples that are whole rows: every column once and in order, row after row.

    time i8[n], column [n]: the batch's; width: its columns; times: i8[rows], one of each row. This is the normal case, and everything
    can then be done once per row instead of once per cell; and where `times` follow one another evenly, once for all of them.
    every: seconds from each to the next, 0 where that isn't the same.
    """

    time: NDArray[np.int64]
    column: NDArray[np.integer]
    width: int
    times: NDArray[np.int64]
    every: int = field(init=False)
    _places: dict[tuple[int, int], RowsOfFile | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        apart = self.times[1:] - self.times[:-1]
        # Divided as Python's own numbers, which have no end: times that nobody has may lie so far apart that int64 turns over.
        every = (int(self.times[-1]) - int(self.times[0])) // max(len(apart), 1)
        self.every = every if (apart == every).all() else 0

    def are_of(self, batch: Batch) -> bool:
        """Whether a batch has the same times and columns."""
        return self.width == len(batch.columns) and _same(self.time, batch.time) and _same(self.column, batch.column)

    def rows(self, start: int, step: int) -> RowsOfFile | None:
        """Return where they stand in a file that begins at `start`; None where they don't follow one another there."""
        if (start, step) not in self._places:
            even = self.every == step
            self._places[start, step] = _even(int(self.times[0]), len(self.times), start, step) if even else self._rows(start, step)
        return self._places[start, step]

    def inside(self, window: Window) -> bool:
        """Whether all of them lie in a window; False also where that takes a look at each."""
        return self.every > 0 and window.start <= self.times[0] and self.times[-1] < window.end

    def _rows(self, start: int, step: int) -> RowsOfFile | None:
        rows = (self.times - start) // step
        if not (rows[1:] - rows[:-1] == 1).all():
            return None
        return RowsOfFile(int(rows[0]), len(rows), bool((start + rows * step == self.times).all()))


@dataclass(frozen=True, slots=True)
class EvenRows:
    """Samples of which it was known before that they are whole rows, one step after the other."""

    of: Rows
    step: int

    def rows(self, start: int, step: int) -> RowsOfFile:
        """Return where they stand in a file that begins at `start`, whose step is theirs."""
        return _even(self.of.start, self.of.count, start, step)


@dataclass(frozen=True, slots=True)
class RowsOfFile:
    """`count` rows of a file from row `first` on; aligned: the samples' times are those of the rows."""

    first: int
    count: int
    aligned: bool


def _even(time: int, count: int, start: int, step: int) -> RowsOfFile:
    first, rest = divmod(time - start, step)
    return RowsOfFile(first, count, rest == 0)


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The storable samples of a batch: time i8[n], column [n] into batch.columns, value [n]; whole: where they are whole rows."""

    batch: Batch
    time: NDArray[np.int64]
    column: NDArray[np.integer]
    value: NDArray[Any]
    whole: WholeRows | EvenRows | None = None


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
        rows = batch.rows
        if rows is not None and rows.start >= self.window.start and rows.end(batch.step) <= self.window.end and _are_all_sane(batch):
            return Cells(batch, batch.time, batch.column, batch.value, EvenRows(rows, batch.step))
        value, sane, reason = _sane(batch)
        whole = self._whole_rows(batch)
        if whole is not None and whole.inside(self.window) and sane.all():
            return Cells(batch, batch.time, batch.column, value, whole)
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
            times = times_of_rows(batch.time, batch.column, len(batch.columns))
            if times is None:
                return None
            self._latest = WholeRows(batch.time, batch.column, len(batch.columns), times)
        return self._latest

    def _count(self, reason: str, mask: NDArray[np.bool_]) -> None:
        if n := int(np.count_nonzero(mask)):
            self.dropped[reason] += n


def _are_all_sane(batch: Batch) -> bool:
    """Whether a look at the greatest bits tells that all values can be stored as they are: no sign, and of floats no infinity, no NaN."""
    return int(batch.value.view(np.uint64).max()) < _BITS[batch.form]


def _sane(batch: Batch) -> tuple[NDArray[Any], NDArray[np.bool_], str]:
    """Return a batch's values, which of them can be stored, and what is wrong with the others."""
    value: NDArray[Any] = batch.value
    if batch.form == "counter":
        return value, value >= 0, "negative counter"
    # No other number has bits as small as those of -0.0.
    if len(value) and value.view(np.int64).min() == ABSENT:
        value = value + 0.0
    return value, np.isfinite(value), "not a number"


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one is other or (len(one) == len(other) and bool((one == other).all()))
