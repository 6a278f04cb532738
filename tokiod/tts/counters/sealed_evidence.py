"""Which differences may be believed in a day that was sealed and opened up again: most of its raw samples are gone, its cells are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokiod.tts.schema import ABSENT, missing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.tts.live.matrix import Matrix

NEAR, FARTHER = 8, 4


class Evidence:
    """Whether the sample before each row is the one that raw says, passing over the rows as Deltas does.

    A sample closes its cell with the difference to the one before it. Where raw is lost, the one before it in raw may be hours away, and
    what lies between them stands in other cells already. Such a loss shows in filled cells whose samples are not in raw: a difference
    is believed only if the nearest earlier row that has a sample or closes a filled cell has a sample. Gaps are so still closed by their
    total, and what was collected again together with the sample before it is stored.
    """

    def __init__(self, cells: Matrix, columns: NDArray[np.intp], before: NDArray[np.int64], closing: int) -> None:
        self._cells = cells
        self._columns = columns
        self._closing = closing
        self._sampled = before != ABSENT

    def begin(self, row: int, new: NDArray[np.bool_]) -> None:
        """Start at a row of raw; new: columns without a sample of this day before it. Of others the rows from there on tell enough."""
        self._sampled &= new | (row == 1)
        self.gap(1, row)

    def gap(self, start: int, stop: int) -> None:
        """Pass over rows [start, stop), in which raw holds nothing; those next to `stop` tell most and are read first."""
        near = NEAR
        while start < stop and self._sampled.any():
            first, near = max(stop - near, start), near * FARTHER
            self._sampled &= ~self._filled(first, stop).any(axis=0)
            stop = first

    def believed(self, start: int, raw: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Pass over rows from `start` on, i8[rows, columns]; return for each whether the difference that it closes may be believed."""
        place = np.arange(2, 2 * len(raw) + 2, 2)[:, np.newaxis]
        filled = self._filled(start, start + len(raw))
        marks = np.where(raw != ABSENT, place + 1, np.where(filled, place, 0))
        nearest = np.maximum.accumulate(np.concatenate([self._sampled[np.newaxis].astype(np.int64), marks]), axis=0)
        sampled = (nearest & 1).astype(np.bool_)
        self._sampled = sampled[-1]
        return sampled[:-1]

    def _filled(self, start: int, stop: int) -> NDArray[np.bool_]:
        filled = np.zeros((stop - start, len(self._columns)), np.bool_)
        first = max(start, self._closing)
        if first < stop:
            filled[first - start :] = ~missing(self._cells.read(first - self._closing, stop - self._closing)[:, self._columns])
        return filled
