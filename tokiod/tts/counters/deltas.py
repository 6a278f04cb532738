"""Differences of counters: the rule that turns raw samples into cells, vectorised over columns. No I/O.

The raw rows of one day have a guard at each end, [rows + 2, columns] int64, ABSENT without a sample:

    raw row 0          the last sample of the day before
    raw row 1 .. N     the samples in the day's rows 0 .. N - 1
    raw row N + 1      the sample in row 0 of the next day

The sample in raw row r closes cell r - 2 of the day: a difference stands in the row before the later sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokiod.tts.schema import ABSENT, MISSING

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST_CLOSING_ROW = 2
"""The sample in this row of raw closes the day's first cell."""
SLAB_ROWS = 128
"""Rows handled at a time: a few hundred columns of them fit into the processor's cache."""


class Deltas:
    """The state of the rule between two rows, for many columns.

    Per column: `base`, the value that the next difference is taken from; `trusted`, whether a value below it may be a passing dip rather
    than a reset; `last`, the sample before, used if there is no base. ABSENT means missing. A value minus ABSENT wraps around to below
    zero for every value from 0 to 2**63 - 1, so "exists and is not above" is one comparison.

    The state before a column's first sample of the day has no base and no trust, and the last sample of the day before as `last`: the
    only exception for midnight. It does not apply to the first sample of the next day: see end_of_day().

    Why an update need not start at midnight: call a nonzero sample an *anchor* if it is not below the two nonzero samples before it, p
    and then q, whatever stands between. After an anchor v the state is (v, trusted, v), whatever it was before p. For after p the base is p
    or, only if trust has just been lost, something above p. Zeros and absent rows leave the base alone and can only take trust away. So
    after q the base is p or q: if it was above p, and so untrusted, q replaces it either way; if it was p, it outlives q only as p.
    Neither is above v, so v becomes the base and is trusted, and `last` is v by definition.
    """

    def __init__(self, last: NDArray[np.int64]) -> None:
        self.base = np.full_like(last, ABSENT)
        self.trusted = np.zeros(last.shape, bool)
        self.last = last.copy()

    def end_of_day(self, sampled: NDArray[np.bool_]) -> None:
        """Drop the sample of the day before in columns without a sample of this day; the next row fed is row 0 of the next day."""
        self.last[~sampled] = ABSENT

    def gap(self) -> None:
        """Process rows without any sample."""
        self.trusted[:] = False

    def feed(self, raw: NDArray[np.int64]) -> NDArray[np.float64]:
        """Process the next rows, i8[rows, columns], and return the cells that their samples close, of the same shape.

        Differences are exact before they become float64. MISSING without one; a computed zero is +0.0.
        """
        cells = np.empty(raw.shape)
        if len(raw):
            cells[0] = _as_cells(self._step(raw[0]))
        if len(raw) > 1:
            self._follow(raw, cells)
        return cells

    def _follow(self, raw: NDArray[np.int64], cells: NDArray[np.float64]) -> None:
        # No fall means no zero and no ABSENT either if the last sample is neither: a sample after ABSENT wraps to below zero.
        steps = raw[1:] - raw[:-1]
        cells[1:] = steps
        clean = (self.base == raw[0]) & (raw[-1] > 0) & (steps.min(axis=0) >= 0)
        np.copyto(self.base, raw[-1], where=clean)
        np.copyto(self.last, raw[-1], where=clean)
        self.trusted |= clean
        dirty = np.flatnonzero(~clean)
        if len(dirty):
            idle = raw[1:, dirty].max(axis=0) <= 0
            cells[1:, dirty[idle]] = self._wait(raw[1:, dirty[idle]], dirty[idle])
            cells[1:, dirty[~idle]] = self._walk(raw[1:, dirty[~idle]], dirty[~idle])

    def _wait(self, raw: NDArray[np.int64], columns: NDArray[np.intp]) -> NDArray[np.float64]:
        """Process rows of zeros and ABSENT only: unused operations, targets without clients, absent components."""
        present = raw == 0
        cells = np.where(present, 0.0, MISSING)
        sampled, fell = present.any(axis=0), self.last[columns] != 0
        cells[present.argmax(axis=0)[fell & sampled], np.flatnonzero(fell & sampled)] = MISSING
        self.trusted[columns] = False
        self.last[columns[sampled]] = 0
        return cells

    def _walk(self, raw: NDArray[np.int64], columns: NDArray[np.intp]) -> NDArray[np.float64]:
        few = Deltas(self.last[columns])
        few.base, few.trusted = self.base[columns], self.trusted[columns]
        found = np.empty_like(raw)
        for row, value in enumerate(raw):
            found[row] = few._step(value)
        self.base[columns], self.trusted[columns], self.last[columns] = few.base, few.trusted, few.last
        return _as_cells(found)

    def _step(self, value: NDArray[np.int64]) -> NDArray[np.int64]:
        from_base = value - self.base
        from_last = value - self.last
        present, nonzero = value >= 0, value > 0
        rises = nonzero & (from_base >= 0)
        found = np.where(rises, from_base, np.where(present & (from_last >= 0), from_last, ABSENT))
        self.base = np.where(nonzero & (rises | ~self.trusted), value, self.base)
        self.trusted = rises
        self.last = np.where(present, value, self.last)
        return found


def _as_cells(found: NDArray[np.int64]) -> NDArray[np.float64]:
    cells = found.astype(np.float64)
    cells[found == ABSENT] = MISSING
    return cells


def day(raw: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return all cells of a day, f8[rows, columns], from its raw rows, i8[rows + 2, columns]."""
    rows = len(raw) - 2
    deltas = Deltas(raw[0])
    cells = np.empty((rows + 1, raw.shape[1]))
    for start in range(0, rows, SLAB_ROWS):
        stop = min(start + SLAB_ROWS, rows)
        cells[start:stop] = deltas.feed(raw[1 + start : 1 + stop])
    deltas.end_of_day(raw[1:-1].max(axis=0, initial=ABSENT) >= 0)
    cells[rows:] = deltas.feed(raw[-1:])
    return cells[1:]


def anchored(raw: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return for each column whether these rows, i8[rows, columns], contain an anchor and its two nonzero predecessors."""
    earlier, later = raw[:-2], raw[1:-1]
    found = np.any((raw[2:] >= np.maximum(earlier, later)) & (np.minimum(earlier, later) > 0), axis=0)
    apart = np.flatnonzero(~found)
    if len(apart):
        found[apart] = _anchored_apart(raw[:, apart])
    return np.asarray(found)


def _anchored_apart(raw: NDArray[np.int64]) -> NDArray[np.bool_]:
    nonzero = raw > 0
    rows = np.where(nonzero, np.arange(len(raw))[:, np.newaxis], -1)
    before = np.full_like(rows, -1)
    np.maximum.accumulate(rows[:-1], axis=0, out=before[1:])
    before_that = np.take_along_axis(before, np.maximum(before, 0), axis=0)
    later = np.take_along_axis(raw, np.maximum(before, 0), axis=0)
    earlier = np.take_along_axis(raw, np.maximum(before_that, 0), axis=0)
    found = nonzero & (before_that >= 0) & (raw >= later) & (raw >= earlier)
    return np.asarray(found.any(axis=0))
