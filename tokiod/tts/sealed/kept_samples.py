"""The raw samples that a sealed file keeps for a counter: i8[3, n], the row, column and value of n samples.

Rows count from the day's start; row N is the next day's first one. A column keeps the sample of row N and its first, first nonzero and
last sample of the day: the neighbouring days' cells and the span of a live file depend on them. It also keeps each sample that can't be
computed from earlier samples and the cells: a sample that closes no cell, as after a fall, or whose cell is the difference to another
base. All other samples can be computed (restore_raw), so no raw sample is lost.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.tts.schema import ABSENT, MISSING, NO_ROW, missing
from tokiod.tts.sealed.restore_raw import DETERMINED, KEPT, CellSums

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokiod.tts.live.live_file import LiveFile
    from tokiod.tts.live.matrix import Matrix

    Int = NDArray[np.int64]

MAX_EXACT_DIFFERENCE = 2**53
"""float64 represents every integer up to this exactly, so a cell of at most this size determines its difference."""
BLOCK_CELLS = 1 << 18
"""Cells compared at once."""


def kept_samples(live: LiveFile, dataset: str, order: NDArray[np.intp]) -> tuple[Int, NDArray[np.uint8]]:
    """Return the kept samples of a live file's counter, and for each sealed column what is known of the others (restore_raw).

    order: the live column of each sealed one.
    """
    raw = live.raw[dataset]
    first, first_nonzero, last = _first_samples(raw, live.span[dataset].read(0, 2))
    row = np.concatenate([first, first_nonzero, last, np.full(raw.width, raw.rows - 1)])
    column = np.tile(np.arange(raw.width), len(row) // raw.width)
    rows, columns, proved = _not_in_cells(live.cells[dataset], raw, first)
    kept = np.where(proved, DETERMINED, KEPT).astype(np.uint8)
    every = _all_samples(raw, np.flatnonzero(kept != DETERMINED))
    row, column = np.concatenate([row, rows, every[0]]), np.concatenate([column, columns, every[1]])
    place = np.sort((row * raw.width + np.argsort(order)[column])[row != NO_ROW])
    place = place[np.diff(place, prepend=-1) != 0]  # np.unique() would import numpy.ma: 15 ms
    row, column = np.divmod(place, raw.width)
    value = _values(raw, row, order[column])
    return np.stack([row, column, value])[:, value != ABSENT], kept[order]


def fill_raw(kept: Int, start: int, block: Int) -> None:
    """Put the kept samples of rows [start, start + len(block)) of raw into a block of these rows."""
    row, column, value = kept[:, (kept[0] >= start) & (kept[0] < start + len(block))]
    block[row - start, column] = value


def span_of(kept: Int, rows: int, width: int) -> Int:
    """Return the span of a live file, i8[2, width], from the kept samples of a day of `rows` rows: first nonzero and last sample."""
    row, column, value = kept[:, kept[0] < rows]
    nonzero = value != 0
    first, last = np.full(width, rows), np.full(width, NO_ROW)
    np.minimum.at(first, column[nonzero], row[nonzero])
    np.maximum.at(last, column, row)
    return np.stack([np.where(first < rows, first, NO_ROW), last])


def _first_samples(raw: Matrix, span: Int) -> tuple[Int, Int, Int]:
    """Return the rows of each column's first, first nonzero and last sample of the day, NO_ROW without one.

    The span's first row may hold another sample by now, and a kill may have left its last row ahead of the samples. So the search does not
    end at them.
    """
    first, nonzero = np.full(raw.width, NO_ROW), np.full(raw.width, NO_ROW)
    for start, stop in _blocks(raw):
        wanted = (span[1] != NO_ROW) & ((first == NO_ROW) | ((span[0] != NO_ROW) & (nonzero == NO_ROW)))
        if not wanted.any():
            break
        samples = raw.read(start, stop)
        for found, present in ((first, samples != ABSENT), (nonzero, samples > 0)):
            new = (found == NO_ROW) & present.any(axis=0)
            found[new] = start + present[:, new].argmax(axis=0)
    return first, nonzero, _last_samples(raw, span[1])


def _last_samples(raw: Matrix, latest: Int) -> Int:
    """Return the rows of each column's last sample up to its latest row, NO_ROW without one."""
    last = np.full(raw.width, NO_ROW)
    for start, stop in reversed(list(_blocks(raw))):
        wanted = (last == NO_ROW) & (latest >= start)
        if wanted.any():
            row = np.arange(start, stop)[:, np.newaxis]
            found = np.where((raw.read(start, stop) != ABSENT) & (row <= latest), row, NO_ROW).max(axis=0)
            last[wanted] = found[wanted]
    return last


