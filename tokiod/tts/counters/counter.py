"""Store samples of a counter in a live file and keep its cells correct, at a cost proportional to the update."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tokiod.tts.counters.affected_rows import EmptyRun, Update
from tokiod.tts.counters.cell_writer import CellWriter, Changes, grid
from tokiod.tts.counters.deltas import FIRST_CLOSING_ROW, SLAB_ROWS, Deltas, anchored
from tokiod.tts.counters.monotonic import appended_span, appended_steps, inserted_steps, is_append
from tokiod.tts.counters.sealed_evidence import Evidence
from tokiod.tts.schema import ABSENT, MISSING, NO_ROW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokiod.tts.live.matrix import Matrix

    Plain = tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]

T = TypeVar("T", bound=np.generic)

FIRST_READ_ROWS, READ_GROWTH = 6, 4
"""Rows next to an update that are read first, and the factor by which more are read until the state of every column is known."""


class Counter:
    """One counter dataset of a live file: its raw samples, where they begin and end in each column, and its cells.

    cells: f8 [N, columns]. raw: i8 [N + 2, columns], rows as in counters.deltas. span: i8 [2, columns], per column the raw row of the
    first nonzero sample in rows 1 to N + 1 and of the last sample in rows 1 to N, NO_ROW without one. keep: an earlier sealing
    dropped raw samples, so a filled cell is never emptied for want of samples, nor replaced without Evidence.

    An update recomputes from rows before it that determine the state of the rule (an anchor, or only zeros before) to an anchor after it
    that does not depend on it, or to the last sample. It compares the result with the cells in the file and not with the old raw,
    because a kill may have come between raw and cells. span avoids the search where there is no anchor: in columns without a nonzero
    sample, and after the last sample.

    Why it survives any kill and any loss of unsynced writes: span, raw and cells are written in this order, all by assignment, and an
    update is acknowledged only when all three are synced, so after a crash it is sent again. After a kill, span covers at least the
    samples in raw. After a power loss it may not: raw then holds samples that span does not cover, and other updates that are applied
    first treat them as absent. But each such sample belongs to an update that will be sent again, and that recomputes all cells from its
    first row to an anchor, or, in a column without a nonzero sample, to a sample, after its last: the cells in which the others erred.
    """

    def __init__(self, cells: Matrix, raw: Matrix, span: Matrix, *, keep: bool = False) -> None:
        self._cells = cells
        self._raw = raw
        self._span = span
        self._keep = keep
        self._writer = CellWriter(cells, keep=keep)
        self._empty = EmptyRun()
        self.last_row = raw.rows - 1

    def store(self, row: NDArray[np.int64], column: NDArray[np.integer], value: NDArray[np.int64], *, compare: bool = True) -> Changes:
        """Assign samples by raw row and column, recompute and write the cells they can affect, and return those that changed.

        row 0 and last_row are the guards. Samples may come in any order, late, twice, or in place of others; values are 0 or more.
        Without compare, no changes are returned and cells are written without reading the old ones (if raw is complete).
        """
        if not len(row):
            return Changes.joined([])
        return self._store(self._span.read(0, 2), row, column, value, compare=compare)

    def store_rows(self, first: int, block: NDArray[np.int64], *, compare: bool = True) -> Changes:
        """Store whole rows of raw from row `first` on, i8[rows, columns]; cheap where no counter falls."""
        if not len(block):
            return Changes.joined([])
        span, stop = self._span.read(0, 2), first + len(block)
        steps, span_after = self._rising(span, first, block)
        if steps is None:
            row, column = grid(*block.shape)
            return self._store(span, row + first, column, block.ravel(), compare=compare)
        if span_after is not None:
            self._span.write_rows(0, span_after)
        self._empty.shrink(first, stop)
        self._raw.write_rows(first, block)
        cells = steps.astype(np.float64)
        top = first - FIRST_CLOSING_ROW
        return self._writer.write_rows(top, cells, compare=compare)

    def _rising(self, span: NDArray[np.int64], first: int, block: NDArray[np.int64]) -> Plain:
        """Return the differences of whole rows if they are plain ones, and span if it changes."""
        if self._keep:
            return None, None  # with dropped samples, differences need Evidence
        if not is_append(span, first, first + len(block), self.last_row):
            return inserted_steps(span, self._raw, first, block), None
        steps = appended_steps(span, self._raw, first, block)
        return steps, None if steps is None else appended_span(span, first, block)

    def _store(
        self, span: NDArray[np.int64], row: NDArray[np.int64], column: NDArray[np.integer], value: NDArray[np.int64], *, compare: bool
    ) -> Changes:
        update = Update(span, self.last_row, row, column, value)
        if (update.span != span).any():
            self._span.write_rows(0, update.span)
        self._empty.shrink(update.start, update.stop)
        self._raw.assign(row, column, value)
        return Changes.joined([self._writer.write(top, columns, cells, compare=compare) for top, columns, cells in self._compute(update)])

    def last_samples(self) -> NDArray[np.int64]:
        """Return each column's last sample of the day, i8[columns], ABSENT without one."""
        last: NDArray[np.int64] = self._span.read(1, 2)[0]
        samples = np.full_like(last, ABSENT)
        for row in np.unique(last[last != NO_ROW]).tolist():
            here = last == row
            samples[here] = self._raw.read(row, row + 1)[0, here]
        return samples

    def _compute(self, update: Update) -> Iterator[tuple[int, NDArray[np.intp], NDArray[np.float64]]]:
        """Yield (first row of the day, columns, cells) of all cells that the update can affect."""
        columns = update.columns
        before, after = (self._raw.read(row, row + 1)[:, columns] for row in (0, self.last_row))
        begin, end = self._begin(update, after[0]), self._end(update, after[0])
        deltas, evidence = Deltas(before[0]), self._evidence(update, before[0], begin)
        for piece in self._empty.outside(begin, end):
            if piece[0] > begin:
                deltas.gap()
                if evidence:
                    evidence.gap(self._empty.start, piece[0])
            for start in range(*piece, SLAB_ROWS):
                stop = min(start + SLAB_ROWS, piece[1])
                raw = self._choose(self._raw.read(start, stop), columns)
                cells = deltas.feed(raw)
                if evidence:
                    cells[~evidence.supported(start, raw)] = MISSING
                first = max(start, update.start, FIRST_CLOSING_ROW)
                if first < stop:
                    yield first - FIRST_CLOSING_ROW, columns, cells[first - start :]
        closed = np.flatnonzero((update.last < end) & (after[0] != ABSENT))
        if len(closed):
            deltas.end_of_day(update.last != NO_ROW)
            yield self.last_row - FIRST_CLOSING_ROW, columns[closed], deltas.feed(after)[:, closed]

    def _evidence(self, update: Update, before: NDArray[np.int64], begin: int) -> Evidence | None:
        if not self._keep:
            return None
        evidence = Evidence(self._cells, update.columns, before, FIRST_CLOSING_ROW)
        evidence.begin(begin, update.new)
        return evidence

    def _begin(self, update: Update, after: NDArray[np.int64]) -> int:
        """Return the row from which the rule, started with an empty state, reaches the right state before the update's first row."""
        begin, near = update.start, FIRST_READ_ROWS
        idle = update.idle & (after <= 0)
        unsure = np.flatnonzero(~update.new)
        while begin > 1 and len(unsure):
            begin, near = max(self._empty.before(update.start, near), 1), near * READ_GROWTH
            raw = self._choose(self._look(begin, update.start)[1], update.columns[unsure])
            sampled = raw.max(axis=0, initial=ABSENT) >= 0
            unsure = unsure[~(sampled & (idle[unsure] | (update.first[unsure] >= begin) | anchored(raw)))]
        return begin

    def _end(self, update: Update, after: NDArray[np.int64]) -> int:
        """Return the row from which on no cell depends on the update: anchors, or the last nonzero samples, lie before it."""
        end, near, needed = update.stop, FIRST_READ_ROWS, update.stop
        unsure = np.flatnonzero(update.last >= end)
        while len(unsure):
            end, near = min(self._empty.after(update.stop, near), update.end), near * READ_GROWTH
            row, block = self._look(update.stop, end)
            raw = self._choose(block, update.columns[unsure])
            unmoved = (raw.max(axis=0, initial=ABSENT) >= 0) & (update.first[unsure] >= end)
            sure = unmoved | (update.last[unsure] < end) | anchored(raw)
            if end == update.end:
                return max(needed, int(_after_last_fall(row, raw, after[unsure] <= 0, end).max()))
            needed = end if sure.any() else needed
            unsure = unsure[~sure]
        return needed

    def _look(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers and samples of the rows [start, stop) outside the empty run, and widen the run."""
        pieces = self._empty.outside(start, stop)
        row = np.concatenate([np.arange(*piece) for piece in pieces])
        raw = np.concatenate([self._raw.read(*piece) for piece in pieces])
        if stop - start > FIRST_READ_ROWS:
            self._empty.widen(start, row[raw.max(axis=1) >= 0], stop)
        return row, raw

    def _choose(self, block: NDArray[T], columns: NDArray[np.intp]) -> NDArray[T]:
        return block if len(columns) == self._raw.width else block[:, columns]


# A counter that fell to zero and stayed there: after its first zero all cells are zero or missing, whatever the base is. Without this,
# every late sample from before the failover of an idle target would recompute to the end of the day.
def _after_last_fall(row: NDArray[np.int64], raw: NDArray[np.int64], ends_at_zero: NDArray[np.bool_], end: int) -> NDArray[np.int64]:
    """Return for each column of the day's last rows the row after the zero that begins its final zeros; end without one."""
    after = np.arange(len(row))[:, np.newaxis] > np.where(raw > 0, np.arange(len(row))[:, np.newaxis], -1).max(axis=0, initial=-1)
    zero = after & (raw == 0)
    found = np.full(raw.shape[1], end)
    known = np.flatnonzero(ends_at_zero & zero.any(axis=0))
    if len(known):  # there may be no row at all after a power loss between span and raw
        found[known] = row[zero[:, known].argmax(axis=0)] + 1
    return found
