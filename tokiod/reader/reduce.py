"""Reduce a dataset over time or over columns, piece by piece: memory does not grow with the span.

A missing cell is stored as -0.0, the neutral element of addition in every bit: a sum needs no mask, and a sum without any value stays -0.0.
Files of pytokio also have NaN, which shows in every result but a count: then, and for counts, it is replaced.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokiod.reader.cells import in_threads
from tokiod.reader.errors import UnclearTime
from tokiod.reader.span import length
from tokiod.reader.stitched import MAX_BLOCK_BYTES, Stitched
from tokiod.reader.table import Table
from tokiod.tts.schema import MISSING, missing

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from tokiod.reader.cells import Piece
    from tokiod.reader.stitched import Stretch

    Values = NDArray[np.float64]

How = str
"""sum, mean, max, min, count, missing, or a percentile p0 to p100, such as p95 or p99.9."""
HOWS = ("sum", "mean", "max", "min", "count", "missing", "p50", "p95", "p99")
_PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?)")


def reduced(matrix: Stitched, every: str | float | None, how: How, over: Literal["time", "columns"], zone: dt.tzinfo) -> Table:
    """Return a reduction of all rows, see Archive.reduce()."""
    percent = _percent(how)
    if over == "columns":
        if every is not None:
            raise UnclearTime("over='columns' keeps all rows: leave `every` out, and reduce the result")
        return Table(matrix.times, (how,), _over_columns(matrix, how, percent)[:, np.newaxis], zone)
    seconds = matrix.end - matrix.start if every is None else length(every)
    if seconds % matrix.step and every is not None:
        raise UnclearTime(f"{every} is not a multiple of {matrix.step} s, the step of {matrix.dataset}")
    bins = _Bins(matrix, seconds)
    values = _percentiles(bins, percent) if percent is not None else _folded(bins, how)
    return Table(bins.times, matrix.columns, values, zone)


def _percent(how: str) -> float | None:
    """Return the percentile that is asked for, None for the other reductions. Raises ValueError."""
    found = _PERCENTILE.fullmatch(how)
    if found and float(found[1]) <= 100:  # noqa: PLR2004 - percent
        return float(found[1])
    if how not in HOWS:
        raise ValueError(f"how={how!r}: known: {', '.join(HOWS)}")
    return None


class _Bins:
    """The rows of a matrix in bins of `seconds`, counted from its first row."""

    def __init__(self, matrix: Stitched, seconds: int) -> None:
        self.matrix, self.seconds = matrix, seconds
        self.count = -(-(matrix.stretches[-1].start + matrix.stretches[-1].rows * matrix.step - matrix.start) // seconds)
        self.times = matrix.start + seconds * np.arange(self.count, dtype=np.int64)

    def of(self, stretch: Stretch, rows: slice) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the bins that rows of a stretch are in, and the first row of each within `rows`."""
        first = stretch.start - self.matrix.start + self.matrix.step * rows.start
        last = first + self.matrix.step * (rows.stop - 1 - rows.start)
        # Arithmetic on bins, not on rows: a chunk has one bin where it has 720 rows. No bin is shorter than a row, so none is empty.
        bins = np.arange(first // self.seconds, last // self.seconds + 1)
        return bins, np.maximum(-((first - bins * self.seconds) // self.matrix.step), 0)


def _folded(bins: _Bins, how: str) -> Values:
    shape = (bins.count, len(bins.matrix.columns))
    counts = np.zeros(shape, np.int64)
    is_extreme = how in ("max", "min")
    start = {"max": -np.inf, "min": np.inf}.get(how, MISSING)
    totals = np.full(shape, start)
    fold = {"max": np.maximum, "min": np.minimum}.get(how, np.add)
    needs_counts, needs_totals = how not in ("sum", "max", "min"), how not in ("count", "missing")

    def total(cells: Values, edges: NDArray[np.intp]) -> Values:
        result: Values = fold.reduceat(np.where(missing(cells), start, cells) if is_extreme else cells, edges, axis=0)
        return result

    def work(stretch: Stretch, rows: slice, cells: Values) -> tuple[Any, Any, Any]:
        at, edges = bins.of(stretch, rows)
        found = total(cells, edges) if needs_totals else None
        if np.isnan(cells if found is None else found).any():
            cells = np.where(np.isnan(cells), MISSING, cells)
            found = total(cells, edges) if needs_totals else None
        return at, found, np.add.reduceat(~missing(cells), edges, axis=0, dtype=np.int64) if needs_counts else None

    for columns, (at, found, counted) in _pieces(bins.matrix, work):
        place = at[:, np.newaxis], columns
        if found is not None:
            totals[place] = fold(totals[place], found)
        if counted is not None:
            counts[place] += counted
    if how == "count":
        return counts.astype(np.float64)
    if how == "missing":
        rows = np.bincount((bins.matrix.times - bins.matrix.start) // bins.seconds, minlength=bins.count)
        return (rows[:, np.newaxis] - counts).astype(np.float64)
    if how == "mean":
        return np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)
    return np.where(np.isinf(totals) if is_extreme else missing(totals), np.nan, totals)


def _pieces(matrix: Stitched, work: Callable[[Stretch, slice, Values], Any]) -> Iterator[tuple[NDArray[np.intp], Any]]:
    """Yield the places of the columns, and work(stretch, rows, cells as stored), of each piece; rows count from the stretch's first one."""
    for stretch in matrix.stretches:
        if stretch.path is None and not matrix.missing:
            continue
        if not stretch.recipe.keeps_missing or matrix.missing:
            yield from _computed(matrix, stretch, work)
            continue
        part, shape, row, (name, *_) = matrix.located(stretch)
        places = np.array([matrix.places.get(column, -1) for column in shape.columns], np.intp)
        numbers = None if (places >= 0).all() else np.flatnonzero(places >= 0)
        chosen = places if numbers is None else places[numbers]

        def one(piece: Piece, stretch: Stretch = stretch, chosen: NDArray[np.intp] = chosen) -> Any:
            cells = stretch.recipe.cells([piece.load()], matrix.step)
            return chosen[piece.columns], work(stretch, piece.rows, cells)

        with part.readable():
            yield from in_threads(one, part.cells(name).pieces(row, row + stretch.rows, numbers))


def _computed(matrix: Stitched, stretch: Stretch, work: Callable[[Stretch, slice, Values], Any]) -> Iterator[tuple[NDArray[np.intp], Any]]:
    everything = np.arange(len(matrix.columns))
    rows = max(1, MAX_BLOCK_BYTES // (8 * max(1, len(everything))))
    for first, last in pairwise([*range(0, stretch.rows, rows), stretch.rows]):
        cells = matrix.read(stretch.first + first, stretch.first + last)
        yield everything, work(stretch, slice(first, last), np.where(np.isnan(cells), MISSING, cells))


def _percentiles(bins: _Bins, percent: float) -> Values:
    """Return a percentile of each bin and column: it needs all values of a bin, so as many columns at once as MAX_BLOCK_BYTES hold."""
    matrix = bins.matrix
    values = np.full((bins.count, len(matrix.columns)), np.nan)
    edges = np.searchsorted(matrix.times, [*bins.times, matrix.end])
    for i, (first, last) in enumerate(pairwise(edges.tolist())):
        few = max(1, MAX_BLOCK_BYTES // (8 * max(1, last - first)))
        for left in range(0, len(matrix.columns), few):
            columns = np.arange(left, min(left + few, len(matrix.columns)))
            values[i, columns] = _percentile(matrix.read(first, last, columns), percent)
    return values


def _percentile(cells: Values, percent: float) -> Values:
    """Return a percentile of each column of cells, NaN where missing: that of numpy.nanpercentile, which loops over columns in Python."""
    cells.sort(axis=0)
    counts = (~np.isnan(cells)).sum(axis=0)
    if not len(cells):
        return np.full(cells.shape[1], np.nan)
    places = np.maximum(counts - 1, 0) * percent / 100
    low = np.floor(places).astype(np.intp)
    columns = np.arange(cells.shape[1])
    below, above = cells[low, columns], cells[np.minimum(low + 1, np.maximum(counts - 1, 0)), columns]
    result: Values = below + (above - below) * (places - low)
    return result


def _over_columns(matrix: Stitched, how: str, percent: float | None) -> Values:
    count = len(matrix.columns)
    result = np.full(matrix.rows, {"count": 0.0, "missing": float(count)}.get(how, np.nan))
    for block in matrix.blocks():
        cells = block.values
        known = ~np.isnan(cells)
        counts = known.sum(axis=1)
        if percent is not None:
            found = _percentile(cells.T.copy(), percent)
        elif how in ("count", "missing"):
            found = (counts if how == "count" else count - counts).astype(np.float64)
        elif how in ("max", "min"):
            found = getattr(np, f"f{how}").reduce(cells, axis=1)
        else:
            sums = np.where(known, cells, 0.0).sum(axis=1)
            found = np.where(counts > 0, sums / (np.maximum(counts, 1) if how == "mean" else 1), np.nan)
        result[block.first : block.first + len(found)] = found
    return result
