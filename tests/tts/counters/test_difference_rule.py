"""The vectorised rule of differences is held against the slow one, bit by bit."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import example as played
from hypothesis import given
from hypothesis import strategies as st

from tokiod.simulator.oracle import State, run
from tokiod.tts.counters.difference_rule import (
    BASE,
    BASE_ROW,
    CANDIDATE,
    CANDIDATE_ROW,
    LARGEST,
    ZERO_ROW,
    Differences,
    Rule,
    day,
    empty_state,
    in_rows_of,
    is_anchored,
    next_day,
)
from tokiod.tts.schema import ABSENT, MISSING

# Few different values, so that equal ones, dips, resets and zeros are common; and some that float64 can't hold.
values = st.one_of(st.integers(1, 6), st.just(0), st.sampled_from([2**53, 2**53 + 1, 2**53 + 3, LARGEST - 1, LARGEST]))
samples = st.one_of(values, st.just(ABSENT))
limits = st.sampled_from([LARGEST, LARGEST - 1, 2**61, 2**53 + 1, 3, 2, 1, 0])
reaches = st.sampled_from([1, 2, 3, 5, 40, 10_000])
rules = st.builds(Rule, max_step=limits, reach=reaches)
ANY = Rule()


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
def falling(draw, rows):
    """A counter that nearly always falls, so that a base goes out of reach."""
    column = [ABSENT if step == 0 else 1000 - 10 * row + step for row, step in enumerate(draw(st.lists(st.integers(0, 12), min_size=rows)))]
    return column[:rows]


@st.composite
def raws(draw, most_rows=40):
    """Raw rows, i8[rows, columns]."""
    rows, columns = draw(st.integers(1, most_rows)), draw(st.integers(1, 4))
    column = st.one_of(st.lists(samples, min_size=rows, max_size=rows), growth(rows), falling(rows))
    return np.array(draw(st.lists(column, min_size=columns, max_size=columns)), dtype=np.int64).T.copy()


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
    return np.array(columns, np.int64).reshape(-1, 5).T


def expected(raw, rule, states=None, first=0):
    """What the slow rule makes of each column: cells, implausible (row, column), and states."""
    cells, implausible, after = np.full(raw.shape, MISSING), [], []
    for column, state in enumerate(states or [State()] * raw.shape[1]):
        present = [(first + row, value) for row, value in enumerate(raw[:, column].tolist()) if value != ABSENT]
        found, far, last = run(present, state, rule.max_step, rule.reach)
        for row, value in found.items():
            cells[row - first, column] = value
        implausible += [(row, column) for row in far]
        after.append(last)
    return cells, sorted(implausible), after


def bits(cells):
    return np.asarray(cells, np.float64).view(np.int64).tolist()


def assert_same(raw, rule, states=None, first=0):
    differences = Differences(as_array(states) if states else empty_state(raw.shape[1]), first, rule)
    cells, implausible = differences.feed(raw)
    want_cells, want_implausible, want_states = expected(raw, rule, states, first)
    assert bits(cells) == bits(want_cells)
    assert sorted(map(tuple, implausible.T.tolist())) == want_implausible
    assert differences.state.tolist() == as_array(want_states).tolist()
    return want_states


EXAMPLES = {
    "0 0 0 5e12 5000000000007": "0 0 - 7",
    "667e9 0 0 668e9 669e9": "- 0 1e9 1e9",
    "1001e9 1002e9 668e9 1004e9 1005e9": "1e9 - 2e9 1e9",
    "1001e9 1002e9 - 668e9 1005e9": "1e9 - - 3e9",
    "1001e9 0 0 668e9 1005e9": "- 0 - 4e9",
    "7e12 7000000000001 0 0 5e12 5000000000007": "1 - 0 - 7",
    "7e12 0 62537728 774221064": "- 62537728 711683336",
    "1e9 1000000005 868 0 874 880": "5 - - 6 6",
    "1e9 868 868 868 900": "- 0 0 32",
    "10 0 0 5 20 30": "- 0 5 15 10",
    "7e12 3e12 4e12 7000000000009 7000000000010": "- - - 1",
    "100e9 5e15 101e9 102e9": "- - 1e9",
    "5000 0 0 3 5": "- 0 3 2",
    "10 5 20 30": "- 10 10",
}


def number(word):
    return ABSENT if word == "-" else int(float(word)) if "e" in word else int(word)


def example(words):
    return np.array([[number(word)] for word in words.split()], np.int64)


@pytest.mark.parametrize("words", EXAMPLES)
@pytest.mark.parametrize("split", range(6))
def test_an_example_of_the_design_gives_its_cells_wherever_midnight_falls(words, split):
    """Samples 5 s apart of an OST, of which at most 5e10 bytes/s are plausible. 7e12, 3e12, 4e12: see the next test."""
    raw, rule = example(words), Rule.of(5, 5e10)
    before = Differences(empty_state(1), 0, rule)
    cells = before.feed(raw[:split])[0]
    after = Differences(next_day(before.state, split, rule.reach), 0, rule)
    found = np.concatenate([cells, after.feed(raw[split:])[0]])[1:, 0]
    want = [number(word) for word in EXAMPLES[words].split()]
    if words.startswith("7e12 3e12"):
        want[1] = ABSENT  # 1e12 in 5 s
    assert [ABSENT if np.signbit(cell) else int(cell) for cell in found.tolist()] == want


def test_a_dip_of_two_is_a_confirmed_reset_where_that_is_plausible():
    cells = Differences(empty_state(1), 0, ANY).feed(example("7e12 3e12 4e12 7000000000009 7000000000010"))[0]
    assert bits(cells[1:, 0]) == bits([MISSING, 1e12, 3e12 + 9, 1])


@given(raws(), rules)
def test_any_rows_are_what_the_slow_rule_says_bit_by_bit(raw, rule):
    assert_same(raw, rule)


@given(raws(), raws(), rules, st.integers(1, 50), st.integers(-5, 5))
def test_any_rows_after_any_others_are_what_the_slow_rule_says(past, raw, rule, apart, first):
    past = np.resize(past, (len(past), raw.shape[1]))
    states = assert_same(past, rule, first=first - apart - len(past))
    assert_same(raw, rule, states, first)


@given(raws(), rules, st.data())
def test_cutting_the_rows_anywhere_changes_nothing(raw, rule, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    whole, pieces = (Differences(empty_state(raw.shape[1]), 0, rule) for _ in range(2))
    cells, implausible = whole.feed(raw)
    fed = [pieces.feed(piece) for piece in np.split(raw, cuts)]
    assert bits(np.concatenate([part for part, _ in fed])) == bits(cells)
    assert np.sort(np.concatenate([part for _, part in fed], axis=1)).tolist() == np.sort(implausible).tolist()
    assert pieces.state.tolist() == whole.state.tolist()


@given(raws(), rules, st.data())
def test_cutting_the_rows_into_days_changes_nothing(raw, rule, data):
    """Each day takes the state of the day before, in its own rows, and has its last cell from the next day's first sample."""
    days = np.split(raw, sorted(set(data.draw(st.lists(st.integers(1, len(raw) - 1), max_size=4))))) if len(raw) > 1 else [raw]
    whole = Differences(empty_state(raw.shape[1]), 0, rule).feed(raw)[0]
    state, cells = empty_state(raw.shape[1]), []
    for here, after in zip(days, [*days[1:], np.full((1, raw.shape[1]), ABSENT)], strict=True):
        found, state, _ = day(np.concatenate([here, after[:1]]), state, rule)
        state = next_day(state, len(here), rule.reach)
        cells.append(found)
    assert bits(np.concatenate(cells)[:-1]) == bits(whole[1:])


