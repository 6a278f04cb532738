"""However samples come, the cells are those of the slow rule over all samples so far; and the cost follows the update."""

from itertools import pairwise

import numpy as np
import pytest
from counter_days import ANY, CounterDay, CounterDays, slow_day
from hypothesis import example, given
from hypothesis import strategies as st

from tokiod.tts.counters.difference_rule import Rule, empty_state
from tokiod.tts.live.files import Files
from tokiod.tts.schema import ABSENT, MISSING, NO_ROW

rules = st.one_of(st.just(ANY), st.builds(Rule, max_step=st.sampled_from([2**60, 30, 1]), reach=st.sampled_from([3, 20, 1000])))


class Killed(Exception):  # noqa: N818 - an event, not a fault
    """The process is gone."""


class KillableFiles(Files):
    """Kills before one of the next writes; counts what is read."""

    def __init__(self):
        self.left = None
        self.read_bytes = 0

    def pwrite(self, fd, data, offset):
        if self.left is not None:
            if self.left == 0:
                raise Killed
            self.left -= 1
        super().pwrite(fd, data, offset)

    def pread_into(self, fd, data, offset):
        self.read_bytes += data.nbytes
        super().pread_into(fd, data, offset)


def samples_of(raw, rows=None):
    """(row, column, value) of the samples that stand in some rows of raw."""
    row, column = np.nonzero(raw != ABSENT)
    found = np.stack([row, column, raw[row, column]], axis=1)
    return found if rows is None else found[np.isin(row, list(rows))]


def whole(raw, begin=None, rule=ANY):
    """All matrices of a day that was stored in one run, as bits."""
    rows, width = len(raw) - 1, raw.shape[1]
    begin = empty_state(width) if begin is None else begin
    present, index = raw[:-1] != ABSENT, np.arange(rows)[:, None]
    first = np.where(raw[:-1] > 0, index, rows).min(axis=0)
    span = np.stack([np.where(first < rows, first, NO_ROW), np.where(present, index, NO_ROW).max(axis=0)])
    return [array.view(np.int64).tolist() for array in (slow_day(raw, begin, rule)[0], raw, span, begin)]


growing = st.sampled_from(["growing", "gaps"])
forms = st.sampled_from(["noise", "growing", "gaps", "dips", "still", "zeros", "few", "asleep"])


