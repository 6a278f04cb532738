"""Samples stored in any order, split, duplicated, replaced, killed between and losing power leave the cells of one ordered run."""

import numpy as np
import pytest
from counter_day import Day
from hypothesis import given
from hypothesis import strategies as st

from tokiod.tts.counters.deltas import Deltas, day
from tokiod.tts.live.files import Files
from tokiod.tts.schema import ABSENT, NO_ROW


class Killed(Exception):  # noqa: N818 - nothing went wrong with the program
    pass


class KillableFiles(Files):
    """Real file operations, counted; the one after `left` writes is a kill."""

    left = None
    read_bytes = 0

    def pread_into(self, fd, buffer, offset):
        self.read_bytes += buffer.nbytes
        super().pread_into(fd, buffer, offset)

    def pwrite(self, fd, data, offset):
        if self.left is not None:
            if not self.left:
                raise Killed
            self.left -= 1
        super().pwrite(fd, data, offset)


def whole(raw):
    """Cells, raw and span of one run over all raw rows, as bits."""
    rows = np.arange(len(raw))[:, None]
    moved, own = (raw > 0) & (rows > 0), (raw >= 0) & (rows > 0) & (rows < len(raw) - 1)
    first = np.where(moved, rows, len(raw)).min(axis=0)
    last = np.where(own, rows, NO_ROW).max(axis=0)
    return [day(raw).view(np.int64).tolist(), raw.tolist(), [np.where(first == len(raw), NO_ROW, first).tolist(), last.tolist()]]


def samples_of(raw, rows=None):
    """The samples in some rows of raw, [n, 3] of row, column, value."""
    row, column = np.nonzero(raw != ABSENT)
    chosen = np.isin(row, np.arange(len(raw)) if rows is None else rows)
    return np.stack([row, column, raw[row, column]], axis=1)[chosen]


values = st.one_of(st.integers(1, 5), st.just(0), st.just(ABSENT), st.integers(2**53, 2**53 + 3))


shapes = st.tuples(st.integers(3, 42), st.integers(1, 3))
kinds = st.sampled_from(["noise", "growth", "growth with faults", "zeros", "few", "asleep"])
growing = st.sampled_from(["growth", "growth with gaps", "few"])


