"""Compute the raw samples of a sealed day from its cells and its kept samples (tokiod.tts.sealed.kept_samples).

A cell is the difference of the sample that closes it to an earlier one, so cells add up to samples. If they do not, as after a fall,
sealing kept the sample, from which they add up again. This holds whatever the rule was that made the cells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.tts.schema import missing

if TYPE_CHECKING:
    from numpy.typing import NDArray

DETERMINED, KEPT = 1, 2
"""Of a sealed column: cells and kept samples determine the others; there are no others."""


class CellSums:
    """Running sums of the cells after each column's first sample: equal to the samples up to a constant until the counter resets.

    so_far: i8[columns], the sums of all cells so far.
    """

    def __init__(self, first: NDArray[np.int64]) -> None:
        self._first = first
        self.so_far = np.zeros(len(first), np.int64)

    def next(self, row: NDArray[np.int64], cells: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Add the next cells; return which are filled, and the sums up to each. row: i8[n, 1], the raw rows whose samples close them."""
        filled = ~missing(cells) & (row > self._first)
        sums = self.so_far + np.cumsum(np.where(filled & (np.abs(cells) < 2.0**63), cells, 0.0).astype(np.int64), axis=0)
        self.so_far = sums[-1]
        return filled, sums


class RestoredRaw:
    """The samples of one counter in the day's rows.

    cells: f8[N, at least width] of a sealed file. kept: i8[3, n], rows from the day's start. proved: u1[width], DETERMINED or KEPT.
    """

    def __init__(self, cells: Any, kept: NDArray[np.int64], proved: NDArray[np.uint8]) -> None:
        self._cells = cells
        self._determined = proved == DETERMINED
        self._kept = kept[:, kept[0] < len(cells)]
        first = np.full(len(proved), len(cells))
        np.minimum.at(first, self._kept[1], self._kept[0])
        self._sums = CellSums(first)
        # A sample is its sum plus the shortfall of the sum at the last kept sample up to it.
        self._short = np.zeros(len(proved), np.int64)

    def fill(self, start: int, block: NDArray[np.int64]) -> None:
        """Put samples into the raw rows [start, start + len(block)); call it for consecutive blocks, the first one from row 0."""
        stop = min(start + len(block), len(self._cells))
        if start >= stop:
            return
        row, width = np.arange(start, stop)[:, np.newaxis], len(self._determined)
        cells, closed = np.full((stop - start, width), -0.0), max(start, 1)
        cells[closed - start :] = self._cells[closed - 1 : stop - 1, :width]
        filled, sums = self._sums.next(row, cells)
        np.copyto(block[: stop - start], sums + self._shortfall(start, sums), where=filled & self._determined)

    def _shortfall(self, begin: int, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        at, column, value = self._kept[:, (self._kept[0] >= begin) & (self._kept[0] < begin + len(sums))]
        at = at - begin
        short, latest = np.concatenate([self._short[np.newaxis], sums]), np.zeros((len(sums) + 1, len(self._determined)), np.intp)
        short[at + 1, column] = value - sums[at, column]
        latest[at + 1, column] = at + 1
        found = np.take_along_axis(short, np.maximum.accumulate(latest, axis=0), axis=0)
        self._short = found[-1]
        return found[1:]