@st.composite
def raws(draw, forms=forms, shape=None, most_rows=40):
    """Rows of a day of a few columns, and the next day's first: noise, growth, dips, at zero, or nearly absent."""
    rows, width = draw(shape) if shape is not None else (draw(st.integers(2, most_rows)), draw(st.integers(1, 4)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    columns = []
    for _ in range(width):
        base = draw(st.sampled_from([1, 100, 2**53]))
        steps = base + np.cumsum(random.integers(0, 9, rows))
        chance = random.random(rows)
        columns.append(
            {
                "noise": random.choice([ABSENT, 0, 1, 2, 3, 9], rows),
                "growing": steps,
                "gaps": np.where(chance < 0.4, ABSENT, steps),
                "dips": np.where(chance < 0.2, steps // 2, np.where(chance < 0.35, 0, np.where(chance < 0.5, ABSENT, steps))),
                "still": np.full(rows, base),
                "zeros": np.where(chance < 0.3, ABSENT, 0),
                "few": np.where(chance < 0.9, ABSENT, steps),
                "asleep": np.where(np.arange(rows) < rows // 3, steps, 0),
            }[draw(forms)]
        )
    return np.stack(columns, axis=1)


@st.composite
def begins(draw, width):
    """The state after some samples of the day before."""
    past = draw(raws(shape=st.just((draw(st.integers(2, 12)), width))))
    _, state = slow_day(past)
    rows = [1, 3, 4]
    state[rows] = np.where(state[rows] == ABSENT, ABSENT, state[rows] - len(past))
    return state


@st.composite
def batches(draw, raw):
    """The samples of raw in pieces: windows of rows in any order, or scattered samples; some twice."""
    samples = samples_of(raw)
    if draw(st.booleans()):
        length = draw(st.integers(1, 12))
        pieces = [samples[samples[:, 0] // length == window] for window in range(len(raw) // length + 1)]
    else:
        count = draw(st.integers(1, 5))
        of = np.array(draw(st.lists(st.integers(0, count - 1), min_size=len(samples), max_size=len(samples))), np.int64)
        pieces = [samples[of == piece] for piece in range(count)]
    again = draw(st.lists(st.sampled_from(pieces), max_size=2))
    return draw(st.permutations(pieces + again))


@given(raws(), rules, st.data())
def test_in_any_order_split_and_duplication_the_file_is_that_of_one_run_after_every_batch(raw, rule, data):
    so_far, begin = np.full_like(raw, ABSENT), data.draw(begins(raw.shape[1]))
    with CounterDay(len(raw) - 1, raw.shape[1], rule=rule) as file:
        file.join(begin)
        for batch in data.draw(batches(raw)):
            file.store(batch)
            so_far[batch[:, 0], batch[:, 1]] = batch[:, 2]
            assert file.bits() == whole(so_far, begin, rule)
            assert file.counter.end_state().tolist() == slow_day(so_far, begin, rule)[1].tolist()
        file.reopen()
        assert file.counter.end_state().tolist() == slow_day(raw, begin, rule)[1].tolist()


@given(raws(), rules, st.data())
def test_samples_that_replace_others_leave_the_cells_of_one_run_over_the_last_ones(raw, rule, data):
    other = data.draw(raws(shape=st.just(raw.shape)))
    so_far = np.full_like(raw, ABSENT)
    with CounterDay(len(raw) - 1, raw.shape[1], rule=rule) as file:
        for batch in [*data.draw(batches(raw)), *data.draw(batches(other))]:
            file.store(batch)
            so_far[batch[:, 0], batch[:, 1]] = batch[:, 2]
            assert file.bits()[:2] == whole(so_far, rule=rule)[:2]
            assert file.counter.end_state().tolist() == slow_day(so_far, rule=rule)[1].tolist()


@given(raws(), rules, st.data())
def test_another_state_before_the_day_gives_the_cells_that_it_would_have_given_at_once(raw, rule, data):
    with CounterDay(len(raw) - 1, raw.shape[1], rule=rule) as file:
        for batch in data.draw(batches(raw)):
            file.store(batch)
        for state in data.draw(st.lists(begins(raw.shape[1]), min_size=1, max_size=3)):
            before = file.get()[0]
            changes = file.join(state, force=data.draw(st.booleans()))
            assert file.bits() == whole(raw, state, rule)
            assert file.counter.end_state().tolist() == slow_day(raw, state, rule)[1].tolist()
            before[changes.row, changes.column] = np.where(np.isnan(changes.value), MISSING, changes.value)
            assert before.view(np.int64).tolist() == file.bits()[0]


@given(raws(st.sampled_from(["growing", "gaps", "zeros"]), most_rows=60), st.data())
def test_whole_rows_are_the_same_as_their_samples(raw, data):
    """In any order of windows, with changes compared or not."""
    raw = np.where(raw == ABSENT, 0, raw) if data.draw(st.booleans()) else np.maximum.accumulate(np.maximum(raw, 1), axis=0)
    rule = data.draw(rules)
    starts = [0, *sorted(data.draw(st.sets(st.integers(1, len(raw) - 1), max_size=4))), len(raw)]
    windows = data.draw(st.permutations(list(pairwise(starts))))
    compare = data.draw(st.booleans())
    with CounterDay(len(raw) - 1, raw.shape[1], rule=rule) as fast, CounterDay(len(raw) - 1, raw.shape[1], rule=rule) as slow:
        for start, stop in windows:
            changes = fast.counter.store_rows(start, raw[start:stop], compare=compare)
            others = slow.store(samples_of(raw, range(start, stop)), compare=compare)
            assert sorted(zip(changes.row.tolist(), changes.column.tolist(), map(repr, changes.value.tolist()), strict=True)) == sorted(
                zip(others.row.tolist(), others.column.tolist(), map(repr, others.value.tolist()), strict=True)
            )
            assert fast.bits() == slow.bits()
            assert fast.counter.end_state().tolist() == slow.counter.end_state().tolist()
        assert fast.bits() == whole(raw, rule=rule)


@given(st.data(), rules)
def test_whole_rows_that_replace_others_leave_the_cells_of_one_run_over_the_last_ones(data, rule):
    """A source that corrects what it said by a little makes falls, and removes them."""
    rows, width = data.draw(st.integers(4, 30)), data.draw(st.integers(1, 2))
    little = st.integers(0, 2)

    def drawn(count, values):
        return np.array(data.draw(st.lists(values, min_size=count * width, max_size=count * width))).reshape(count, width)

    raw = np.full((rows + 1, width), ABSENT)
    raw[:rows] = 1 + drawn(rows, little).cumsum(axis=0)
    with CounterDay(rows, width, rule=rule) as file:
        file.counter.store_rows(0, raw[:rows])
        for _ in range(data.draw(st.integers(1, 4))):
            start = data.draw(st.integers(0, rows - 1))
            stop = data.draw(st.integers(start + 1, min(rows, start + 4)))
            raw[start:stop] = np.maximum(raw[start:stop] + drawn(stop - start, little) - 1, 0)
            file.counter.store_rows(start, raw[start:stop])
            assert file.bits()[:2] == whole(raw, rule=rule)[:2]
            assert file.counter.end_state().tolist() == slow_day(raw, rule=rule)[1].tolist()


def test_the_first_difference_after_replaced_rows_is_computed_again():
    """Found by the simulation: sample 6 was below the corrected one before it, and is not below the second correction."""
    raw = np.array([7, 14, 21, 21, 21, 41, 41, 43, 44, 45, ABSENT])[:, np.newaxis]
    with CounterDay(10, 1) as file:
        for correction in (raw[:10], np.array([[22], [42]]), np.array([[23], [41]])):
            file.counter.store_rows(0 if len(correction) > 2 else 4, correction)
        raw[4:6] = [[23], [41]]
        assert file.bits() == whole(raw)


@given(st.data(), rules)
def test_the_same_samples_give_the_same_cells_however_they_are_split_into_days_and_batches(data, rule):
    """Days of any lengths, all at most `reach` apart from the days that they depend on."""
    raw = data.draw(raws(most_rows=60))
    shortest = max(1, min(rule.reach + 1, len(raw)))
    lengths, left = [], len(raw)
    while left:
        lengths.append(left if left <= shortest else data.draw(st.integers(shortest, left)))
        left -= lengths[-1]
    so_far = np.full_like(raw, ABSENT)
    with CounterDays(lengths, raw.shape[1], rule) as days:
        for batch in data.draw(batches(raw)):
            days.store(batch)
            so_far[batch[:, 0], batch[:, 1]] = batch[:, 2]
            expected = slow_day(np.concatenate([so_far, np.full((1, raw.shape[1]), ABSENT)]), rule=rule)[0]
            assert days.cells().view(np.int64).tolist() == expected.view(np.int64).tolist()


@given(raws(), st.data())
def test_without_comparing_the_file_is_the_same_and_no_change_is_returned(raw, data):
    so_far = np.full_like(raw, ABSENT)
    with CounterDay(len(raw) - 1, raw.shape[1]) as file:
        for batch in data.draw(batches(raw)):
            assert len(file.store(batch, compare=False).row) == 0
            so_far[batch[:, 0], batch[:, 1]] = batch[:, 2]
            assert file.bits() == whole(so_far)


@given(raws(), st.data())
def test_exactly_the_cells_whose_bits_changed_are_returned_nan_for_missing(raw, data):
    with CounterDay(len(raw) - 1, raw.shape[1]) as file:
        for batch in data.draw(batches(raw)):
            before = file.get()[0]
            changes = file.store(batch)
            after = file.get()[0]
            row, column = np.nonzero(before.view(np.int64) != after.view(np.int64))
            value = np.where(np.signbit(after[row, column]), np.nan, after[row, column])
            found = sorted(zip(changes.row.tolist(), changes.column.tolist(), map(repr, changes.value.tolist()), strict=True))
            assert found == list(zip(row.tolist(), column.tolist(), map(repr, value.tolist()), strict=True))


@given(raws(), st.data())
def test_a_kill_before_any_write_is_repaired_by_applying_the_batch_again(raw, data):
    """Other batches may come between the kill and the repetition; the state before the day is set again when the file is opened."""
    files, begin = KillableFiles(), data.draw(begins(raw.shape[1]))
    with CounterDay(len(raw) - 1, raw.shape[1], files) as file:
        waiting = []
        for batch in data.draw(batches(raw)):
            files.left = data.draw(st.one_of(st.none(), st.integers(0, 5)))
            try:
                file.join(begin, force=False)
                file.store(batch)
            except Killed:
                waiting.append(batch)
                file.reopen()
        files.left = None
        file.join(begin)
        for batch in data.draw(st.permutations(waiting)):
            file.store(batch)
        assert file.bits() == whole(raw, begin)


@given(raws(), st.data())
def test_losing_any_unsynced_writes_is_repaired_by_applying_the_unacknowledged_batches_again(raw, data):
    """What a loss of power leaves of unsynced writes is any mixture of old and new, cell by cell, in all four matrices."""
    pieces, begin = data.draw(batches(raw)), data.draw(begins(raw.shape[1]))
    synced, lost = data.draw(st.integers(0, len(pieces))), data.draw(st.integers(0, len(pieces)))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    chance = data.draw(st.sampled_from([0.1, 0.5, 0.9]))
    with CounterDay(len(raw) - 1, raw.shape[1]) as file:
        for batch in pieces[:synced]:
            file.store(batch)
        before = file.get()
        for batch in pieces[synced : synced + lost]:
            file.store(batch)
        file.join(begin)
        file.put(*(np.where(random.random(old.shape) < chance, old, new) for old, new in zip(before, file.get(), strict=True)))
        file.reopen()
        file.join(begin)
        for batch in data.draw(st.permutations(pieces[synced:])):
            file.store(batch)
        assert file.bits() == whole(raw, begin)


@pytest.mark.parametrize("again", [[[5, 0, 30], [6, 0, 20]], [[5, 0, 30], [6, 0, 20], [5, 1, 31]]])
def test_samples_that_a_loss_of_power_left_in_raw_alone_are_absent_until_they_are_stored_again(again):
    """The other column is stored up to their rows, so these are read with it."""
    raw = np.array([[10, 10], [20, 20], [25, 25], [26, 26], [27, 27], [30, 31], [20, 32], [ABSENT, ABSENT]])
    with CounterDay(7, 2) as file:
        file.store(samples_of(raw))
        span = file.span.read(0, 2)
        span[1, 0] = 4
        file.span.write_rows(0, span)
        file.reopen()
        assert file.counter.end_state()[:, 0].tolist() == [27, 4, ABSENT, ABSENT, ABSENT]
        file.store(np.array(again))
        assert file.bits() == whole(raw)


def test_samples_that_span_does_not_cover_are_no_anchor_of_the_state_after_the_day():
    """The other column has samples up to their rows, so the state is searched for from there."""
    raw = np.array([[30, 10], [20, 20], [40, 30], [41, 40], [42, 50], [43, 60], [44, 70], [45, 80], [ABSENT, ABSENT]])
    with CounterDay(8, 2) as file:
        file.store(samples_of(raw))
        span = file.span.read(0, 2)
        span[1, 0] = 1
        file.span.write_rows(0, span)
        file.reopen()
        assert file.counter.end_state()[:, 0].tolist() == [30, 0, 20, 1, ABSENT]


@pytest.mark.parametrize("matrix", ["span", "raw", "cells"])
def test_a_kill_before_each_of_the_three_writes_leaves_the_others_of_a_later_run(matrix):
    """Span first, then raw, then cells."""
    raw = np.array([[5], [7], [9], [ABSENT]])
    files = KillableFiles()
    with CounterDay(3, 1, files) as file:
        files.left = ["span", "raw", "cells"].index(matrix)
        with pytest.raises(Killed):
            file.store(samples_of(raw))
        empty, done = whole(np.full_like(raw, ABSENT)), whole(raw)
        expected = {"span": empty, "raw": [*empty[:2], done[2], done[3]], "cells": [empty[0], *done[1:]]}[matrix]
        assert file.bits() == expected


def test_an_implausible_sample_is_counted_once_however_often_it_is_recomputed():
    raw = np.array([[10], [1000], [1001], [1002], [ABSENT], [1003]])
    with CounterDay(5, 1, rule=Rule(50)) as file:
        file.store(samples_of(raw, [0, 1]))
        assert file.counter.implausible == 1
        for row in (3, 2, 5):  # the second one is late, the third one is the next day's
            file.store(samples_of(raw, [row]))
        assert file.counter.implausible == 1
        file.counter.store_rows(4, np.array([[5000]]))
        assert file.counter.implausible == 2


def test_rows_that_fill_a_known_hole_are_no_hole_for_a_later_update():
    """Found by comparing random cases with pytokio: a cell held the difference over the hole."""
    value = np.concatenate([np.arange(10**6, 10**6 + 12), np.arange(100, 160)])[:, np.newaxis]
    with CounterDay(72, 1) as file:
        for first, stop in ((21, 24), (48, 60), (36, 48), (24, 36)):
            file.counter.store_rows(first, value[first:stop])
        file.store(np.array([[row, 0, int(value[row, 0])] for row in range(12)]))
        assert file.get()[0][21:59, 0].tolist() == [1.0] * 38


def test_the_first_sample_of_a_day_is_that_of_its_first_row():
    with CounterDay(3, 2) as file:
        file.store(np.array([[0, 1, 7], [1, 0, 5]]))
        assert file.counter.first_samples().tolist() == [ABSENT, 7]


def test_storing_nothing_changes_nothing():
    with CounterDay(3, 1) as file:
        before = file.bits()
        changes = file.store(np.empty((0, 3), np.int64))
        assert (len(changes.row), len(file.counter.store_rows(0, np.empty((0, 1), np.int64)).row), file.bits()) == (0, 0, before)


@pytest.mark.parametrize("first", range(10, 25))
def test_a_late_sample_after_a_counter_that_began_again_does_not_see_the_base_from_before_its_zeros(first):
    """Rows are read back from the late sample until they determine the state: the first nonzero one is not enough."""
    raw = np.full((41, 1), ABSENT)
    raw[:first], raw[first], raw[25], raw[26:30, 0] = 0, 5, 4, [200, 201, 202, 203]
    begin = np.array([[100], [-1], [ABSENT], [ABSENT], [ABSENT]])
    with CounterDay(40, 1) as file:
        file.join(begin)
        file.store(samples_of(raw, [*range(25), *range(26, 30)]))
        file.store(samples_of(raw, [25]))
        assert file.bits() == whole(raw, begin)


class TestCost:
    """What is read is counted, not timed: a row of this day is 80 bytes."""

    ROWS, WIDTH = 2000, 10

    @pytest.fixture
    def files(self):
        return KillableFiles()

    @pytest.fixture
    def file(self, files):
        with CounterDay(self.ROWS, self.WIDTH, files) as file:
            yield file

    def raw(self):
        """A full day with a column always absent, one always zero, one at zero since the morning, one absent since, and four dirty."""
        random = np.random.default_rng(2)
        raw = np.cumsum(random.integers(0, 9, (self.ROWS + 1, self.WIDTH)), axis=0) + 1
        raw[:, 0], raw[:, 1], raw[500:, 2], raw[500:, 3] = ABSENT, 0, 0, ABSENT
        raw[random.random(raw.shape) < [0, 0, 0, 0, 0.1, 0.1, 0, 0, 0, 0]] = ABSENT
        raw[random.random(raw.shape) < [0, 0, 0, 0, 0, 0, 0.1, 0.1, 0, 0]] = 0
        raw[-1] = ABSENT
        return raw

    def rows_read(self, file, files, batch):
        files.read_bytes = 0
        file.store(batch)
        return files.read_bytes / 8 / self.WIDTH

    def test_a_window_appended_reads_some_rows_however_long_columns_stand_at_zero_or_are_absent(self, file, files):
        raw = self.raw()
        file.store(samples_of(raw, range(1500)))
        assert self.rows_read(file, files, samples_of(raw, range(1500, 1512))) < 60

    def test_a_late_window_reads_some_rows_around_it(self, file, files):
        raw = self.raw()
        raw[500:, 2] = raw[500:, 4]
        file.store(samples_of(raw, [*range(1500), *range(1512, 2000)]))
        assert self.rows_read(file, files, samples_of(raw, range(1500, 1512))) < 300
        assert file.bits() == whole(raw)

    def test_the_first_window_of_a_late_start_reads_nothing_of_the_day(self, file, files):
        assert self.rows_read(file, files, samples_of(self.raw(), range(1500, 1512))) < 60

    @pytest.mark.parametrize("order", [1, -1])
    def test_filling_a_hole_window_by_window_reads_the_hole_once(self, file, files, order):
        raw = self.raw()[:, 8:].repeat(5, axis=1)
        file.store(samples_of(raw, [*range(200), *range(1800, 2000)]))
        windows = [range(start, start + 10) for start in range(200, 1800, 10)][::order]
        first = self.rows_read(file, files, samples_of(raw, windows[0]))
        later = [self.rows_read(file, files, samples_of(raw, window)) for window in windows[1:]]
        assert first > 1600
        assert max(later) < 150
        assert file.bits() == whole(raw)

    def test_another_state_before_a_full_day_reads_some_rows_at_its_head(self, file, files):
        raw = self.raw()[:, [4, 5, 6, 7, 8, 9, 4, 5, 6, 7]]
        file.store(samples_of(raw))
        begin = np.tile([[1], [-3], [ABSENT], [ABSENT], [ABSENT]], self.WIDTH)
        files.read_bytes = 0
        file.join(begin)
        assert files.read_bytes / 8 / self.WIDTH < 150
        assert file.bits() == whole(raw, begin)

    def test_the_next_days_first_sample_reads_the_row_of_it(self, file, files):
        raw = self.raw()
        file.store(samples_of(raw))
        raw[-1] = raw[-2] + (raw[-2] >= 0)
        assert self.rows_read(file, files, samples_of(raw, [self.ROWS])) < 20
        assert file.bits() == whole(raw)


@given(st.permutations(range(5)), st.integers(0, 11), st.integers(0, 11))
@example([1, 4, 3, 2, 0], 0, 8)
def test_whole_rows_in_any_order_leave_what_one_run_leaves(order, first_fall, falls):
    """A hole that whole rows had filled was still skipped as empty by the next update: the cell after it counted the hole again."""
    raw = 1000 + 7 * np.arange(61)[:, np.newaxis]
    raw[12 + first_fall : 12 + first_fall + falls, 0] = 500 - np.arange(falls)
    raw[-1] = ABSENT
    with CounterDay(60, 1) as day:
        for turn in order:
            day.counter.store_rows(12 * turn, raw[12 * turn : 12 * turn + 12])
        assert (day.get()[0].view(np.int64) == slow_day(raw)[0].view(np.int64)).all()
