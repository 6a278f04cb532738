"""Store samples of a counter in a live file and keep its cells correct by the rule that crosses midnight (difference_rule).

Rows count from the day's start:

    raw row 0 .. N - 1    the samples in the day's rows
    raw row N             the sample in row 0 of the next day, which closes the day's last cell
    begin                 the state of the rule before row 0, from the day before

The sample in row 0 closes the last cell of the day before, in another file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from tokiod.tts.counters.affected_rows import EmptyRun
from tokiod.tts.counters.cell_writer import CellWriter, Changes, grid
from tokiod.tts.counters.difference_rule import SLAB_ROWS, ZERO_ROW, Differences, Rule, is_anchored, within_reach
from tokiod.tts.schema import ABSENT, NO_ROW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokiod.tts.live.live_file import LiveFile
    from tokiod.tts.live.matrix import Matrix

    Int = NDArray[np.int64]
    Columns = NDArray[np.intp]

T = TypeVar("T", bound=np.generic)

FIRST_READ_ROWS, READ_GROWTH = 6, 4
"""Rows next to an update that are read first, and the factor by which more are read until the state of every column is known."""
NEVER = int(np.iinfo(np.int64).max)
"""The row of the first nonzero sample of a column that has none."""


class _Update(msgspec.Struct, frozen=True, eq=False):
    """The rows [start, stop) of the day that an update touches, and its columns, ascending; the rest is per touched column.

    first: the row of the first nonzero sample, with the update, NEVER without one; NO_ROW if the update may change the state before it.
    known: the row of the last sample before the update, NO_ROW without one. last: the row of the last sample with the update.
    """

    columns: Columns
    first: Int
    known: Int
    last: Int
    start: int
    stop: int


class DayCounter:
    """One counter dataset of a live file: its raw samples, where they begin and end in each column, its cells, and the state before them.

    cells: f8 [N, columns]. raw: i8 [N + 1, columns]. span: i8 [2, columns], per column the row of the first nonzero and of the last sample
    of the day, NO_ROW without one. begin: i8 [5, columns], a state of difference_rule. computed: takes the rows [first, stop) of
    cells that are computed, whether they change or not.

    The state after the last row is not in the file: it follows from raw and begin, is computed when it is first needed, and is kept with
    each update. Samples after all others are computed from it. Any other update recomputes from rows before it that determine the state
    (an anchor, only zeros, or the day's first row with begin) to rows after it whose cells can't depend on it (an anchor, or zeros in a
    column that never moved), or to the last sample. It compares the result with the cells in the file and not with the old raw, because a
    kill may have come between raw and cells. span avoids the search in columns without a nonzero sample, and after the last sample.

    Why it survives any kill and any loss of unsynced writes: span, raw and cells are written in this order, all by assignment, and an
    update is acknowledged only when all are synced, so after a crash it is sent again. After a kill, span covers at least the samples in
    raw. After a power loss it may not: raw then holds samples that span does not cover, and other updates that are applied first treat
    them as absent. But each such sample belongs to an update that will be sent again, and that recomputes all cells that it can affect.
    begin is written after the cells that follow from it; the first set_begin() after the file was opened must be a forced one, because
    after a power loss begin may be newer than these cells.
    """

    def __init__(  # noqa: PLR0913 - what a file holds
        self,
        cells: Matrix,
        raw: Matrix,
        span: Matrix,
        begin: Matrix,
        rule: Rule,
        *,
        computed: set[tuple[int, int]] | None = None,
    ) -> None:
        self._cells = cells
        self._raw = raw
        self._span = span
        self._begin = begin
        self._rule = rule
        self._computed = set() if computed is None else computed
        self._writer = CellWriter(cells)
        self._empty = EmptyRun()
        self._end: Int | None = None
        self._has_next: bool | None = None
        self.rows = cells.rows
        self.implausible = 0
        """How many of the samples that were stored made an implausible difference."""

    @classmethod
    def of(cls, file: LiveFile, dataset: str, computed: set[tuple[int, int]] | None = None) -> DayCounter:
        """Return a counter of a live file. One file may have several of it only while nothing is stored in it."""
        matrices = (file.cells[dataset], file.raw[dataset], file.span[dataset], file.begin[dataset])
        return cls(*matrices, file.spec.rule(dataset), computed=computed)

    def store(self, row: Int, column: NDArray[np.integer], value: Int, *, compare: bool = True) -> Changes:
        """Assign samples by raw row and column, recompute and write the cells they can affect, and return those that changed.

        Samples may come in any order, late, twice, or in place of others; values are 0 or more. Row N is that of the next day's sample.
        Without compare, no changes are returned and cells are written without reading the old ones (if raw is complete).
        """
        if not len(row):
            return Changes.joined([])
        end, own, at = self._end_state(), row < self.rows, column.astype(np.intp, copy=False)
        self._end = None  # until everything is written
        self._has_next = self._has_next if own.all() else None
        updates = self._cover(row[own], at[own], value[own])
        self._raw.assign(row, column, value)
        changes = []
        for update in updates:
            written, implausible = self._recompute(update, end, self._begin.read(0, 5), compare=compare)
            if implausible.size:
                self.implausible += int(np.isin(_keys(*implausible), _keys(row, at)).sum())
            changes += written
        self._end = end
        return Changes.joined(changes + self._close(self._distinct(at), compare=compare))

    def store_rows(self, first: int, block: Int, *, compare: bool = True) -> Changes:
        """Store whole rows of the day from row `first` on, i8[rows, columns] without absent samples; cheap after all other samples."""
        if not len(block):
            return Changes.joined([])
        span, stop = self._span.read(0, 2), first + len(block)
        if stop > self.rows or int(span[1].max()) >= first:
            if (steps := self._steps_between(span, first, block)) is not None:
                self._empty.shrink(first, stop)
                self._raw.write_rows(first, block)
                self._computed.add((first - 1, stop + 1))
                return self._writer.write_rows(first - 1, steps.astype(np.float64), compare=compare)
            row, column = grid(*block.shape)
            return self.store(row + first, column, block.ravel(), compare=compare)
        differences = Differences(self._end_state(), first, self._rule)
        self._end = None  # until everything is written
        self._cover_rows(span, first, block)
        self._raw.write_rows(first, block)
        cells, implausible = differences.feed(block)
        self.implausible += implausible.shape[1]
        top = max(first, 1)
        self._computed.add((top - 1, stop))
        changes = [self._writer.write_rows(top - 1, cells[top - first :], compare=compare)] if top < stop else []
        self._end = differences.state
        return Changes.joined(changes + self._close(np.arange(block.shape[1]), compare=compare))

    def _steps_between(self, span: Int, first: int, block: Int) -> Int | None:
        """Return the differences of whole rows from `first` on and of the two rows after them, all of them plain; None if any is not.

        They are plain if two rows before the block are so too, which determine the state, and two after it, which are an anchor and its
        predecessor: no cell after the anchor depends on the block. The anchor's own difference does: to rows that this block replaces its
        predecessor may have been a fall.
        """
        begin, end = first - 2, first + len(block) + 2
        if begin < 0 or int(span[1].min()) < end - 1 or int(span[0].min()) == NO_ROW or int(span[0].max()) > begin:
            return None
        rows = self._raw.read(begin, end)
        rows[2:-2] = block
        steps: Int = rows[1:] - rows[:-1]
        is_plain = rows[0].min() > 0 and rows[-1].min() > 0 and steps.view(np.uint64).max() <= self._rule.max_step
        return steps[1:] if is_plain else None

    def set_begin(self, columns: Columns, state: Int, *, force: bool = False, compare: bool = True) -> Changes:
        """Set the state before row 0 of some columns, ascending, i8[5, n]; recompute and write the cells that follow from it.

        force: recompute also where this is the stored state.
        """
        begin = self._begin.read(0, 5)
        differs = (begin[:, columns] != state).any(axis=0)
        chosen = np.flatnonzero(differs | force)
        columns, state = columns[chosen], state[:, chosen]
        if not len(columns):
            return Changes.joined([])
        end, span = self._end_state(), self._span.read(0, 2)
        self._end = None  # until everything is written
        begin[:, columns] = state
        changes = self._recompute_from_begin(columns[span[1, columns] != NO_ROW], span, end, begin, compare=compare)
        still = columns[(span[:, columns] == NO_ROW).any(axis=0)]  # after a power loss one of the two may be there
        end[:, still] = self._after_zeros(begin[:, still], span[1, still])
        if differs.any():
            self._begin.write_rows(0, begin)
        self._end = end
        return Changes.joined(changes + self._close(columns, compare=compare))

    def _recompute_from_begin(self, columns: Columns, span: Int, end: Int, begin: Int, *, compare: bool) -> list[Changes]:
        """Write the cells of columns with samples that follow from the state before the day."""
        if not len(columns):
            return []
        # In a column of zeros, cells after the first one do not depend on it.
        first = np.where(span[0, columns] == NO_ROW, NEVER, NO_ROW)
        update = _Update(columns, first, span[1, columns], span[1, columns], 0, 0)
        return self._recompute(update, end, begin, compare=compare)[0]

    def _after_zeros(self, begin: Int, last: Int) -> Int:
        """Return the states after a day in columns with only zeros, or no sample; last: the row of the last zero, NO_ROW without one."""
        state, sampled = begin.copy(), np.flatnonzero(last != NO_ROW)
        state[ZERO_ROW, sampled] = last[sampled]
        state[:, sampled] = within_reach(state[:, sampled], last[sampled], self._rule.reach)
        return state

    def end_state(self) -> Int:
        """Return the state after the day's last row, i8[5, columns], rows counted from this day's start."""
        return self._end_state().copy()

    def first_samples(self) -> Int:
        """Return each column's sample in the day's first row, i8[columns], ABSENT without one."""
        samples: Int = self._raw.read(0, 1)[0]
        return samples

    def _end_state(self) -> Int:
        if self._end is None:
            self._end = self._compute_end()
        return self._end

    def _compute_end(self) -> Int:
        span, begin = self._span.read(0, 2), self._begin.read(0, 5)
        end, moved = self._after_zeros(begin, span[1]), np.flatnonzero((span[1] != NO_ROW) & (span[0] != NO_ROW))
        if len(moved):
            last = span[1, moved]
            update = _Update(moved, span[0, moved], last, last, int(last.max()) + 1, int(last.max()) + 1)
            differences = Differences(begin[:, moved], self._search_back(update), self._rule)
            for _ in self._feed(update, differences, update.stop):
                pass
            end[:, moved] = differences.state
        return end

    def _cover(self, row: Int, column: Columns, value: Int) -> list[_Update]:
        """Extend span to new samples of the day, in the file; return the update, apart for the columns in which it follows all others."""
        if not len(row):
            return []
        before = self._span.read(0, 2)
        first, last, moving = np.where(before[0] == NO_ROW, NEVER, before[0]), before[1].copy(), value > 0
        np.minimum.at(first, column[moving], row[moving])
        np.maximum.at(last, column, row)
        span = np.stack([np.where(first == NEVER, NO_ROW, first), last])
        if (span != before).any():
            self._span.write_rows(0, span)
        columns, start, stop = self._distinct(column), int(row.min()), int(row.max()) + 1
        self._empty.shrink(start, stop)
        follows = before[1, columns] < start
        parts = (columns[follows], columns[~follows])
        return [_Update(part, first[part], before[1, part], last[part], start, stop) for part in parts if len(part)]

    def _cover_rows(self, span: Int, first: int, block: Int) -> None:
        """Extend span to whole rows that follow all other samples."""
        span[1] = first + len(block) - 1
        if span[0].min() == NO_ROW:
            moved = np.flatnonzero((span[0] == NO_ROW) & (block.max(axis=0) > 0))
            span[0, moved] = first + (block[:, moved] > 0).argmax(axis=0)
        self._span.write_rows(0, span)
        self._empty.shrink(first, first + len(block))

    def _close(self, columns: Columns, *, compare: bool) -> list[Changes]:
        """Write the day's last cell in those columns whose next day has a sample in its first row."""
        if self._has_next is False:
            return []
        next_first = self._raw.read(self.rows, self.rows + 1)
        self._has_next = int(next_first.max()) >= 0
        columns = columns[next_first[0, columns] != ABSENT]
        if not len(columns):
            return []
        self._computed.add((self.rows - 1, self.rows))
        cells, _ = Differences(self._end_state()[:, columns], self.rows, self._rule).feed(next_first[:, columns])
        return [self._writer.write(self.rows - 1, columns, cells, compare=compare)]

    def _recompute(self, update: _Update, end: Int, begin: Int, *, compare: bool) -> tuple[list[Changes], Int]:
        """Write all cells that the update can affect, but for the day's last one, and put the states that it changes into `end`.

        Return the changes, and rows and columns, i8[2, n], of implausible samples.
        """
        columns = update.columns
        if (update.known < update.start).all():
            differences = Differences(end[:, columns], update.start, self._rule)
        else:
            differences = Differences(begin[:, columns], self._search_back(update), self._rule)
        stop, changes, implausible = self._search_on(update), [], [np.empty((2, 0), np.int64)]
        self._computed.add((max(update.start - 1, 0), stop))
        for top, cells, far in self._feed(update, differences, stop):
            implausible.append(far)
            if len(cells):
                changes.append(self._writer.write(top - 1, columns, cells, compare=compare))
        done = update.last < stop
        end[:, columns[done]] = differences.state[:, done]
        return changes, np.concatenate(implausible, axis=1)

    def _feed(self, update: _Update, differences: Differences, stop: int) -> Iterator[tuple[int, NDArray[np.float64], Int]]:
        """Feed the rows up to `stop`; yield a row, the cells that it and the rows after it close, and the implausible samples, i8[2, n].

        Only rows from the update's first one on are yielded, and of the day's first row no cell.
        """
        begin, columns, earliest = differences.row, update.columns, int(update.last.min()) + 1
        for piece in self._empty.outside(begin, stop):
            differences.row = piece[0]
            for start in range(*piece, SLAB_ROWS):
                raw = self._choose(self._raw.read(start, min(start + SLAB_ROWS, piece[1])), columns)
                if start + len(raw) > earliest:  # what span does not cover is left of an update that will be sent again
                    raw[np.arange(start, start + len(raw))[:, np.newaxis] > update.last] = ABSENT
                cells, (row, column) = differences.feed(raw)
                top = max(start, update.start, 1)
                yield top, cells[top - start :], np.stack([row, columns[column]])

    def _search_back(self, update: _Update) -> int:
        """Return the row from which the rule, started with the day's beginning state, reaches the right state before the update."""
        begin, near = update.start, FIRST_READ_ROWS
        unsure = np.flatnonzero(update.known != NO_ROW)
        while begin > 0 and len(unsure):
            begin, near = max(self._empty.before(update.start, near), 0), near * READ_GROWTH
            row = np.concatenate([np.arange(*piece) for piece in self._empty.outside(begin, update.start)])
            raw = self._choose(self._look(begin, update.start), update.columns[unsure])
            if int(update.last[unsure].min()) < update.start - 1:  # what span does not cover is absent, as in _feed()
                raw[row[:, np.newaxis] > update.last[unsure]] = ABSENT
            # Before a zero that follows zeros only, the state is the beginning's but for zero itself.
            is_idle = (update.first[unsure] >= begin) & _begins_with_zero(raw)
            unsure = unsure[~(is_idle | is_anchored(raw))]
        return begin

    def _search_on(self, update: _Update) -> int:
        """Return the row from which on no cell depends on the update."""
        stop, near = update.stop, FIRST_READ_ROWS
        unsure = np.flatnonzero(update.last >= stop)
        while len(unsure):
            stop, near = min(self._empty.after(update.stop, near), int(update.last.max()) + 1), near * READ_GROWTH
            raw = self._choose(self._look(update.stop, stop), update.columns[unsure])
            # After a zero that follows zeros only, neither zero nor the base depends on the update.
            is_idle = (update.first[unsure] >= stop) & (raw.max(axis=0, initial=ABSENT) >= 0)
            unsure = unsure[~(is_idle | is_anchored(raw) | (update.last[unsure] < stop))]
        return stop

    def _look(self, start: int, stop: int) -> Int:
        """Return the samples of the rows [start, stop) outside the empty run, and widen the run."""
        pieces = self._empty.outside(start, stop)
        raw = np.concatenate([self._raw.read(*piece) for piece in pieces])
        if stop - start > FIRST_READ_ROWS:
            row = np.concatenate([np.arange(*piece) for piece in pieces])
            self._empty.widen(start, row[raw.max(axis=1) >= 0], stop)
        return raw

    def _distinct(self, column: Columns) -> Columns:
        """Return the different columns, ascending; they are few, so counting takes a twentieth of the time that np.unique() takes."""
        return np.flatnonzero(np.bincount(column, minlength=self._raw.width))

    def _choose(self, block: NDArray[T], columns: Columns) -> NDArray[T]:
        return block if len(columns) == self._raw.width else block[:, columns]


def _begins_with_zero(raw: Int) -> NDArray[np.bool_]:
    """Return the columns whose first sample of these rows is 0."""
    return np.asarray(raw[(raw >= 0).argmax(axis=0), np.arange(raw.shape[1])] == 0) if len(raw) else np.zeros(raw.shape[1], np.bool_)


def _keys(row: Int, column: NDArray[np.integer]) -> Int:
    """Return one number for each sample."""
    return row << 32 | column
