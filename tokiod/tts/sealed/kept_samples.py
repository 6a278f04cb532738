"""The raw samples that a sealed file keeps for a counter: i8[3, n], the row, column and value of n samples.

A column keeps both guards and its first, first nonzero and last sample: the neighbouring days' cells and the span of a live file depend
on them. It also keeps each sample that can't be computed from earlier samples and the cells: a sample that closes no cell, as after a
fall, or whose cell is the difference to another base. All other samples can be computed (restore_raw), so no raw sample is lost.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.tts.counters.deltas import FIRST_CLOSING_ROW
from tokiod.tts.schema import ABSENT, MISSING, NO_ROW, missing
from tokiod.tts.sealed.restore_raw import CellSums

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokiod.tts.live.matrix import Matrix

MAX_EXACT_DIFFERENCE = 2**53
"""float64 represents every integer up to this exactly, so a cell of at most this size determines its difference."""
BLOCK_CELLS = 1 << 18
"""Cells compared at once."""


def edges(cells: Matrix, raw: Matrix, span: Matrix, order: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the kept samples of a live file's raw, and for each sealed column whether they and the cells determine all other samples.

    order: the live column of each sealed one.
    """
    first_nonzero, last = span.read(0, 2)
    guard, first = np.zeros(raw.width, np.int64), _first_samples(raw, last)
    row = np.concatenate([guard, first, first_nonzero, last, guard + raw.rows - 1])
    column = np.tile(np.arange(raw.width), len(row) // raw.width)
    rows, columns, proved = _not_in_cells(cells, raw, first)
    row, column = np.concatenate([row, rows]), np.concatenate([column, columns])
    place = np.unique((row * raw.width + np.argsort(order)[column])[row != NO_ROW])
    row, column = np.divmod(place, raw.width)
    value = _values(raw, row, order[column])
    return np.stack([row, column, value])[:, value != ABSENT], proved[order]


def fill_raw(edges: NDArray[np.int64], start: int, block: NDArray[np.int64]) -> None:
    """Put the kept samples of rows [start, start + len(block)) of raw into a block of these rows."""
    row, column, value = edges[:, (edges[0] >= start) & (edges[0] < start + len(block))]
    block[row - start, column] = value


def fill_span(edges: NDArray[np.int64], rows: int, block: NDArray[np.int64]) -> None:
    """Fill a block that is a whole span from the kept samples of `rows` rows of raw: first nonzero and last sample of the day."""
    row, column, value = edges
    nonzero, day = (row > 0) & (value != 0), (row > 0) & (row < rows - 1)
    first = np.full(block.shape[1], rows)
    np.minimum.at(first, column[nonzero], row[nonzero])
    block[0] = np.where(first < rows, first, NO_ROW)
    np.maximum.at(block[1], column[day], row[day])


def _first_samples(raw: Matrix, last: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row of each column's first sample of the day, NO_ROW without one; last: the row of the last one."""
    first = np.full(raw.width, NO_ROW)
    sought = last != NO_ROW
    for start, stop in _blocks(raw):
        if not sought.any():
            break
        present = raw.read(start, stop) != ABSENT
        found = sought & present.any(axis=0)
        first[found] = start + present[:, found].argmax(axis=0)
        sought &= ~found
    return first


def _not_in_cells(cells: Matrix, raw: Matrix, first: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.intp], NDArray[np.bool_]]:
    """Return rows and columns of samples that earlier samples and the cells do not determine, and which columns have all samples.

    first: the rows of the first samples. A column with a filled cell without a sample was unsealed before, and is not proved.
    """
    sums, proved = CellSums(np.where(first == NO_ROW, raw.rows, first)), np.ones(raw.width, np.bool_)
    found = [(np.empty(0, np.int64), np.empty(0, np.intp))]
    short, before = np.zeros(raw.width, np.int64), raw.read(1, 2)[0]
    for begin, stop in _blocks(raw):
        row, samples = np.arange(begin, stop)[:, np.newaxis], raw.read(begin, stop)
        closed, block = max(begin, FIRST_CLOSING_ROW), np.full((stop - begin, raw.width), MISSING)
        block[closed - begin :] = cells.read(closed - FIRST_CLOSING_ROW, stop - FIRST_CLOSING_ROW)
        if _are_sums(samples[closed - begin :], block[closed - begin :], before):
            short, before = samples[-1] - sums.so_far, samples[-1]
            continue
        before = samples[-1]
        filled, added = sums.next(row, block)
        present = samples != ABSENT
        proved &= ~(filled & ~present).any(axis=0)
        above, short = _latest(samples - added, present, short)
        here, column = np.nonzero(present & (row > first) & (~filled | (samples - added != above)))
        found.append((here + begin, column))
    rows, columns = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return rows, columns, proved


def _blocks(raw: Matrix) -> Iterator[tuple[int, int]]:
    """Yield the rows [begin, stop) of the day in blocks."""
    tall = max(1, BLOCK_CELLS // raw.width)
    for begin in range(1, raw.rows - 1, tall):
        yield begin, min(begin + tall, raw.rows - 1)


# The usual case, decided in a tenth of the time.
def _are_sums(samples: NDArray[np.int64], cells: NDArray[np.float64], before: NDArray[np.int64]) -> bool:
    """Whether each sample is the sum of the sample before it and its cell; before: the samples before the first row."""
    if (before == ABSENT).any() or missing(cells).any() or (samples == ABSENT).any():
        return False
    steps = np.diff(samples, axis=0, prepend=before[np.newaxis])
    return bool((steps == cells).all() and steps.max(initial=0) <= MAX_EXACT_DIFFERENCE)


def _latest(values: NDArray[np.int64], known: NDArray[np.bool_], before: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each row the latest known value of earlier rows, and that of all rows; before: the values before the first row."""
    every = np.concatenate([before[np.newaxis], values])
    place = np.where(known, np.arange(1, len(every))[:, np.newaxis], 0)
    place = np.maximum.accumulate(np.concatenate([np.zeros_like(place[:1]), place]), axis=0)
    found = np.take_along_axis(every, place, axis=0)
    return found[:-1], found[-1]


def _values(raw: Matrix, row: NDArray[np.int64], column: NDArray[np.intp]) -> NDArray[Any]:
    """Return samples; row: ascending."""
    value = np.empty(len(row), np.int64)
    turns = np.flatnonzero(np.diff(row, prepend=NO_ROW, append=NO_ROW)).tolist()
    for start, stop in pairwise(turns):
        value[start:stop] = raw.read(int(row[start]), int(row[start]) + 1)[0, column[start:stop]]
    return value