@st.composite
def raws(draw, kinds=kinds, shape=shapes):
    """Raw rows of a day of a few columns: noise, growth, standing still at zero or nearly absent."""
    rows, width = draw(shape)
    columns = []
    for _ in range(width):
        base = np.array(draw(st.lists(values, min_size=rows, max_size=rows)), dtype=np.int64)
        growing = np.cumsum(np.abs(base % 7)) + 1
        forms = {
            "noise": base,
            "growth": growing,
            "growth with gaps": np.where(base <= 0, ABSENT, growing),
            "growth with faults": np.where(base <= 0, base, growing),
            "zeros": np.where(base == ABSENT, base, np.where(base == 2**53, 7, 0)),
            "few": np.where(base == 2**53, growing, ABSENT),
            "asleep": np.where(np.arange(rows) < rows // 3, growing, np.where(base == ABSENT, base, 0)),
        }
        columns.append(forms[draw(kinds)])
        if draw(st.booleans()):
            columns[-1][-1] = draw(st.integers(0, 99))  # the next day may begin as if it had restarted
    return np.stack(columns, axis=1)


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


@given(raws(), st.data())
def test_in_any_order_split_and_duplication_the_file_is_that_of_one_run_after_every_batch(raw, data):
    so_far = np.full_like(raw, ABSENT)
    with Day(len(raw) - 2, raw.shape[1]) as file:
        for batch in data.draw(batches(raw)):
            file.store(batch)
            so_far[batch[:, 0], batch[:, 1]] = batch[:, 2]
            assert file.bits() == whole(so_far)
        assert file.bits() == whole(raw)


@given(raws(), st.data())
def test_samples_that_replace_others_leave_the_cells_of_one_run_over_the_last_ones(raw, data):
    other = data.draw(raws(shape=st.just(raw.shape)))
    so_far = np.full_like(raw, ABSENT)
    with Day(len(raw) - 2, raw.shape[1]) as file:
        for batch in [*data.draw(batches(raw)), *data.draw(batches(other))]:
            file.store(batch)
            so_far[batch[:, 0], batch[:, 1]] = batch[:, 2]
            assert file.bits()[:2] == whole(so_far)[:2]


@given(raws(), st.data())
def test_without_comparing_the_file_is_the_same_and_no_change_is_returned(raw, data):
    so_far = np.full_like(raw, ABSENT)
    with Day(len(raw) - 2, raw.shape[1]) as file:
        for batch in data.draw(batches(raw)):
            assert len(file.store(batch, compare=False).row) == 0
            so_far[batch[:, 0], batch[:, 1]] = batch[:, 2]
            assert file.bits() == whole(so_far)


@given(raws(), st.data())
def test_exactly_the_cells_whose_bits_changed_are_returned_nan_for_missing(raw, data):
    with Day(len(raw) - 2, raw.shape[1]) as file:
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
    """Other batches may come between the kill and the repetition."""
    files = KillableFiles()
    with Day(len(raw) - 2, raw.shape[1], files) as file:
        pieces = data.draw(batches(raw))
        waiting = []
        for batch in pieces:
            files.left = data.draw(st.one_of(st.none(), st.integers(0, 4)))
            try:
                file.store(batch)
            except Killed:
                waiting.append(batch)
                file.reopen()
        files.left = None
        for batch in data.draw(st.permutations(waiting)):
            file.store(batch)
        assert file.bits() == whole(raw)


@given(raws(), st.data())
def test_losing_any_unsynced_writes_is_repaired_by_applying_the_unacknowledged_batches_again(raw, data):
    """What a loss of power leaves of unsynced writes is any mixture of old and new, cell by cell, in all three matrices."""
    pieces = data.draw(batches(raw))
    synced, lost = data.draw(st.integers(0, len(pieces))), data.draw(st.integers(0, len(pieces)))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    chance = data.draw(st.sampled_from([0.1, 0.5, 0.9]))
    with Day(len(raw) - 2, raw.shape[1]) as file:
        for batch in pieces[:synced]:
            file.store(batch)
        before = file.get()
        for batch in pieces[synced : synced + lost]:
            file.store(batch)
        file.put(*(np.where(random.random(old.shape) < chance, old, new) for old, new in zip(before, file.get(), strict=True)))
        file.reopen()
        for batch in data.draw(st.permutations(pieces[synced:])):
            file.store(batch)
        assert file.bits() == whole(raw)


@pytest.mark.parametrize("matrix", ["span", "raw", "cells"])
def test_a_kill_before_each_of_the_three_writes_leaves_the_others_of_a_later_run(matrix):
    """Span first, then raw, then cells."""
    raw = np.array([[ABSENT], [5], [7], [9], [ABSENT]])
    files = KillableFiles()
    with Day(3, 1, files) as file:
        files.left = ["span", "raw", "cells"].index(matrix)
        with pytest.raises(Killed):
            file.store(samples_of(raw))
        empty, done = whole(np.full_like(raw, ABSENT)), whole(raw)
        expected = {"span": empty, "raw": [*empty[:2], done[2]], "cells": [empty[0], *done[1:]]}[matrix]
        assert file.bits() == expected


@given(raws(), st.data())
def test_the_last_samples_of_the_day_are_known_at_any_time(raw, data):
    so_far = np.full_like(raw, ABSENT)
    with Day(len(raw) - 2, raw.shape[1]) as file:
        for batch in data.draw(batches(raw)):
            file.store(batch)
            so_far[batch[:, 0], batch[:, 1]] = batch[:, 2]
            expected = [next((v for v in column[::-1] if v != ABSENT), ABSENT) for column in so_far[1:-1].T.tolist()]
            assert file.counter.last_samples().tolist() == expected


class TestSealedRaw:
    """A file that was sealed and unsealed: it has only the kept samples of raw, and all cells."""

    @given(raws(), st.data())
    def test_no_filled_cell_becomes_missing(self, raw, data):
        other = data.draw(raws(shape=st.just(raw.shape)))
        with Day(len(raw) - 2, raw.shape[1]) as file:
            file.store(samples_of(raw))
            file.seal()
            for batch in data.draw(batches(other)):
                filled = ~np.signbit(file.get()[0])
                changes = file.store(batch)
                assert not np.signbit(file.get()[0][filled]).any()
                assert not np.isnan(changes.value).any()

    @given(raws(growing), st.data())
    def test_what_is_collected_again_changes_no_cell(self, raw, data):
        """Without the sample before it, a sample closes no cell: the one before it in raw may be hours away."""
        with Day(len(raw) - 2, raw.shape[1]) as file:
            file.store(samples_of(raw))
            file.seal()
            for batch in data.draw(batches(raw)):
                assert len(file.store(batch).row) == 0

    @given(raws(growing), st.data())
    def test_a_day_sealed_in_its_middle_and_continued_is_that_of_one_run(self, raw, data):
        """Gaps are closed by their total, also across the seam."""
        seam = data.draw(st.integers(1, len(raw) - 1))
        with Day(len(raw) - 2, raw.shape[1]) as file:
            file.store(samples_of(raw, range(seam)))
            file.seal()
            file.store(samples_of(raw, range(seam, len(raw))))
            assert file.bits()[0] == whole(raw)[0]

    @pytest.mark.parametrize("seam", [2, 20, 39])
    def test_a_long_gap_at_the_seam_is_closed_by_its_total(self, seam):
        raw = np.full((50, 1), ABSENT)
        raw[[1, 40, 41], 0] = 5, 60, 63
        with Day(48, 1) as file:
            file.store(samples_of(raw, range(seam)))
            file.seal()
            file.store(samples_of(raw, range(seam, 50)))
            assert file.bits()[0] == whole(raw)[0]

    def test_a_window_in_a_long_lost_run_closes_no_cell_with_the_edge_before_it(self):
        raw = np.arange(10, 510, 10)[:, None]
        with Day(48, 1) as file:
            file.store(samples_of(raw))
            file.seal()
            for window in (range(30, 33), range(20, 23), range(40, 43)):
                assert len(file.store(samples_of(raw, window)).row) == 0

    def test_a_sample_before_the_first_one_left_is_joined_to_the_day_before(self):
        raw = np.full((14, 1), ABSENT)
        raw[[0, 5, 10, 11], 0] = 100, 120, 150, 151
        with Day(12, 1) as file:
            file.store(samples_of(raw, [0, 10, 11]))
            file.seal()
            file.store(samples_of(raw, [5]))
            assert file.bits()[0] == whole(raw)[0]

    def test_cells_that_no_sample_is_left_of_are_not_replaced_by_the_difference_to_the_day_before(self):
        with Day(40, 1) as file:
            file.put(np.ones((40, 1)), np.full((42, 1), ABSENT), np.full((2, 1), NO_ROW))
            file.reopen(keep=True)
            file.store(np.array([[0, 0, 100]]))
            changes = file.store(np.array([[20, 0, 500], [21, 0, 600], [22, 0, 800]]))
            assert (changes.row.tolist(), changes.value.tolist()) == ([19, 20], [100, 200])

    def test_a_hole_filled_with_the_samples_next_to_it_is_filled_completely(self):
        raw = np.arange(10, 210, 10)[:, None]
        holed = raw.copy()
        holed[8:12] = ABSENT
        with Day(18, 1) as file:
            file.store(samples_of(holed))
            file.seal()
            file.store(samples_of(raw, range(7, 13)))
            assert file.bits()[0] == whole(raw)[0]


def test_zeros_appended_before_a_guard_that_moves_leave_it_the_base_from_before_all_zeros():
    raw = np.array([ABSENT, 5, 6, 7, *[0] * 20, 30])[:, None]
    with Day(23, 1) as file:
        file.store(samples_of(raw, [*range(1, 23), 24]))
        file.store(samples_of(raw, [23]))
        assert file.bits() == whole(raw)


@pytest.mark.parametrize("guard", [30, 3, 0, ABSENT])
def test_late_samples_before_a_counter_fell_to_zero_for_good_reach_the_next_day_where_it_wakes_above_them(guard):
    raw = np.array([ABSENT, 5, 6, 7, *[0] * 40, guard])[:, None]
    with Day(43, 1) as file:
        file.store(samples_of(raw, [1, *range(4, 45)]))
        file.store(samples_of(raw, [2, 3]))
        assert file.bits() == whole(raw)


def test_samples_that_a_loss_of_power_left_in_span_alone_are_no_samples():
    raw = np.array([ABSENT, *range(1, 24), ABSENT])[:, None]
    with Day(23, 1) as file:
        file.store(samples_of(raw))
        file.raw.write_rows(5, np.full((19, 1), ABSENT))
        for _ in range(3):
            file.store(samples_of(raw, [4]))
        file.store(samples_of(raw, range(5, 24)))
        assert file.bits() == whole(raw)


def test_storing_nothing_changes_nothing():
    with Day(3, 1) as file:
        before = file.bits()
        changes = file.store(np.empty((0, 3), np.int64))
        assert (len(changes.row), len(changes.column), len(changes.value), file.bits()) == (0, 0, 0, before)


class TestCost:
    """What is read is counted, not timed: a row of this day is 80 bytes."""

    ROWS, WIDTH = 2000, 10

    @pytest.fixture
    def files(self):
        return KillableFiles()

    @pytest.fixture
    def file(self, files):
        with Day(self.ROWS, self.WIDTH, files) as file:
            yield file

    def raw(self):
        """A full day with a column always absent, one always zero, one at zero since the morning, one absent since, and four dirty."""
        random = np.random.default_rng(2)
        raw = np.cumsum(random.integers(0, 9, (self.ROWS + 2, self.WIDTH)), axis=0) + 1
        raw[:, 0], raw[:, 1], raw[500:, 2], raw[500:, 3] = ABSENT, 0, 0, ABSENT
        raw[random.random(raw.shape) < [0, 0, 0, 0, 0.1, 0.1, 0, 0, 0, 0]] = ABSENT
        raw[random.random(raw.shape) < [0, 0, 0, 0, 0, 0, 0.1, 0.1, 0, 0]] = 0
        raw[[0, -1]] = ABSENT
        return raw

    def rows_read(self, file, files, batch):
        files.read_bytes = 0
        file.store(batch)
        return files.read_bytes / 8 / self.WIDTH

    def test_a_window_appended_reads_some_rows_however_long_columns_stand_at_zero_or_are_absent(self, file, files):
        raw = self.raw()
        file.store(samples_of(raw, range(1, 1500)))
        assert self.rows_read(file, files, samples_of(raw, range(1500, 1512))) < 150

    def test_a_late_window_reads_some_rows_around_it(self, file, files):
        raw = self.raw()
        raw[500:, 2] = raw[500:, 4]
        file.store(samples_of(raw, [*range(1, 1500), *range(1512, 2001)]))
        assert self.rows_read(file, files, samples_of(raw, range(1500, 1512))) < 300
        assert file.bits() == whole(raw)

    def test_a_late_window_before_a_counter_fell_to_zero_for_good_recomputes_some_rows_around_it(self, file, monkeypatch):
        raw, fed = self.raw(), []
        file.store(samples_of(raw, [*range(1, 300), *range(312, 2001)]))
        monkeypatch.setattr(Deltas, "feed", lambda self, rows, feed=Deltas.feed: fed.append(len(rows)) or feed(self, rows))
        file.store(samples_of(raw, range(300, 312)))
        assert sum(fed) < 300
        assert file.bits() == whole(raw)

    def test_the_first_window_of_a_late_start_reads_nothing_of_the_day(self, file, files):
        raw = self.raw()
        assert self.rows_read(file, files, samples_of(raw, range(1500, 1512))) < 60

    @pytest.mark.parametrize("order", [1, -1])
    def test_filling_a_hole_window_by_window_reads_the_hole_once(self, file, files, order):
        raw = self.raw()[:, 8:].repeat(5, axis=1)
        file.store(samples_of(raw, [*range(1, 201), *range(1801, 2001)]))
        windows = [range(start, start + 10) for start in range(201, 1801, 10)][::order]
        first = self.rows_read(file, files, samples_of(raw, windows[0]))
        later = [self.rows_read(file, files, samples_of(raw, window)) for window in windows[1:]]
        assert first > 1600
        assert max(later) < 150
        assert file.bits() == whole(raw)

    def test_the_guard_after_a_day_that_ended_early_reads_some_rows_next_to_its_last_samples(self, file, files):
        raw = self.raw()[:, 8:].repeat(5, axis=1)
        file.store(samples_of(raw, range(1, 500)))
        raw[500:-1], raw[-1] = ABSENT, raw[499] + 5
        assert self.rows_read(file, files, samples_of(raw, [self.ROWS + 1])) < 50
        assert file.bits() == whole(raw)

    def test_the_guards_of_a_full_day_read_some_rows_next_to_them(self, file, files):
        raw = self.raw()
        raw[:, 2:4] = raw[:, 8:]
        file.store(samples_of(raw))
        raw[0], raw[-1] = 1, raw[-2] + (raw[-2] >= 0)
        assert self.rows_read(file, files, samples_of(raw, [0])) < 150
        assert self.rows_read(file, files, samples_of(raw, [self.ROWS + 1])) < 150
        assert file.bits() == whole(raw)
