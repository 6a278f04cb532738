"""Raw samples of a sealed day, worked out from its cells and the edges that were kept (tokiod.tts.edges).

A cell is the difference of the sample that closes it to the base of the rule (tokiod.tts.deltas), exact below 2**53. So differences add
up to samples: forward from the first one, and backward from the last, as far as each step closes a cell. Where one doesn't, the rule
passed over its sample or there was none, and the counter may have begun anew. Where both ways say the same, it has not, and the whole day
is known. A dip that the rule passed over stays lost, and a zero stands as the base that it left alone: neither makes a difference to
any cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.tts.schema import NO_ROW, missing

if TYPE_CHECKING:
    from numpy.typing import NDArray

CELLS = 1 << 20
"""That are read at once."""
CLOSING = 2
"""The sample in this row of raw closes the day's first cell."""
EXACT = 2.0**53


class Restored:
    """The samples of one counter. cells: f8[N, at least width], of a sealed file; edges: i8[3, n]; width: how many columns count.

    Per column, in rows of raw: `first` (and its `value`), `end`: the samples that sums begin and end with; `first_hole`, `last_hole`: the
    first and last row between them that closes no cell; `total`: the sum of the cells between; `offset`: what sums backward differ by.
    """

    def __init__(self, cells: Any, edges: NDArray[np.int64], width: int) -> None:
        self._cells = cells
        self._width = width
        self._rows = len(cells)
        self._never = self._rows + CLOSING
        row, column, value = edges[:, (edges[0] > 0) & (edges[0] <= self._rows)]
        self._first, self._value = np.full(width, self._never), np.zeros(width, np.int64)
        # Edges stand in the order of their rows, so that going backward the first one stays.
        self._first[column[::-1]], self._value[column[::-1]] = row[::-1], value[::-1]
        self._end, self._first_hole, self._last_hole = np.full(width, NO_ROW), np.full(width, self._never), np.full(width, NO_ROW)
        self._total = np.zeros(width, np.int64)
        is_exact = self._measured()
        closing = row == self._end[column]
        offset, is_known = np.zeros(width, np.int64), np.zeros(width, np.bool_)
        offset[column[closing]], is_known[column[closing]] = value[closing], True
        self._offset = offset - self._total - self._value
        self._first_hole[is_exact & is_known & (self._offset == 0)] = self._never
        self._first_hole[~is_exact] = 0
        self._last_hole[~(is_exact & is_known)] = self._never
        self._sum = np.zeros(width, np.int64)

    def fill(self, start: int, block: NDArray[np.int64]) -> None:
        """Put samples into rows [start, start + len(block)) of raw; all of it comes in pieces, from row 0 on."""
        top, stop = max(start - CLOSING, 0), min(start + len(block) - CLOSING, self._rows - 1)
        if top >= stop:
            return
        row, filled, steps = self._steps(top, stop)
        forward = self._value + self._sum + np.cumsum(steps, axis=0)
        self._sum += steps.sum(axis=0)
        of_first, of_last = filled & (row < self._first_hole), filled & (row > self._last_hole)
        part = block[top + CLOSING - start : stop + CLOSING - start]
        np.copyto(part, forward + self._offset, where=of_last)
        np.copyto(part, forward, where=of_first)

    def _measured(self) -> NDArray[np.bool_]:
        """Look at all cells once; returns the columns in which they can be added up."""
        is_exact, hole = np.ones(self._width, np.bool_), np.full(self._width, NO_ROW)
        tall = max(1, CELLS // self._width)
        for top in range(0, self._rows - 1, tall):
            row, filled, steps = self._steps(top, min(top + tall, self._rows - 1))
            is_exact &= (steps >= 0).all(axis=0)
            self._total += steps.sum(axis=0)
            holes = np.where(filled | (row <= self._first), NO_ROW, row)
            holes = np.maximum(np.maximum.accumulate(holes, axis=0), hole)
            last = len(row) - 1 - filled[::-1].argmax(axis=0)
            here = np.flatnonzero(filled.any(axis=0))
            self._end[here], self._last_hole[here] = row[last[here], 0], holes[last[here], here]
            hole = holes[-1]
            without = ~filled & (row > self._first)
            found = np.flatnonzero(without.any(axis=0) & (self._first_hole == self._never))
            self._first_hole[found] = row[without[:, found].argmax(axis=0), 0]
        return is_exact

    def _steps(self, top: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
        """Return the rows of raw, i8[n, 1], that close the cells [top, stop), which of these are filled, and what they hold.

        -1 where that is no number of whole bytes or operations; 0 where there is nothing.
        """
        cells = self._cells[top:stop, : self._width]
        row = np.arange(top + CLOSING, stop + CLOSING)[:, np.newaxis]
        filled = ~missing(cells) & (row > self._first)
        odd = filled & ~((cells >= 0) & (cells < EXACT) & (cells == np.floor(cells)))
        steps = np.where(filled & ~odd, cells, 0.0).astype(np.int64)
        steps[odd] = -1
        return row, filled, steps
