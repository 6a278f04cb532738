"""Differences of counters across midnight: the rule that turns samples into cells, vectorised over cells. No I/O.

Rows count from the day's start and may be negative. The sample in row r closes cell r - 1: a difference lies in the row before the later
sample. Per column the state has three parts:

    base        the sample taken as correct: value and row
    candidate   a later, smaller sample that may be a reset: value and row
    zero        the row of the last sample if that sample was 0

Absent rows change nothing. A sample first drops each part that is more than `reach` rows older; if the base is dropped, the candidate
takes its place. Then the first matching line applies:

    sample v                                    cell before it                      taken from   state after it
    0, zero is set                              0                                                zero = here
    0                                           missing                                          zero = here
    nonzero, no base                            v if zero is set, else missing      zero         base = v
    v >= base                                   v - base                            base         base = v, no candidate
    v >= candidate                              v - candidate: a confirmed reset    candidate    base = v, no candidate
    v < base, zero is set, v plausible          v: the counter began again          zero         base = v, no candidate
    v < base otherwise                          missing                                          candidate = v

Every nonzero v clears zero. A difference is plausible if it is at most `max_step` per row since the sample that it is taken from. An
implausible difference gives a missing cell; the state still advances.

Why no loop over samples is needed. Let p be the nonzero sample before a nonzero v. Every nonzero sample becomes the base or the candidate,
and the base is never below the candidate. So
- there is no base before v exactly if p is missing or out of reach (v *begins*);
- v >= p (v *rises*) is a line that sets the base, whatever the base was; this is the anchor of is_anchored();
- v < p is below the base too: either the counter began again, which depends on zero and v alone, or v becomes the candidate.
Which samples set the base therefore follows from p and zero, and the base before v is the latest of them. The only exception is a base
that goes out of reach while the counter falls from sample to sample: then p takes its place (_promote).

The state is equal to its own samples: base, candidate and zero, in this order, fed to an empty state, give that state. So a block is
computed from the state's samples and its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from tokiod.tts.schema import ABSENT, MISSING

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int = NDArray[np.int64]
    Bool = NDArray[np.bool_]

REACH_SECONDS = 23 * 3600
"""The shortest day: the day before always holds every sample that a day's cells can depend on."""
SLAB_ROWS = 128
"""Rows handled at a time: a few hundred columns of them fit into the processor's cache."""
LARGEST = int(np.iinfo(np.int64).max)

BASE, BASE_ROW, CANDIDATE, CANDIDATE_ROW, ZERO_ROW = range(5)
"""The rows of a state, i8[5, columns]; ABSENT in each part that is not set."""


def empty_state(columns: int) -> Int:
    """Return the state of columns without a sample."""
    return np.full((5, columns), ABSENT)


