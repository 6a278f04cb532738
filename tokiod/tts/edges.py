"""What a sealed file keeps of a counter's raw samples: i8[3, n], the row, column and value of n of them.

Of each column both guards, the first sample, the first nonzero and the last one: what the cells at the neighbouring days' seams are made
of, and what a live file's span says. Where the last one is a passing dip or a zero, also the one that the next difference is taken from,
and the one before that lets it be believed: the next day's first sample may come again after the file was opened up again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.tts.deltas import Deltas, anchored
from tokiod.tts.schema import ABSENT, NO_ROW

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.tts.matrix import Matrix

_ROWS = 1024
_NEAR, _FARTHER = 6, 4
"""Rows at the end of the day that are looked at first for an anchor, and how many times as many next."""


def edges(raw: Matrix, span: Matrix, order: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return the edges of a live file's raw; order: the live column of each sealed one."""
    first_nonzero, last = span.read(0, 2)
    column = np.arange(raw.width)
    guard = np.zeros(raw.width, np.int64)
    row = np.concatenate([guard, _first_samples(raw, last), first_nonzero, last, *_bases(raw, first_nonzero, last), guard + raw.rows - 1])
    place = np.unique((row * raw.width + np.tile(np.argsort(order), len(row) // raw.width))[row != NO_ROW])
    row, column = np.divmod(place, raw.width)
    value = _values(raw, row, order[column])
    return np.stack([row, column, value])[:, value != ABSENT]


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
    for start in range(1, raw.rows - 1, _ROWS):
        if not sought.any():
            break
        present = raw.read(start, min(start + _ROWS, raw.rows - 1)) != ABSENT
        found = sought & present.any(axis=0)
        first[found] = start + present[:, found].argmax(axis=0)
        sought &= ~found
    return first


def _bases(raw: Matrix, first_nonzero: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of the samples that make the base at the day's end, i8[2, columns]: NO_ROW where the last sample alone does."""
    rows = np.full((2, raw.width), NO_ROW)
    unsure = np.flatnonzero((first_nonzero != NO_ROW) & (last != NO_ROW))
    stop, near = int(last.max(initial=0)) + 1, _NEAR
    while len(unsure):
        start = max(stop - near, 1) if near <= _ROWS else 1
        sure = anchored(raw.read(start, stop)[:, unsure]) if start > 1 else np.ones(len(unsure), bool)
        if sure.any():
            rows[:, unsure[sure]] = _walked(raw, start, stop, unsure[sure])
        unsure, near = unsure[~sure], near * _FARTHER
    return rows


def _walked(raw: Matrix, start: int, stop: int, columns: NDArray[np.intp]) -> NDArray[np.int64]:
    """Pass over rows [start, stop) as the rule does; return the rows of base and of what it rose from, where the last sample isn't it."""
    state = Deltas(np.full(len(columns), ABSENT))
    base, risen_from = np.full((2, len(columns)), NO_ROW)
    for top in range(start, stop, _ROWS):
        for row, value in enumerate(raw.read(top, min(top + _ROWS, stop))[:, columns], top):
            state.feed(value[np.newaxis])
            taken = (value > 0) & (state.base == value)
            risen_from = np.where(taken, np.where(state.trusted, base, NO_ROW), risen_from)
            base = np.where(taken, row, base)
    return np.where(state.base == state.last, NO_ROW, np.stack([base, risen_from]))


def _values(raw: Matrix, row: NDArray[np.int64], column: NDArray[np.intp]) -> NDArray[Any]:
    value = np.empty(len(row), np.int64)
    for one in np.unique(row):
        here = row == one
        value[here] = raw.read(one, one + 1)[0, column[here]]
    return value
