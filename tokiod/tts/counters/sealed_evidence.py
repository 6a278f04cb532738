"""Which differences are supported in a day that was sealed and unsealed: it has all its cells, but not all raw samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokiod.tts.schema import ABSENT, missing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.tts.live.matrix import Matrix

FIRST_READ_ROWS, READ_GROWTH = 8, 4


class Evidence:
    """Whether the sample before each row is really the one before it in raw; processes the rows as Deltas does.

    A sample closes its cell with the difference to the sample before it. Where raw was dropped, the sample before it in raw may be hours
    older, and other cells already contain the traffic between them. Filled cells without a raw sample show this: a difference is
    supported only if the nearest earlier row that has a sample or closes a filled cell has a sample. So a gap is still closed by its
    total, and samples that are collected again together with the sample before them are stored.
    """

    def __init__(self, cells: Matrix, columns: NDArray[np.intp], before: NDArray[np.int64], closing: int) -> None:
        self._cells = cells
        self._columns = columns
        self._closing = closing
        self._sampled = before != ABSENT

    def begin(self, row: int, new: NDArray[np.bool_]) -> None:
        """Start at a row of raw; new: columns without a sample of this day before it. For the others the rows from there on suffice."""
        first = self._closing - 1
        self._sampled &= new | (row == first)
        self.gap(first, row)

    def gap(self, start: int, stop: int) -> None:
        """Process rows [start, stop) without raw samples; the rows next to `stop` matter most and are read first."""
        near = FIRST_READ_ROWS
        while start < stop and self._sampled.any():
            first, near = max(stop - near, start), near * READ_GROWTH
            self._sampled &= ~self._filled(first, stop).any(axis=0)
            stop = first

    def supported(self, start: int, raw: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Process rows from `start` on, i8[rows, columns]; return for each whether the difference that it closes is supported."""
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
