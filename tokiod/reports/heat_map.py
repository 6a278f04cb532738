"""A heat map of a dataset: components over time, all components together over time, each component over the span.

All three are folded by the same rule, the mean or the maximum, and have the same units. heat_map_figure and heat_map_text draw it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokiod.reports.folding import Folded, Folding, How, folded
from tokiod.reports.quantities import Quantity, quantity

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tokiod.reader.stitched import Stitched

MAX_PIXELS, MAX_BANDS = 1600, 1000
"""Rows and columns of a heat map at most. Smaller drawings are folded from it, so that all have the same scale."""
CLIP_PERCENT = 99.5


@dataclass(frozen=True, slots=True)
class Scale:
    """From zero to `end`. clipped: percent of the values above zero that are at most `end`, None for all; largest: of all values."""

    end: float
    largest: float
    clipped: float | None

    def words(self, quantity: Quantity) -> str:
        """Describe where the scale ends: `12 GiB/s (99.5th percentile above zero)`."""
        return quantity.text(self.end) + ("" if self.clipped is None else f" ({self.clipped:g}th percentile above zero)")


@dataclass(frozen=True, slots=True, eq=False)
class HeatMap:
    """A dataset over a span.

    title: system or file, and dataset; start, end: UTC epoch seconds of the rows; step: seconds between them; rows: how many there are;
    zone: of the labels. cells [pixels, bands]: bands are columns, or several of them; of_all [pixels]: the sum of all components, of
    percentages the mean, of complete rows only; missing f8[pixels]: share of the cells that are missing, 0 to 1. reporting: number of
    columns with a value. largest_cell, largest_of_all: of single rows, before folding; NaN without one.
    """

    title: str
    quantity: Quantity
    start: int
    end: int
    step: int
    rows: int
    zone: dt.tzinfo
    columns: tuple[str, ...]
    cells: Folded
    of_all: Folded
    missing: NDArray[np.float64]
    reporting: int
    largest_cell: float
    largest_of_all: float
    filled: int

    @property
    def of_columns(self) -> Folded:
        """[bands]: each component, or several, over the whole span."""
        whole = self.cells.to(1)
        return Folded(whole.values[0], whole.counts[0], whole.how)

    def words(self) -> list[str]:
        """Describe, line by line, what is summed, what is drawn of the cells, and the largest values before folding."""
        of_all, text = self.quantity.of_all, self.quantity.text
        largest = f"largest cell {text(self.largest_cell)}, largest {of_all} {text(self.largest_of_all)}"
        complete = f"{of_all}: complete rows only; {self.reporting} of {len(self.columns)} components report"
        return [complete, f"drawn: {self.cells.how} of rows of {self.step} s; {largest}"]

    def scale(self, clip: float) -> Scale:
        """Return the scale of the map's colours. clip: percent of the values above zero that it distinguishes."""
        return scale_of(self.cells.values, self.quantity, clip)


def heat_map(matrix: Stitched, how: How, title: str, zone: dt.tzinfo, *, progress: Callable[[int], object] = lambda _: None) -> HeatMap:
    """Read all cells and fold them. progress: called with the number of rows of each block."""
    measured = quantity(matrix.dataset, matrix.units, matrix.step)
    pixels = min(matrix.rows, MAX_PIXELS)
    folding = Folding(matrix.rows, len(matrix.columns), pixels, how)
    for block in matrix.blocks():
        folding.add(block.first, block.positions, block.values * measured.factor)
        progress(len(block.values))
    cells = folding.result()
    reports = cells.counts.sum(axis=0) > 0
    expected = _expected(matrix, reports)
    row_sums = np.where((folding.row_counts == expected) & (expected > 0), folding.row_sums, np.nan)
    of_all = row_sums / np.maximum(expected, 1) if measured.has_mean else row_sums
    missing = folded(1 - folding.row_counts / np.maximum(expected, 1), "mean").to(pixels)
    return HeatMap(
        title=title,
        quantity=measured,
        start=matrix.start,
        end=matrix.end,
        step=matrix.step,
        rows=matrix.rows,
        zone=zone,
        columns=matrix.columns,
        cells=cells.to(MAX_BANDS, axis=1),
        of_all=folded(of_all, how).to(pixels),
        missing=missing.values,
        reporting=int(reports.sum()),
        largest_cell=float(folding.largest),
        largest_of_all=_largest(of_all),
        filled=int(cells.counts.sum()),
    )


# A decommissioned OST stays in LMT's tables for years. Rows are complete without it.
def _expected(matrix: Stitched, reports: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return i4[rows]: how many columns a complete row has: those of the day's file that have a value anywhere in the span.

    A day without a file should have all. Whether a cell is missing is known of all of them.
    """
    expected = np.empty(matrix.rows, np.int32)
    for one in matrix.stretches:
        expected[one.first : one.first + one.rows] = (
            reports[one.positions].sum() if one.path is not None and not matrix.missing else reports.sum()
        )
    return expected


def scale_of(values: NDArray[np.float64], measured: Quantity, clip: float) -> Scale:
    """Return a scale for values, NaN where missing: 0 to 100 of percentages, else up to a percentile of those above zero."""
    largest = _largest(values)
    if measured.is_percentage:
        return Scale(100.0, largest, None)
    above = values[values > 0]
    if not above.size:
        return Scale(1.0, largest, None)
    end = float(np.percentile(above, clip, method="higher"))
    return Scale(end, largest, clip if end < largest else None)


def _largest(values: NDArray[np.float64]) -> float:
    return float(np.fmax.reduce(values, axis=None)) if values.size else np.nan
