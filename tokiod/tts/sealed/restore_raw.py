"""Compute the raw samples of a sealed day from its cells and its kept samples (tokiod.tts.sealed.kept_samples).

A cell is the difference of the sample that closes it to the base of the rule (counters.deltas), so cells add up to samples. If they do
not, as after a fall, sealing kept the sample, from which they add up again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.tts.counters.deltas import FIRST_CLOSING_ROW
from tokiod.tts.schema import missing

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    """The samples of one counter, from row 0 on.

    cells: f8[N, at least width] of a sealed file. edges: kept samples i8[3, n]. proved: bool[width], from kept_samples.edges().
    """

    def __init__(self, cells: Any, edges: NDArray[np.int64], proved: NDArray[np.bool_]) -> None:
        self._cells = cells
        self._proved = proved
        self._edges = edges[:, (edges[0] > 0) & (edges[0] <= len(cells))]
        first = np.full(len(proved), len(cells) + FIRST_CLOSING_ROW)
        np.minimum.at(first, self._edges[1], self._edges[0])
        self._sums = CellSums(first)
        # A sample is its sum plus the shortfall of the sum at the last kept sample up to it.
        self._short = np.zeros(len(proved), np.int64)

    def fill(self, start: int, block: NDArray[np.int64]) -> None:
        """Put samples into rows [start, start + len(block)) of raw; call it for consecutive blocks."""
        begin, stop = max(start, 1), min(start + len(block), len(self._cells) + 1)
        if begin >= stop:
            return
        row = np.arange(begin, stop)[:, np.newaxis]
        cells = np.full((stop - begin, len(self._proved)), -0.0)
        closed = max(begin, FIRST_CLOSING_ROW)
        cells[closed - begin :] = self._cells[closed - FIRST_CLOSING_ROW : stop - FIRST_CLOSING_ROW, : len(self._proved)]
        filled, sums = self._sums.next(row, cells)
        samples = sums + self._shortfall(begin, sums)
        np.copyto(block[begin - start : stop - start], samples, where=filled & self._proved)

    def _shortfall(self, begin: int, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        at, column, value = self._edges[:, (self._edges[0] >= begin) & (self._edges[0] < begin + len(sums))]
        at = at - begin
        short, latest = np.concatenate([self._short[np.newaxis], sums]), np.zeros((len(sums) + 1, len(self._proved)), np.intp)
        short[at + 1, column] = value - sums[at, column]
        latest[at + 1, column] = at + 1
        found = np.take_along_axis(short, np.maximum.accumulate(latest, axis=0), axis=0)
        self._short = found[-1]
        return found[1:]