class Rule(NamedTuple):
    """The limits of the rule in rows: the largest plausible difference per row, and how old a part of the state may be."""

    max_step: int = LARGEST
    reach: int = LARGEST

    @classmethod
    def of(cls, step: int, max_rate: float | None = None) -> Self:
        """Return the rule for rows of `step` seconds; max_rate: the largest plausible rate per second, None for any."""
        return cls(LARGEST if max_rate is None else min(int(max_rate * step), LARGEST), REACH_SECONDS // step)

    def max_rate(self, step: int) -> float | None:
        """Return the largest plausible rate per second, None for any, of a rule for rows of `step` seconds."""
        return None if self.max_step == LARGEST else self.max_step / step

    def is_plausible(self, difference: Int, elapsed: Int) -> Bool:
        """Return which differences over so many rows are plausible. Exact: the product saturates."""
        limit, most = elapsed * np.int64(self.max_step), LARGEST // max(self.max_step, 1)
        if elapsed.max(initial=0) > most:
            limit[elapsed > most] = LARGEST
        return np.asarray(difference <= limit)


class _Samples(NamedTuple):
    """The samples of several columns, column after column, in order of their rows; parallel arrays [n]."""

    column: Int
    row: Int
    value: Int

    @classmethod
    def of(cls, state: Int, first: int, raw: Int) -> Self:
        """Return the samples of a state and of the raw rows from `first` on."""
        values = np.concatenate([state[[BASE, CANDIDATE]], np.where(state[ZERO_ROW:] == ABSENT, ABSENT, 0), raw])
        rows = np.empty_like(values)
        rows[:3] = state[[BASE_ROW, CANDIDATE_ROW, ZERO_ROW]]
        rows[3:] = np.arange(first, first + len(raw))[:, np.newaxis]
        column, place = np.nonzero(values.T != ABSENT)
        return cls(column, rows[place, column], values[place, column])


class Differences:
    """The state of the rule between two rows, for many columns.

    state: i8[5, columns], see BASE to ZERO_ROW. row: the row that is fed next; set it to skip rows without a sample.
    """

    def __init__(self, state: Int, row: int, rule: Rule) -> None:
        self.state = state.copy()
        self.row = row
        self.rule = rule

    def feed(self, raw: Int) -> tuple[NDArray[np.float64], Int]:
        """Process the next rows, i8[rows, columns], ABSENT without a sample; values are 0 or more.

        Return the cells that their samples close, f8 of the same shape, and rows and columns, i8[2, n], of the implausible samples.
        Differences are exact before they become float64. MISSING without a difference; a computed zero is +0.0.
        """
        cells, implausible = np.empty(raw.shape), []
        start, height = 0, self._first_height(raw)
        while start < len(raw):
            stop = min(start + height, len(raw))
            found = self._feed_slab(raw[start:stop], cells[start:stop])
            implausible += [found] if found.size else []
            start, height = stop, SLAB_ROWS
        return cells, np.concatenate(implausible, axis=1) if implausible else np.empty((2, 0), np.int64)

    def _first_height(self, raw: Int) -> int:
        """Return how many rows to feed first: two if the state of no column is plain, because it may be so after these."""
        return SLAB_ROWS if self._continues().any() or raw[:2].max(initial=0) <= 0 else 2

    def _continues(self) -> Bool:
        """Return the columns whose base is the sample in the row before."""
        return np.asarray(self.state[BASE_ROW] == self.row - 1)

    def _feed_slab(self, raw: Int, cells: NDArray[np.float64]) -> Int:
        """Fill the cells of a few rows; return rows and columns of the implausible samples."""
        steps = np.empty_like(raw)
        np.subtract(raw[0], self.state[BASE], out=steps[0])
        np.subtract(raw[1:], raw[:-1], out=steps[1:])
        cells[...] = steps
        # As unsigned numbers, falls and implausible steps are both too large, and so are zeros and absent samples; an absent one shows
        # in the step after it at the latest, and the last row is compared by itself.
        plain = self._continues() & (steps.view(np.uint64).max(axis=0) <= self.rule.max_step) & (raw[-1] > 0)
        implausible = np.empty((2, 0), np.int64)
        odd = np.flatnonzero(~plain)
        if len(odd):
            is_idle = self._is_idle(raw[:, odd])
            idle, odd = odd[is_idle], odd[~is_idle]
            cells[:, idle] = self._feed_zeros(raw[:, idle], idle)
            odd = self._feed_rising(raw, odd, cells) if len(odd) else odd
            if len(odd):
                cells[:, odd], implausible = self._feed_odd(raw[:, odd], odd)
        self.row += len(raw)
        np.copyto(self.state[BASE], raw[-1], where=plain)
        np.copyto(self.state[BASE_ROW], self.row - 1, where=plain)
        return implausible

    def _is_idle(self, raw: Int) -> Bool:
        """Return the columns of zeros and absent samples only: unused operations, targets without clients, absent components."""
        # Within these rows, every zero must be in reach of the one before it.
        return np.asarray(raw.max(axis=0) <= 0) & (len(raw) <= self.rule.reach)

    def _feed_zeros(self, raw: Int, columns: NDArray[np.intp]) -> NDArray[np.float64]:
        """Process rows of columns of zeros and absent samples only; return their cells."""
        present = raw == 0
        cells = np.where(present, 0.0, MISSING)
        sampled = np.flatnonzero(present.any(axis=0))
        first = self.row + present[:, sampled].argmax(axis=0)
        last = self.row + len(raw) - 1 - present[::-1, sampled].argmax(axis=0)
        zero = self.state[ZERO_ROW, columns[sampled]]
        is_first = (zero == ABSENT) | (first - zero > self.rule.reach)
        cells[first[is_first] - self.row, sampled[is_first]] = MISSING
        self.state[ZERO_ROW, columns[sampled]] = last
        self.state[:, columns[sampled]] = within_reach(self.state[:, columns[sampled]], last, self.rule.reach)
        return cells

    def _feed_rising(self, raw: Int, columns: NDArray[np.intp], cells: NDArray[np.float64]) -> NDArray[np.intp]:
        """Process those columns that only have absent samples between others that never fall; return the columns that are left."""
        state, samples = self.state[:, columns], raw[:, columns]
        reached = np.maximum.accumulate(np.concatenate([state[[BASE]], samples]), axis=0)
        present, steps = samples != ABSENT, reached[1:] - reached[:-1]
        rises = ((samples == reached[1:]) | ~present).all(axis=0) & (steps.max(axis=0) <= self.rule.max_step)
        rises &= (state[BASE] > 0) & (state[CANDIDATE] == ABSENT) & (state[ZERO_ROW] == ABSENT)
        rises &= self.row + len(raw) - state[BASE_ROW] <= self.rule.reach
        here = columns[rises]
        cells[:, here] = np.where(present, steps, MISSING)[:, rises]
        sampled = np.flatnonzero(rises & present.any(axis=0))
        self.state[BASE, columns[sampled]] = reached[-1, sampled]
        self.state[BASE_ROW, columns[sampled]] = self.row + len(raw) - 1 - present[::-1, sampled].argmax(axis=0)
        return np.asarray(columns[~rises])

    def _feed_odd(self, raw: Int, columns: NDArray[np.intp]) -> tuple[NDArray[np.float64], Int]:
        """Process rows of columns by the whole rule; return their cells, and rows and columns of the implausible samples."""
        samples = _Samples.of(self.state[:, columns], self.row, raw)
        difference, is_implausible, states = _apply(samples, self.rule)
        self.state[:, columns[states.columns]] = states.state
        new = samples.row >= self.row
        cells, found = np.full(raw.shape, MISSING), new & (difference != ABSENT)
        cells[samples.row[found] - self.row, samples.column[found]] = difference[found]
        is_implausible &= new
        return cells, np.stack([samples.row[is_implausible], columns[samples.column[is_implausible]]])


def _apply(samples: _Samples, rule: Rule) -> tuple[Int, Bool, _States]:
    """Return the difference that each sample closes, ABSENT without one, which were implausible, and the states after the last samples."""
    follows = samples.column[1:] == samples.column[:-1]
    zero = np.zeros(len(samples.row), np.int64)  # rows since the zero before, 0 without one
    zero[1:] = np.where(follows & (samples.value[:-1] == 0), np.diff(samples.row), 0)
    zero[zero > rule.reach] = 0
    difference = np.where((samples.value == 0) & (zero > 0), 0, ABSENT)
    nonzero = np.flatnonzero(samples.value)
    moving = _Moving.of(samples, nonzero, zero[nonzero], rule)
    is_implausible = np.zeros(len(samples.row), np.bool_)
    difference[nonzero], is_implausible[nonzero] = moving.differences(rule)
    return difference, is_implausible, _States.after(samples, nonzero, moving, rule.reach)


class _Moving(NamedTuple):
    """The nonzero samples, and what each does to the state; parallel arrays [n].

    zero: rows since the zero before, 0 without one. base: the index of the base before the sample; undefined where the sample begins.
    """

    row: Int
    value: Int
    zero: Int
    begins: Bool
    rises: Bool
    restarts: Bool
    base: NDArray[np.intp]

    @classmethod
    def of(cls, samples: _Samples, nonzero: NDArray[np.intp], zero: Int, rule: Rule) -> Self:
        """Classify the nonzero samples."""
        column, row, value = samples.column[nonzero], samples.row[nonzero], samples.value[nonzero]
        begins, rises = np.ones(len(row), np.bool_), np.zeros(len(row), np.bool_)
        begins[1:] = (column[1:] != column[:-1]) | (np.diff(row) > rule.reach)
        rises[1:] = ~begins[1:] & (value[1:] >= value[:-1])
        restarts = ~begins & ~rises & (zero > 0) & rule.is_plausible(value, zero)
        base = _bases(begins | rises | restarts, column, row, begins, rule.reach)
        return cls(row, value, zero, begins, rises, restarts, base)

    def differences(self, rule: Rule) -> tuple[Int, Bool]:
        """Return the difference that each sample closes, ABSENT without one, and which were implausible."""
        source = np.where(self.value >= self.value[self.base], self.base, np.arange(-1, len(self.row) - 1))
        from_zero = self.restarts | (self.begins & (self.zero > 0))
        difference = np.where(self.rises, self.value - self.value[source], np.where(from_zero, self.value, ABSENT))
        is_implausible = ~rule.is_plausible(difference, np.where(self.rises, self.row - self.row[source], self.zero))
        difference[is_implausible] = ABSENT
        return difference, is_implausible

    @property
    def sets_base(self) -> Bool:
        """Which samples become the base; the others become the candidate."""
        return self.begins | self.rises | self.restarts


def _bases(sets_base: Bool, column: Int, row: Int, begins: Bool, reach: int) -> NDArray[np.intp]:
    """Return the index of the base before each nonzero sample: the latest that set it."""
    index, sets_base = np.arange(len(row)), sets_base.copy()
    base = np.zeros(len(row), np.intp)
    while True:
        base[1:] = np.maximum.accumulate(np.where(sets_base, index, 0))[:-1]
        late = np.flatnonzero(~begins & (row - row[base] > reach))
        if not len(late):
            return base
        # A base out of reach: the sample before, which is the candidate, takes its place. One round for each time that a column falls
        # from sample to sample for longer than `reach`, which no counter does twice a day; the others then follow in the next round.
        _, first = np.unique(column[late], return_index=True)
        sets_base[late[first] - 1] = True


class _States(NamedTuple):
    """The states i8[5, n] of the n columns that have samples."""

    columns: Int
    state: Int

    @classmethod
    def after(cls, samples: _Samples, nonzero: NDArray[np.intp], moving: _Moving, reach: int) -> Self:
        """Return the states after each column's last sample."""
        end = np.flatnonzero(np.diff(samples.column, append=-1))
        columns, row = samples.column[end], samples.row[end]
        state = empty_state(len(columns))
        np.copyto(state[ZERO_ROW], row, where=samples.value[end] == 0)
        last = np.searchsorted(nonzero, end, side="right") - 1  # each column's last nonzero sample, if it has one
        has = np.flatnonzero((last >= 0) & (samples.column[nonzero[last]] == columns)) if len(nonzero) else last[:0]
        last = last[has]
        is_base = moving.sets_base[last]
        base = np.where(is_base, last, moving.base[last])
        state[BASE, has], state[BASE_ROW, has] = moving.value[base], moving.row[base]
        state[CANDIDATE, has] = np.where(is_base, ABSENT, moving.value[last])
        state[CANDIDATE_ROW, has] = np.where(is_base, ABSENT, moving.row[last])
        return cls(columns, within_reach(state, row, reach))


def within_reach(state: Int, row: Int, reach: int) -> Int:
    """Return a state without the parts that are out of reach of samples in these rows, i8[columns]; zero is such a sample itself."""
    for _ in range(2):
        dropped = (state[BASE] != ABSENT) & (row - state[BASE_ROW] > reach)
        state[:CANDIDATE, dropped] = state[CANDIDATE:ZERO_ROW, dropped]
        state[CANDIDATE:ZERO_ROW, dropped] = ABSENT
    return state


def next_day(state: Int, rows: int, reach: int) -> Int:
    """Return the state before the next day's first row, counted from there, of the state after a day of so many rows.

    Parts that are out of reach of the next day are dropped, so a column without a sample in reach begins with an empty state.
    """
    moved = state.copy()
    for part in (BASE_ROW, CANDIDATE_ROW, ZERO_ROW):
        np.subtract(moved[part], rows, out=moved[part], where=moved[part] != ABSENT)
    return _within_reach_of_day(moved, reach)


def in_rows_of(state: Int, before: int, step: int) -> Int:
    """Return a state before a day in rows of `step` seconds; it is given in rows of `before` seconds, and both count from the day's start.

    No part seems later than it is: its row becomes the one that has the row's beginning. Parts that come into one row are moved apart, so
    that base, candidate and zero stay in this order and each in a row of its own.
    """
    moved, later = state.copy(), np.zeros(state.shape[1], np.int64)
    for part in (ZERO_ROW, CANDIDATE_ROW, BASE_ROW):
        is_set = state[part] != ABSENT
        np.minimum(np.where(is_set, state[part], 0) * before // step, later - 1, out=later, where=is_set)
        np.copyto(moved[part], later, where=is_set)
    return _within_reach_of_day(moved, Rule.of(step).reach)


def _within_reach_of_day(state: Int, reach: int) -> Int:
    """Return a state, whose rows count from a day's start, without the parts that are out of reach of the day's first row."""
    zero = state[ZERO_ROW]
    zero[(zero != ABSENT) & (zero < -reach)] = ABSENT
    return within_reach(state, np.zeros(state.shape[1], np.int64), reach)


def day(raw: Int, begin: Int, rule: Rule) -> tuple[NDArray[np.float64], Int, Int]:
    """Apply the rule to a day: raw i8[rows + 1, columns] is the day's rows and the next day's first one.

    begin: the state before row 0. Return the cells f8[rows, columns] of the day, the state after its last row, and rows and columns,
    i8[2, n], of the implausible samples. The cell before the sample in row 0 belongs to the day before.
    """
    differences = Differences(begin, 0, rule)
    cells, implausible = differences.feed(raw[:-1])
    end = differences.state.copy()
    closing, last = differences.feed(raw[-1:])
    return np.concatenate([cells[1:], closing]), end, np.concatenate([implausible, last], axis=1)


def is_anchored(raw: Int) -> Bool:
    """Return for each column whether these rows, i8[rows, columns], contain an anchor and its nonzero predecessor.

    After an anchor v, the state is v as the base alone, whatever came before.
    """
    found = np.asarray(((raw[1:] >= raw[:-1]) & (raw[:-1] > 0)).any(axis=0))
    apart = np.flatnonzero(~found)
    if len(apart):
        found[apart] = _is_anchored_apart(raw[:, apart])
    return found


def _is_anchored_apart(raw: Int) -> Bool:
    nonzero = raw > 0
    rows = np.where(nonzero, np.arange(len(raw))[:, np.newaxis], -1)
    before = np.full_like(rows, -1)
    np.maximum.accumulate(rows[:-1], axis=0, out=before[1:])
    earlier = np.take_along_axis(raw, np.maximum(before, 0), axis=0) if len(raw) else raw
    return np.asarray((nonzero & (before >= 0) & (raw >= earlier)).any(axis=0))


def aligned(state: Int, names: tuple[str, ...], wanted: tuple[str, ...]) -> Int:
    """Return the columns `wanted` of states or samples i8[n, columns] of other columns, ABSENT where they are not among them."""
    if names == wanted:
        return state
    place = {name: i for i, name in enumerate(names)}
    here = np.fromiter((place.get(name, -1) for name in wanted), np.intp, len(wanted))
    found = np.full((len(state), len(wanted)), ABSENT)
    found[:, here >= 0] = state[:, here[here >= 0]]
    return found
