"""What a sealed file keeps of a counter's raw samples: i8[3, n], the row, column and value of n of them.

Of each column both guards, the first sample, the first nonzero and the last one: what the cells at the neighbouring days' seams are made
of, and what a live file's span says. And each sample that does not follow from those before it and the cells: that closes none, as where
the counter falls, or closes one with the difference to another base. So all others do (restore_raw), and nothing of raw is lost.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.tts.counters.deltas import CLOSING
from tokiod.tts.schema import ABSENT, MISSING, NO_ROW, missing
from tokiod.tts.sealed.restore_raw import Sums

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokiod.tts.live.matrix import Matrix

EXACT = 2**53
"""Up to which every difference is a float64, and none is equal to one that it is not."""
_CELLS = 1 << 18
"""That are looked at at once."""


def edges(cells: Matrix, raw: Matrix, span: Matrix, order: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the edges of a live file's raw, and for each sealed column whether its other samples follow from them and its cells.

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
    """Put the edges that lie in rows [start, start + len(block)) of raw into a block of it."""
    row, column, value = edges[:, (edges[0] >= start) & (edges[0] < start + len(block))]
    block[row - start, column] = value


def fill_span(edges: NDArray[np.int64], rows: int, block: NDArray[np.int64]) -> None:
    """Put into a block that is a whole span what the edges of `rows` rows of raw say: first nonzero sample, last one of the day."""
    row, column, value = edges
    nonzero, day = (row > 0) & (value != 0), (row > 0) & (row < rows - 1)
    first = np.full(block.shape[1], rows)
    np.minimum.at(first, column[nonzero], row[nonzero])
    block[0] = np.where(first < rows, first, NO_ROW)
    np.maximum.at(block[1], column[day], row[day])


def _first_samples(raw: Matrix, last: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row of each column's first sample of the day, -1 for none; last: that of the last one."""
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
    """Return rows and columns of the samples that don't follow from cells and those before them, and which columns have all samples.

    first: the rows of the first samples. A column in which a filled cell has no sample was opened up before, and not proved then.
    """
    sums, proved = Sums(np.where(first == NO_ROW, raw.rows, first)), np.ones(raw.width, np.bool_)
    found = [(np.empty(0, np.int64), np.empty(0, np.intp))]
    short, before = np.zeros(raw.width, np.int64), raw.read(1, 2)[0]
    for begin, stop in _blocks(raw):
        row, samples = np.arange(begin, stop)[:, np.newaxis], raw.read(begin, stop)
        closed, block = max(begin, CLOSING), np.full((stop - begin, raw.width), MISSING)
        block[closed - begin :] = cells.read(closed - CLOSING, stop - CLOSING)
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
    tall = max(1, _CELLS // raw.width)
    for begin in range(1, raw.rows - 1, tall):
        yield begin, min(begin + tall, raw.rows - 1)


# Nearly always so, and told in a tenth of the time.
def _are_sums(samples: NDArray[np.int64], cells: NDArray[np.float64], before: NDArray[np.int64]) -> bool:
    """Whether each sample is the one before it and its cell; before: those before the first row."""
    if (before == ABSENT).any() or missing(cells).any() or (samples == ABSENT).any():
        return False
    steps = np.diff(samples, axis=0, prepend=before[np.newaxis])
    return bool((steps == cells).all() and steps.max(initial=0) <= EXACT)


def _latest(values: NDArray[np.int64], known: NDArray[np.bool_], before: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each row the latest known value above it, and that of all rows; before: what is known above the first."""
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
