"""Which cells of a batch may be stored: what lies outside the window or can't be a value is counted by reason and dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tokiod.batch import row_times
from tokiod.tts.schema import ABSENT

if TYPE_CHECKING:
    from collections import Counter

    from numpy.typing import NDArray

    from tokiod.batch import Batch, Form
    from tokiod.window import Window


_BITS: dict[Form, int] = {"gauge": 0x7FF0_0000_0000_0000, "counter": 0x8000_0000_0000_0000}
"""The bits of the first float that is no finite number and of the first negative integer; those of all negative numbers are greater."""


class Cells(msgspec.Struct, frozen=True, eq=False):
    """The storable samples of a batch: time i8[n], column [n] into batch.columns, value [n].

    first: row of the file at which they begin, if they are whole rows that follow one another there. are_aligned: whether it is known that
    each of their times is that of its row in the file.
    """

    batch: Batch
    time: NDArray[np.int64]
    column: NDArray[np.integer]
    value: NDArray[Any]
    first: int | None = None
    are_aligned: bool = False


class _WholeRows(msgspec.Struct, frozen=True, eq=False):
    """A batch of whole rows. inside: bool[rows], which lie in the window; are_inside: whether all do; first, are_aligned: as in Cells."""

    batch: Batch
    inside: NDArray[np.bool_]
    are_inside: bool
    first: int | None
    are_aligned: bool


class Selection(msgspec.Struct, eq=False):
    """What may be stored of the batches of a window, in a file that begins at `start`; dropped counts the rest.

    Batches of a window mostly have the same times and columns: what was found of one holds for the next after one comparison.
    """

    window: Window
    dropped: Counter[str]
    start: int = 0
    _latest: _WholeRows | None = None

    def cells(self, batch: Batch) -> Cells:
        """Return a batch's cells that may be stored; a measured -0.0 becomes +0.0."""
        rows = batch.rows
        if rows is not None and rows.start >= self.window.start and rows.end(batch.step) <= self.window.end and _are_all_sane(batch):
            first, offset = divmod(rows.start - self.start, batch.step)
            return Cells(batch, batch.time, batch.column, batch.value, first, not offset)
        value, sane, reason = _sane(batch)
        whole = self._whole_rows(batch)
        inside = self._inside(batch.time) if whole is None else whole.inside
        if (inside.all() if whole is None else whole.are_inside) and sane.all():
            place = () if whole is None else (whole.first, whole.are_aligned)
            return Cells(batch, batch.time, batch.column, value, *place)
        if whole is not None:
            inside = inside.repeat(len(batch.columns))
        self._count("outside the window", ~inside)
        self._count(reason, inside & ~sane)
        good = inside & sane
        return Cells(batch, batch.time[good], batch.column[good], value[good])

    def _whole_rows(self, batch: Batch) -> _WholeRows | None:
        if self._latest is None or not _same_samples(self._latest.batch, batch):
            times = row_times(batch)
            if times is None:
                return None
            rows, offsets = np.divmod(times - self.start, batch.step)
            first = int(rows[0]) if (rows[1:] - rows[:-1] == 1).all() else None
            inside = self._inside(times)
            self._latest = _WholeRows(batch, inside, bool(inside.all()), first, not offsets.any())
        return self._latest

    def _inside(self, times: NDArray[np.int64]) -> NDArray[np.bool_]:
        return (times >= self.window.start) & (times < self.window.end)

    def _count(self, reason: str, mask: NDArray[np.bool_]) -> None:
        if n := int(np.count_nonzero(mask)):
            self.dropped[reason] += n


def _are_all_sane(batch: Batch) -> bool:
    """Whether a look at the greatest bits tells that all values can be stored as they are: no sign, and of floats no infinity, no NaN."""
    return int(np.maximum.reduce(batch.value.view(np.uint64))) < _BITS[batch.form]


def _sane(batch: Batch) -> tuple[NDArray[Any], NDArray[np.bool_], str]:
    """Return a batch's values, which of them can be stored, and what is wrong with the others."""
    value: NDArray[Any] = batch.value
    if batch.form == "counter":
        return value, value >= 0, "negative counter"
    # No other number has bits as small as those of -0.0.
    if len(value) and value.view(np.int64).min() == ABSENT:
        value = value + 0.0
    return value, np.isfinite(value), "not a number"


def _same_samples(one: Batch, other: Batch) -> bool:
    same_shape = one.step == other.step and len(one.columns) == len(other.columns)
    return same_shape and _same(one.time, other.time) and _same(one.column, other.column)


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one is other or (len(one) == len(other) and bool((one == other).all()))
