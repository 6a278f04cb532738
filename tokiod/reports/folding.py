"""Fold a matrix to fewer rows and columns: the maximum or the mean of the cells that are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

How = Literal["mean", "max"]


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """values: f8, NaN where no cell is there; counts: i8 of the same shape, how many cells each value was folded from.

    Folding again is exact: means are weighted by their counts.
    """

    values: NDArray[np.float64]
    counts: NDArray[np.int64]
    how: How

    def to(self, size: int, axis: int = 0) -> Folded:
        """Return at most `size` rows (axis 0) or columns (axis 1), of nearly equal numbers of these."""
        present = self.values.shape[axis]
        if size >= present:
            return self
        edges = np.arange(size) * present // size
        counts = np.add.reduceat(self.counts, edges, axis)
        known = self.counts > 0
        if self.how == "max":
            values = np.maximum.reduceat(np.where(known, self.values, -np.inf), edges, axis)
        else:
            values = np.add.reduceat(np.where(known, self.values * self.counts, 0.0), edges, axis) / np.maximum(counts, 1)
        return Folded(np.where(counts > 0, values, np.nan), counts, self.how)


def folded(values: NDArray[np.float64], how: How) -> Folded:
    """Return values, NaN where missing, as they are: each is folded from itself."""
    return Folded(values, (~np.isnan(values)).astype(np.int64), how)


class Folding:
    """Folds a matrix that comes in blocks of rows to `pixels` rows, with all of its columns, and sums its rows.

    rows, columns: of the whole matrix; pixels: at most rows. row_sums f8[rows], row_counts i4[rows]: of the cells that are there.
    largest: of all cells, NaN without one.
    """

    def __init__(self, rows: int, columns: int, pixels: int, how: How) -> None:
        self._rows, self._pixels, self._how = rows, pixels, how
        self._values = np.full((pixels, columns), -np.inf if how == "max" else 0.0)
        self._counts = np.zeros((pixels, columns), np.int64)
        self.row_sums, self.row_counts = np.zeros(rows), np.zeros(rows, np.int32)
        self.largest = np.nan

    def add(self, first: int, positions: NDArray[np.intp], values: NDArray[np.float64]) -> None:
        """Fold a block: values f8[rows, len(positions)], NaN where missing, of rows from `first` on and columns at `positions`."""
        if not values.size:
            return
        known = ~np.isnan(values)
        filled = np.where(known, values, 0.0)
        rows = slice(first, first + len(values))
        self.row_sums[rows], self.row_counts[rows] = filled.sum(axis=1), known.sum(axis=1)
        self.largest = np.fmax(self.largest, np.max(values, where=known, initial=-np.inf) if known.any() else np.nan)
        # The inverse of edges = arange(pixels) * rows // pixels in Folded.to.
        pixels = (np.arange(first, first + len(values)) * self._pixels + self._pixels - 1) // self._rows
        edges = np.flatnonzero(np.diff(pixels, prepend=-1))
        place = np.ix_(pixels[edges], positions)
        self._counts[place] += np.add.reduceat(known, edges, 0, dtype=np.int64)
        if self._how == "max":
            highest = np.maximum.reduceat(np.where(known, values, -np.inf), edges, 0)
            self._values[place] = np.maximum(self._values[place], highest)
        else:
            self._values[place] += np.add.reduceat(filled, edges, 0)

    def result(self) -> Folded:
        """Return what was folded so far."""
        values = self._values if self._how == "max" else self._values / np.maximum(self._counts, 1)
        return Folded(np.where(self._counts > 0, values, np.nan), self._counts, self._how)
