"""Lines: one column of a dataset as doubles, or all columns of one or several datasets together, and why cells are missing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokiod.web.matrix import Reason, strips
from tokiod.web.refusal import BAD_PARAMETER, UNKNOWN_COLUMN, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tokiod.reader.stitched import Stitched
    from tokiod.web.absence import Absence


class Line(msgspec.Struct, frozen=True):
    """One column, or the sum over all or the largest of them. start: UTC epoch seconds of the first value; seconds: between two.

    column: empty for all; values: the largest of their rows, None without one; missing: how many cells of each have no value; flags: of
    these cells, as in a picture: 1 missing, 2 lost, 4 not due yet, added; why: spans that are not stored.
    """

    column: str
    units: str
    start: int
    seconds: int
    values: list[float | None]
    missing: list[int]
    flags: list[int]
    why: list[Reason]


class Point(msgspec.Struct, frozen=True):
    """A value of a line. time: UTC epoch milliseconds, as charts of the web have them; missing: how many cells have no value.

    flags: of these cells, as in a picture: 1 missing, 2 lost, 4 not due yet, added.
    """

    time: int
    value: float | None
    missing: int
    flags: int


def line_of(
    parts: Sequence[tuple[Stitched, Absence]], is_counter: Callable[[Stitched], bool], column: str, across: str, width: int
) -> Line:
    """Return the line of a column, or of all columns, of one dataset or of the sum of several ones with the same rows, target by target.

    parts: the datasets, each with why its cells are missing; is_counter: whether a dataset holds counters; across: how the columns of a row
    become one value, sum or max; width: the most values. Raises Refused.
    """
    _check_same_rows([matrix for matrix, _ in parts])
    first = parts[0][0]
    for matrix, _ in parts:
        if column and column not in matrix.places:
            raise Refused(UNKNOWN_COLUMN, f"{matrix.dataset} has no column {column} in the span", "column")
    names = (column,) if column else tuple(dict.fromkeys(name for matrix, _ in parts for name in matrix.columns))
    values, lacking = _combined([matrix for matrix, _ in parts], names, across)
    missing, flags = lacking.sum(axis=0), np.zeros(first.rows, np.uint8)
    for (matrix, absence), here in zip(parts, lacking, strict=True):
        if here.any():
            flags |= absence.flags(matrix.times, matrix.step, is_counter=is_counter(matrix)) * (here > 0)
    rows_per_value = -(-first.rows // width)
    edges = np.arange(0, first.rows, rows_per_value)
    return Line(
        column,
        first.units,
        first.start,
        rows_per_value * first.step,
        [None if math.isnan(value) else value for value in np.fmax.reduceat(values, edges).tolist()],
        np.add.reduceat(missing, edges).tolist(),
        np.bitwise_or.reduceat(flags, edges).tolist(),
        list(dict.fromkeys(reason for _, absence in parts for reason in absence.why)),
    )


def points_of(line: Line) -> list[Point]:
    """Return a line as points."""
    times = range(line.start * 1000, (line.start + line.seconds * len(line.values)) * 1000, line.seconds * 1000)
    return [Point(*one) for one in zip(times, line.values, line.missing, line.flags, strict=True)]


def _combined(matrices: Sequence[Stitched], names: tuple[str, ...], across: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return f8[rows], and i8[datasets, rows], how many of these columns have no value in each dataset.

    A value is the sum or the largest of the columns that have one, each added over the datasets, NaN in a row without any.
    """
    rows = matrices[0].rows
    found, lacking = np.full(rows, np.nan), np.zeros((len(matrices), rows), np.int64)
    unknown = [sum(name not in matrix.places for name in names) for matrix in matrices]
    for first, last in strips(matrices[0]) if len(names) > 1 else [(0, rows)]:
        cells = np.empty((0, 0))
        for number, matrix in enumerate(matrices):
            values = _cells(matrix, names, first, last)
            is_missing = np.isnan(values)
            lacking[number, first:last] = is_missing.sum(axis=1) - unknown[number]
            cells = np.where(is_missing, cells, values + np.nan_to_num(cells)) if number else values
        is_missing = np.isnan(cells)
        combined = np.fmax.reduce(cells, axis=1) if across == "max" else np.where(is_missing, 0.0, cells).sum(axis=1)
        found[first:last] = np.where(is_missing.all(axis=1), np.nan, combined)
    return found, lacking


def _cells(matrix: Stitched, names: tuple[str, ...], first: int, last: int) -> NDArray[np.float64]:
    """Return rows [first, last) of named columns f8[rows, names], NaN where missing and in columns that the dataset does not have."""
    if matrix.columns == names:
        return matrix.read(first, last)
    places = np.array([matrix.places.get(name, -1) for name in names], np.intp)
    values = np.full((last - first, len(names)), np.nan)
    values[:, places >= 0] = matrix.read(first, last, places[places >= 0])
    return values


def _check_same_rows(matrices: Sequence[Stitched]) -> None:
    if len({(matrix.start, matrix.step, matrix.rows, matrix.units) for matrix in matrices}) > 1:
        raise Refused(BAD_PARAMETER, "dataset: these have other rows or units than the first", "dataset")
