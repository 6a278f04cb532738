"""Deltas are held against the slow and obvious oracle, bit by bit."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokiod.simulator import oracle
from tokiod.tts.counters.deltas import Deltas, anchored, day
from tokiod.tts.schema import ABSENT, MISSING

LARGEST = 2**63 - 1
# Few different values, so that equal ones, dips, resets and zeros are common; and some that float64 can't hold.
values = st.one_of(st.integers(1, 6), st.just(0), st.sampled_from([2**53, 2**53 + 1, 2**53 + 3, LARGEST - 1, LARGEST]))
samples = st.one_of(values, st.just(ABSENT))


@st.composite
def growth(draw, rows):
    """A counter as they are: growing, now and then standing still, set to zero, dipping, reset or absent."""
    value, column = draw(st.integers(0, 2**60)), []
    for step in draw(st.lists(st.integers(-4, 40), min_size=rows, max_size=rows)):
        value += max(step, 0)
        column.append({-1: 0, -2: value // 2, -3: ABSENT}.get(step, value))
        value = value // 3 if step == -4 else value
    return column


@st.composite
def days(draw, most_rows=40):
    """Raw rows of a day with both guards, i8[rows + 2, columns]."""
    rows, columns = draw(st.integers(1, most_rows)), draw(st.integers(1, 4))
    column = st.one_of(st.lists(samples, min_size=rows + 2, max_size=rows + 2), growth(rows + 2))
    return np.array(draw(st.lists(column, min_size=columns, max_size=columns)), dtype=np.int64).T.copy()


def expected(raw):
    """What the oracle says of each column, as a matrix."""
    rows = len(raw) - 2
    cells = np.full((rows, raw.shape[1]), MISSING)
    for index, column in enumerate(raw.T.tolist()):
        own = {row: value for row, value in enumerate(column[1:-1]) if value != ABSENT}
        before, after = (None if value == ABSENT else value for value in (column[0], column[-1]))
        for row, value in oracle.cells(own, rows, before, after).items():
            cells[row, index] = value
    return cells


def bits(cells):
    return np.asarray(cells, np.float64).view(np.int64).tolist()


def one_column(*column):
    """The cells of a day of one column: guard, rows, guard; None for absent."""
    raw = np.array([[ABSENT if value is None else value] for value in column], dtype=np.int64)
    assert bits(day(raw)) == bits(expected(raw))
    return [None if np.signbit(value) else float(value) for value in day(raw)[:, 0]]


@given(days())
def test_a_day_is_what_the_oracle_says_bit_by_bit(raw):
    assert bits(day(raw)) == bits(expected(raw))


@given(days(), st.data())
def test_cutting_a_day_anywhere_changes_nothing(raw, data):
    cuts = sorted(data.draw(st.lists(st.integers(1, len(raw) - 1), max_size=6)))
    deltas = Deltas(raw[0])
    cells = [deltas.feed(piece) for piece in np.split(raw[1:-1], [cut - 1 for cut in cuts])]
    deltas.end_of_day((raw[1:-1] >= 0).any(axis=0))
    cells.append(deltas.feed(raw[-1:]))
    assert bits(np.concatenate(cells)[1:]) == bits(day(raw))


def test_a_day_longer_than_a_slab_is_what_the_oracle_says():
    random = np.random.default_rng(1)
    raw = np.cumsum(random.integers(0, 1000, (1200, 7)), axis=0) + 2**54
    raw[random.random(raw.shape) < [0, 0.01, 0.5, 0, 0, 0, 1]] = ABSENT
    raw[random.random(raw.shape) < [0, 0, 0, 0.02, 0, 0.9, 0]] = 0
    raw[700:, 4] -= raw[699, 4] - 1
    assert bits(day(raw)) == bits(expected(raw))


@given(st.lists(samples, max_size=12), st.lists(samples, max_size=12), st.sampled_from([ABSENT, 0, 3, LARGEST]), st.data())
def test_after_an_anchor_the_state_is_the_anchor_whatever_came_before(past, between, guard, data):
    """Two nonzero samples, then one not below either; zeros and absent rows may stand between."""
    p, q = data.draw(values.filter(bool)), data.draw(values.filter(bool))
    v = data.draw(values.filter(lambda v: v >= max(p, q)))
    idle = [value for value in between if value in (0, ABSENT)]
    column = [*past, p, *idle[::2], q, *idle[1::2], v]
    deltas = Deltas(np.array([guard]))
    deltas.feed(np.array(column, dtype=np.int64)[:, None])
    assert (deltas.base.tolist(), deltas.trusted.tolist(), deltas.last.tolist()) == ([v], [True], [v])


@given(days(most_rows=12))
def test_an_anchor_is_found_exactly_where_the_definition_has_one(raw):
    def slow(column):
        nonzero = [value for value in column if value > 0]
        return any(v >= p and v >= q for p, q, v in zip(nonzero, nonzero[1:], nonzero[2:], strict=False))

    assert anchored(raw).tolist() == [slow(column) for column in raw.T.tolist()]


def test_three_short_of_an_anchor_there_is_none():
    assert anchored(np.empty((0, 2), np.int64)).tolist() == [False, False]
    assert anchored(np.array([[5], [6]])).tolist() == [False]


def test_every_short_day_of_small_numbers_is_what_the_oracle_says():
    raw = np.array(list(product([ABSENT, 0, 1, 2, 3], repeat=6)), dtype=np.int64).T
    assert bits(day(raw)) == bits(expected(raw))


class TestTheRule:
    def test_a_difference_stands_in_the_row_before_the_later_sample(self):
        assert one_column(None, 10, 13, 13, 20, 21) == [3, 0, 7, 1]

    def test_the_rest_of_a_gap_stays_missing(self):
        assert one_column(None, 10, None, None, 17, None) == [None, None, 7, None]

    def test_no_byte_is_lost_at_midnight(self):
        assert one_column(100, None, None, 130, 131, None) == [None, 30, 1, None]

    def test_the_day_before_closes_no_cell_of_this_day_if_row_0_has_a_sample(self):
        assert one_column(100, 110, 130, None) == [20, None]

    def test_a_day_without_samples_has_no_cell_however_the_days_around_are(self):
        assert one_column(100, None, None, None, 200) == [None, None, None]

    def test_a_first_sample_below_the_day_before_is_a_reset(self):
        assert one_column(100, None, 99, None) == [None, None]

    def test_a_dip_of_one_sample_is_bridged(self):
        assert one_column(None, 10, 12, 5, 14, None) == [2, None, 2, None]

    def test_a_reset_counts_from_the_new_start(self):
        assert one_column(None, 10, 12, 1, 2, 4, None) == [2, None, 1, 2, None]

    def test_a_failed_over_target_counts_from_before_its_zeros(self):
        assert one_column(None, 10, 12, 0, 0, 15, None) == [2, None, 0, 3, None]

    def test_an_always_idle_counter_measures_zeros(self):
        assert one_column(0, None, 0, 0, 0, 0) == [0, 0, 0, 0]

    def test_differences_beyond_what_float64_counts_are_exact(self):
        assert one_column(None, 2**53 + 1, 2**53 + 2, LARGEST - 1, LARGEST) == [1, float(LARGEST - 2**53 - 3), 1]

    def test_the_largest_counter_standing_still_measures_zero(self):
        assert one_column(LARGEST, LARGEST, LARGEST, None, LARGEST) == [0, None, 0]


def test_a_measured_zero_is_plus_zero_and_a_missing_cell_minus_zero():
    cells = day(np.array([[ABSENT], [7], [7], [ABSENT]]))
    assert np.signbit(cells[:, 0]).tolist() == [False, True]


def test_feeding_no_rows_closes_no_cell_and_changes_no_state():
    deltas = Deltas(np.array([5]))
    assert deltas.feed(np.empty((0, 1), np.int64)).shape == (0, 1)
    assert (deltas.base.tolist(), deltas.trusted.tolist(), deltas.last.tolist()) == ([ABSENT], [False], [5])