@given(raws(), rules)
def test_a_state_is_that_of_its_own_samples_alone(raw, rule):
    """Base, candidate and zero, fed to an empty state in this order, give the state again."""
    for state in expected(raw, rule)[2]:
        rows = [*filter(None, (state.base, state.candidate)), *([] if state.zero is None else [(state.zero, 0)])]
        assert run(rows, max_step=rule.max_step, reach=rule.reach)[2] == state


def test_every_short_sequence_of_small_numbers_is_what_the_slow_rule_says():
    raw = np.array(list(product([ABSENT, 0, 1, 2, 3, 9], repeat=6)), dtype=np.int64).T.copy()
    for rule in (ANY, Rule(2, 3), Rule(4, 1), Rule(2, 2)):
        assert_same(raw, rule)


def test_rows_of_many_slabs_are_what_the_slow_rule_says():
    random = np.random.default_rng(1)
    raw = np.cumsum(random.integers(0, 1000, (1200, 9)), axis=0) + 2**54
    raw[random.random(raw.shape) < [0, 0.01, 0.5, 0, 0, 0, 1, 0.9, 0]] = ABSENT
    raw[random.random(raw.shape) < [0, 0, 0, 0.02, 0, 0.9, 0, 1, 1]] = 0
    raw[700:, 4] -= raw[699, 4] - 1
    raw[400:800, 5] = ABSENT
    for rule in (ANY, Rule(900, 10_000), Rule(10**6, 300), Rule(10**6, 20), Rule(10**6, 2)):
        assert_same(raw, rule)


@given(st.lists(samples, max_size=12), st.lists(samples, max_size=12), rules)
def test_after_an_anchor_the_state_is_the_anchor_whatever_came_before(past, between, rule):
    """A nonzero sample that is not below the nonzero one before it; zeros and absent rows may lie between."""
    idle = [value for value in between if value in (0, ABSENT)]
    raw = np.array([*past, 5, *idle, 7], np.int64)[:, None]
    differences = Differences(empty_state(1), 0, rule)
    differences.feed(raw)
    assert differences.state[:, 0].tolist() == [7, len(raw) - 1, ABSENT, ABSENT, ABSENT]