def _not_in_cells(cells: Matrix, raw: Matrix, first: Int) -> tuple[Int, NDArray[np.intp], NDArray[np.bool_]]:
    """Return rows and columns of samples that earlier samples and the cells do not determine, and which columns have all samples.

    first: the rows of the first samples. A column with a filled cell without a sample was unsealed before, and is not proved.
    """
    sums, proved = CellSums(np.where(first == NO_ROW, raw.rows, first)), np.ones(raw.width, np.bool_)
    found = [(np.empty(0, np.int64), np.empty(0, np.intp))]
    short, before = np.zeros(raw.width, np.int64), raw.read(0, 1)[0]
    for begin, stop in _blocks(raw):
        row, samples = np.arange(begin, stop)[:, np.newaxis], raw.read(begin, stop)
        closed, block = max(begin, 1), np.full((stop - begin, raw.width), MISSING)
        block[closed - begin :] = cells.read(closed - 1, stop - 1)
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


def _all_samples(raw: Matrix, columns: NDArray[np.intp]) -> tuple[Int, NDArray[np.intp]]:
    """Return rows and columns of all samples of some columns."""
    found = [(np.empty(0, np.int64), np.empty(0, np.intp))]
    for begin, stop in _blocks(raw) if len(columns) else ():
        row, place = np.nonzero(raw.read(begin, stop)[:, columns] != ABSENT)
        found.append((row + begin, columns[place]))
    rows, which = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return rows, which


def _blocks(raw: Matrix) -> Iterator[tuple[int, int]]:
    """Yield the rows [begin, stop) of the day in blocks."""
    tall = max(1, BLOCK_CELLS // raw.width)
    for begin in range(0, raw.rows - 1, tall):
        yield begin, min(begin + tall, raw.rows - 1)


# The usual case, decided in a tenth of the time.
def _are_sums(samples: Int, cells: NDArray[np.float64], before: Int) -> bool:
    """Whether each sample is the sum of the sample before it and its cell; before: the samples before the first row."""
    if (before == ABSENT).any() or missing(cells).any() or (samples == ABSENT).any():
        return False
    steps = np.diff(samples, axis=0, prepend=before[np.newaxis])
    return bool((steps == cells).all() and steps.max(initial=0) <= MAX_EXACT_DIFFERENCE)


def _latest(values: Int, known: NDArray[np.bool_], before: Int) -> tuple[Int, Int]:
    """Return for each row the latest known value of earlier rows, and that of all rows; before: the values before the first row."""
    every = np.concatenate([before[np.newaxis], values])
    place = np.where(known, np.arange(1, len(every))[:, np.newaxis], 0)
    place = np.maximum.accumulate(np.concatenate([np.zeros_like(place[:1]), place]), axis=0)
    found = np.take_along_axis(every, place, axis=0)
    return found[:-1], found[-1]


def _values(raw: Matrix, row: Int, column: NDArray[np.intp]) -> NDArray[Any]:
    """Return samples; row: ascending."""
    value = np.empty(len(row), np.int64)
    turns = np.flatnonzero(np.diff(row, prepend=NO_ROW, append=NO_ROW)).tolist()
    for start, stop in pairwise(turns):
        value[start:stop] = raw.read(int(row[start]), int(row[start]) + 1)[0, column[start:stop]]
    return value
