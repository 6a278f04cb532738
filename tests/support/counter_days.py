"""Days of one counter in files in memory, with the rule that crosses midnight: what tests of DayCounter store in and look at."""

import os

import numpy as np

from tokiod.simulator.oracle import State, run
from tokiod.tts.counters.day_counter import DayCounter
from tokiod.tts.counters.difference_rule import Rule, empty_state, next_day
from tokiod.tts.live.files import REAL
from tokiod.tts.live.matrix import Matrix, OpenFile
from tokiod.tts.schema import ABSENT, MISSING, NO_ROW

ANY = Rule()


class CounterDay:
    """The four matrices of a counter in a real file: cells, raw with the next day's first row, span, and the state before the day."""

    def __init__(self, rows, width, files=REAL, rule=ANY):
        self.fd, self.rule = os.memfd_create("day"), rule
        file, names = OpenFile(self.fd, files, dirty=False), tuple(map(str, range(width)))
        size = 8 * width
        self.cells = Matrix(file, 0, rows, names, np.float64)
        self.raw = Matrix(file, rows * size, rows + 1, names, np.int64)
        self.span = Matrix(file, (2 * rows + 1) * size, 2, names, np.int64)
        self.begin = Matrix(file, (2 * rows + 3) * size, 5, names, np.int64)
        self.put(np.full((rows, width), MISSING), np.full((rows + 1, width), ABSENT), np.full((2, width), NO_ROW), empty_state(width))
        self.reopen()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def matrices(self):
        return self.cells, self.raw, self.span, self.begin

    def put(self, *arrays):
        for matrix, array in zip(self.matrices(), arrays, strict=True):
            matrix.write_rows(0, array)

    def get(self):
        return [matrix.read(0, matrix.rows) for matrix in self.matrices()]

    def bits(self):
        return [array.view(np.int64).tolist() for array in self.get()]

    def reopen(self):
        self.counter = DayCounter(*self.matrices(), self.rule)

    def store(self, batch, **options):
        row, column, value = (np.array(part, dtype) for part, dtype in zip(batch.T, (np.int64, np.intp, np.int64), strict=True))
        return self.counter.store(row, column, value, **options)

    def join(self, state, *, force=True):
        """Set the state of all columns before the day."""
        return self.counter.set_begin(np.arange(self.raw.width), state, force=force)


class CounterDays:
    """Days one after the other, and what a sink does at their seams: the next day's first samples, and the state after each day."""

    def __init__(self, lengths, width, rule=ANY):
        self.starts = np.cumsum([0, *lengths])
        self.days = [CounterDay(rows, width, rule=rule) for rows in lengths]
        self.rule = rule

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for day in self.days:
            day.__exit__(*exc)

    def store(self, batch):
        """Store samples, whose rows count from the first day's start, one day after the other."""
        for index, day in enumerate(self.days):
            start, stop = self.starts[index], self.starts[index + 1]
            own = batch[(batch[:, 0] >= start) & (batch[:, 0] < stop)] - [start, 0, 0]
            if not len(own):
                continue
            day.store(own)
            first = own[own[:, 0] == 0]
            if index and len(first):
                before = self.days[index - 1]
                before.store(first + np.array([before.cells.rows, 0, 0]))
            self.carry(index, np.unique(own[:, 1]))

    def carry(self, index, columns):
        """Tell the days after a day its new state, as long as one changes."""
        for day, after in zip(self.days[index:], self.days[index + 1 :], strict=False):
            state = next_day(day.counter.end_state(), day.cells.rows, self.rule.reach)
            if (after.begin.read(0, 5) == state).all():
                return
            after.counter.set_begin(columns, state[:, columns])

    def cells(self):
        return np.concatenate([day.get()[0] for day in self.days])


def state_of(array):
    """States i8[5, columns] as the slow rule's."""
    return [
        State(
            None if base == ABSENT else (base_row, base),
            None if candidate == ABSENT else (candidate_row, candidate),
            None if zero == ABSENT else zero,
        )
        for base, base_row, candidate, candidate_row, zero in array.T.tolist()
    ]


def as_array(states):
    """States of the slow rule as i8[5, columns]."""
    columns = [
        [
            *([state.base[1], state.base[0]] if state.base else [ABSENT] * 2),
            *([state.candidate[1], state.candidate[0]] if state.candidate else [ABSENT] * 2),
            ABSENT if state.zero is None else state.zero,
        ]
        for state in states
    ]
    return np.array(columns, np.int64).reshape(-1, 5).T.copy()


def state_after(sample):
    """The state before a day whose row -1 has these samples [columns], ABSENT without one."""
    return as_array([run([(-1, value)] if value != ABSENT else [], state, ANY.max_step, ANY.reach)[2] for value, state in zip(
        sample.tolist(), state_of(empty_state(len(sample))), strict=True)])  # fmt: skip


def slow_day(raw, begin=None, rule=ANY):
    """What the slow rule makes of a day with the next one's first row: cells [rows], and the state after the day."""
    cells, states = np.full((len(raw) - 1, raw.shape[1]), MISSING), []
    for column, state in enumerate(state_of(empty_state(raw.shape[1]) if begin is None else begin)):
        samples = [(row, value) for row, value in enumerate(raw[:, column].tolist()) if value != ABSENT]
        states.append(run([each for each in samples if each[0] < len(cells)], state, rule.max_step, rule.reach)[2])
        for row, value in run(samples, state, rule.max_step, rule.reach)[0].items():
            if row:
                cells[row - 1, column] = value
    return cells, as_array(states)