@given(raws(most_rows=12))
def test_an_anchor_is_found_exactly_where_the_definition_has_one(raw):
    def slow(column):
        nonzero = [value for value in column if value > 0]
        return any(v >= p for p, v in pairwise(nonzero))

    assert is_anchored(raw).tolist() == [slow(column) for column in raw.T.tolist()]


def test_fewer_than_two_rows_hold_no_anchor():
    assert is_anchored(np.empty((0, 2), np.int64)).tolist() == [False, False]
    assert is_anchored(np.array([[5], [0]])).tolist() == [False]


@given(raws(), st.data(), rules)
def test_late_samples_change_nothing_before_an_anchor_before_them_or_after_one_after_them(raw, data, rule):
    """Both the anchor and its predecessor are before the first late sample, or after the last one."""
    late = raw.copy()
    first, last = sorted(data.draw(st.tuples(st.integers(0, len(raw) - 1), st.integers(0, len(raw) - 1))))
    late[first : last + 1] = ABSENT
    with_late, without = (expected(rows, rule)[0] for rows in (raw, late))
    for column in range(raw.shape[1]):
        ends = [row for row in range(last + 1, len(raw) + 1) if is_anchored(raw[last + 1 : row, [column]])[0]]
        if ends:  # the anchor in row ends[0] - 1 closes the last cell that may change
            assert bits(with_late[ends[0] :, column]) == bits(without[ends[0] :, column])
        begins = [row for row in range(first) if is_anchored(raw[row:first, [column]])[0]]
        if begins:
            part = slice(begins[-1], last + 1)
            fresh, _, state = expected(raw[part, [column]], rule, first=begins[-1])
            after = slice(first - begins[-1], None)
            assert bits(fresh[after]) == bits(with_late[part, [column]][after])
            assert state == expected(raw[: last + 1, [column]], rule)[2]


@given(raws(), st.integers(1, 1000), st.floats(0, 1e15), reaches)
def test_no_cell_exceeds_max_rate_over_its_time(raw, step, max_rate, reach):
    rule = Rule(Rule.of(step, max_rate).max_step, reach)
    assert (Differences(empty_state(raw.shape[1]), 0, rule).feed(raw)[0] <= max_rate * step * min(reach, len(raw)) * (1 + 1e-15)).all()


@pytest.mark.parametrize(("step", "reach"), [(5, 16_560), (10, 8_280), (60, 1_380), (3600, 23), (86_400, 0)])
def test_a_difference_reaches_over_the_shortest_day(step, reach):
    assert Rule.of(step).reach == reach


def test_a_difference_over_a_long_outage_is_one_cell_up_to_reach():
    raw = np.full((30, 2), ABSENT)
    raw[0], raw[23, 0], raw[24, 1] = 100, 150, 150
    cells = Differences(empty_state(2), 0, Rule.of(3600)).feed(raw)[0]
    assert np.argwhere(~np.signbit(cells)).tolist() == [[23, 0]]
    assert cells[23, 0] == 50


def test_an_implausible_jump_costs_one_cell_and_is_reported():
    raw = np.array([[10, 10], [1000, 11], [1001, 12]])
    cells, implausible = Differences(empty_state(2), 40, Rule(50)).feed(raw)
    assert bits(cells) == bits([[MISSING, MISSING], [MISSING, 1], [1, 1]])
    assert implausible.tolist() == [[41], [0]]


def test_a_limit_beyond_64_bits_is_exact():
    assert Rule.of(5, 1e30).max_step == LARGEST
    elapsed = np.array([1, 2, 3, 2**40])
    assert Rule(2**61).is_plausible(np.full(4, LARGEST), elapsed).tolist() == [False, False, False, True]
    assert Rule(2**61).is_plausible(np.array([2**61, 2**62 + 1, 2**62]), np.array([1, 2, 2])).tolist() == [True, False, True]
    assert Rule(0).is_plausible(np.array([0, 1]), np.array([7, 7])).tolist() == [True, False]


def test_differences_beyond_what_float64_counts_are_exact():
    raw = np.array([[2**53 + 1], [2**53 + 2], [LARGEST - 1], [LARGEST], [LARGEST]])
    assert bits(Differences(empty_state(1), 0, ANY).feed(raw)[0][1:, 0]) == bits([1, float(LARGEST - 2**53 - 3), 1, 0])


def test_a_measured_zero_is_plus_zero_and_a_missing_cell_minus_zero():
    cells = Differences(empty_state(1), 0, ANY).feed(np.array([[7], [7], [0], [0]]))[0]
    assert np.signbit(cells[:, 0]).tolist() == [True, False, True, False]


def test_feeding_no_rows_closes_no_cell_and_changes_no_state():
    state = np.array([[5], [-1], [ABSENT], [ABSENT], [ABSENT]])
    differences = Differences(state, 0, ANY)
    cells, implausible = differences.feed(np.empty((0, 1), np.int64))
    assert (cells.shape, implausible.shape, differences.row) == ((0, 1), (2, 0), 0)
    assert differences.state.tolist() == state.tolist()


def test_a_state_given_to_the_rule_is_not_changed_by_it():
    state = empty_state(1)
    Differences(state, 0, ANY).feed(np.array([[5], [6]]))
    assert state.tolist() == empty_state(1).tolist()


def test_the_state_of_the_next_day_counts_its_rows_from_there():
    state = np.array([[5, 5], [3, 3], [4, ABSENT], [4, ABSENT], [ABSENT, 6]])
    assert next_day(state, 10, 7).tolist() == [[5, 5], [-7, -7], [4, ABSENT], [-6, ABSENT], [ABSENT, -4]]
    assert (BASE, BASE_ROW, CANDIDATE, CANDIDATE_ROW, ZERO_ROW) == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("reach", "expected"), [(6, [4, -6, ABSENT, ABSENT, -4]), (4, [ABSENT, ABSENT, ABSENT, ABSENT, -4]), (3, [ABSENT] * 5)]
)
def test_what_is_out_of_reach_of_the_next_day_is_not_in_its_state(reach, expected):
    assert next_day(np.array([[5], [3], [4], [4], [6]]), 10, reach)[:, 0].tolist() == expected


@given(
    st.sampled_from([(5, 60), (60, 5), (10, 15), (1, 3600)]),
    st.lists(st.one_of(st.integers(0, 6), st.just(ABSENT)), min_size=1, max_size=40),
    st.lists(st.one_of(st.integers(0, 9), st.just(ABSENT)), min_size=1, max_size=10),
)
@played((5, 60), [5, 3], [6])
@played((5, 60), [5, 0], [6, 3])
@played((5, 60), [5, 3, 0], [5, ABSENT, 4])
def test_a_state_in_rows_of_another_step_gives_the_cells_of_one_run(steps, before, after):
    """Also where its parts come into one row: base, candidate and zero of the last minute before a day of minutes."""
    step_before, step = steps
    old = Differences(empty_state(1), -len(before), Rule.of(step_before))
    old.feed(np.array(before)[:, np.newaxis])
    new = Differences(in_rows_of(old.state, step_before, step), 0, Rule.of(step))
    cells, _ = new.feed(np.array(after)[:, np.newaxis])
    samples = [((row - len(before)) * step_before, value) for row, value in enumerate(before) if value != ABSENT]
    samples += [(row * step, value) for row, value in enumerate(after) if value != ABSENT]
    found, _, state = run(samples)
    assert cells[:, 0].tolist() == [found.get(row * step, MISSING) for row in range(len(after))]
    for part, expected in ((BASE, state.base and state.base[1]), (CANDIDATE, state.candidate and state.candidate[1])):
        assert new.state[part, 0] == (ABSENT if expected is None else expected)
    assert (new.state[ZERO_ROW, 0] == ABSENT) == (state.zero is None)


@pytest.mark.parametrize(
    ("steps", "rows", "expected"),
    [
        ((5, 60), [-25, -13, -1], [-3, -2, -1]),
        ((5, 60), [-3, -2, -1], [-3, -2, -1]),
        ((60, 5), [-3, -2, -1], [-36, -24, -12]),
        ((60, 5), [-1380, ABSENT, -2], [-16560, ABSENT, -24]),
        ((10, 15), [-3, ABSENT, -1], [-2, ABSENT, -1]),
    ],
)
def test_no_part_of_a_state_in_rows_of_another_step_is_later_than_it_was(steps, rows, expected):
    state = np.array([[7], [rows[0]], [ABSENT if rows[1] == ABSENT else 5], [rows[1]], [rows[2]]])
    assert in_rows_of(state, *steps)[[BASE_ROW, CANDIDATE_ROW, ZERO_ROW], 0].tolist() == expected


def test_what_is_out_of_reach_in_rows_of_another_step_is_not_in_the_state():
    """A row of 3600 seconds that begins 23 hours before the day is in reach of it, one that begins 24 hours before is not."""
    last, none = -23 * 60, ABSENT
    state = np.array(
        [[5, 5, none, none], [last, last - 1, none, none], [none, 4, none, none], [none, -2, none, none], [none, none, last, last - 1]]
    )
    expected = [[5, 4, none, none], [-23, -1, none, none], [none] * 4, [none] * 4, [none, none, -23, none]]
    assert in_rows_of(state, 60, 3600).tolist() == expected
