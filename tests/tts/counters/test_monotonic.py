"""Whole rows stored after or between all others leave the same bytes, and return the same changes, as the general path."""

import numpy as np
import pytest
from counter_day import Day
from hypothesis import given
from hypothesis import strategies as st

from tokiod.tts.schema import ABSENT

WIDTH = 2
ROWS = 40

# Falls are rare: one in any column sends the window, and those after it, the general way.
steps = st.sampled_from([0, 0, 1, 1, 1, 2, 2, 5, 5, 5, 7, 7, 9, 9, 100, 100, -1, -(10**6)])
heights = st.lists(st.integers(1, 6), min_size=1, max_size=9)


def counts(draw_steps, rows):
    """Return i8[rows, WIDTH] that follow the steps, never below zero."""
    value, out = np.zeros(WIDTH, np.int64), []
    for row in range(rows):
        value = np.maximum(value + draw_steps[row], 0)
        out.append(value)
    return np.array(out)


def as_lists(changes):
    return changes.row.tolist(), changes.column.tolist(), changes.value.view(np.int64).tolist()


def both_ways(slow, fast, first, block, *, compare):
    """Store rows in both days; return the changes of each."""
    row, column = np.arange(first, first + len(block)).repeat(WIDTH), np.tile(np.arange(WIDTH), len(block))
    general = slow.counter.store(row, column, block.ravel(), compare=compare)
    return as_lists(general), as_lists(fast.counter.store_rows(first, block, compare=compare))


@given(st.data(), heights, st.booleans())
def test_both_ways_leave_the_same_bytes_and_tell_the_same(data, heights, compare):
    grid = st.lists(st.tuples(*[steps] * WIDTH).map(np.array), min_size=sum(heights), max_size=sum(heights))
    values = counts(data.draw(grid), sum(heights))
    guards = data.draw(st.tuples(*[st.sampled_from([None, 0, 3, 10])] * 2))
    with Day(ROWS + 20, WIDTH) as slow, Day(ROWS + 20, WIDTH) as fast:
        for row, guard in zip((0, slow.counter.last_row), guards, strict=True):
            if guard is not None:
                both_ways(slow, fast, row, np.full((1, WIDTH), guard), compare=compare)
        first, at = data.draw(st.integers(1, 4)), 0
        for height in heights:
            # Sometimes a hole, or rows that come again.
            first = max(1, first + data.draw(st.sampled_from([0, 0, 0, 0, 1, -2])))
            general, onward = both_ways(slow, fast, first, values[at : at + height], compare=compare)
            assert general == onward
            assert slow.bits() == fast.bits()
            first, at = first + height, at + height


@given(st.data(), st.integers(1, 6))
def test_both_ways_agree_wherever_three_rows_of_any_kind_came_before(data, height):
    row = st.tuples(*[st.sampled_from([ABSENT, 0, 0, 1, 2, 3])] * WIDTH)
    before = np.array(data.draw(st.lists(row, min_size=3, max_size=6)))
    rising = data.draw(st.lists(st.tuples(*[st.integers(0, 2)] * WIDTH), min_size=height, max_size=height))
    block = np.maximum(before[-1], 0) + np.cumsum(np.array(rising), axis=0)
    with Day(ROWS, WIDTH) as slow, Day(ROWS, WIDTH) as fast:
        for day in (slow, fast):
            place = np.nonzero(before >= 0)
            day.counter.store(place[0] + 1, place[1], before[place])
        general, onward = both_ways(slow, fast, len(before) + 1, block, compare=True)
        assert general == onward
        assert slow.bits() == fast.bits()


@given(st.data(), st.integers(1, 4), st.booleans())
def test_both_ways_agree_in_the_middle_of_rows_of_any_kind(data, height, compare):
    grid = st.lists(st.tuples(*[steps] * WIDTH).map(np.array), min_size=24, max_size=24)
    values = 3 + counts(data.draw(grid), 24)
    odd = data.draw(st.lists(st.tuples(st.integers(0, 23), st.integers(0, WIDTH - 1), st.sampled_from([ABSENT, 0, 2])), max_size=3))
    for row, column, value in odd:
        values[row, column] = value
    first = data.draw(st.integers(1, 24 - height))
    earlier, later = values[:first][-1], values[first + height - 1 :][0]
    rising = np.linspace(np.maximum(earlier, 0), np.maximum(later, 0), height + 1).astype(np.int64)[1:]
    block = data.draw(st.sampled_from([rising, rising + 1, rising + 50, np.maximum(rising - 5, 0)]))
    with Day(24, WIDTH) as slow, Day(24, WIDTH) as fast:
        for day in (slow, fast):
            place = np.nonzero(values >= 0)
            day.counter.store(place[0] + 1, place[1], values[place])
        general, between = both_ways(slow, fast, first, block, compare=compare)
        assert general == between
        assert slow.bits() == fast.bits()


@given(st.data(), st.integers(1, 3))
def test_both_ways_agree_in_the_middle_wherever_rows_of_any_kind_are_around(data, height):
    row = st.tuples(*[st.sampled_from([ABSENT, 0, 0, 0, 1, 2, 3])] * WIDTH)
    before = np.array(data.draw(st.lists(row, min_size=3, max_size=6)))
    rising = np.array(data.draw(st.lists(st.tuples(*[st.integers(0, 2)] * WIDTH), min_size=height + 5, max_size=height + 5)))
    values = np.concatenate([before, np.maximum(before[-1], 0) + np.cumsum(rising, axis=0)])
    later = data.draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, WIDTH - 1), st.sampled_from([ABSENT, 0, 1])), max_size=1))
    for place, column, value in later:
        values[len(before) + height + place, column] = value
    block = values[len(before) : len(before) + height]
    old = block + data.draw(st.sampled_from([0, 1, 20]))
    with Day(ROWS, WIDTH) as slow, Day(ROWS, WIDTH) as fast:
        for day in (slow, fast):
            stored = np.concatenate([before, old, values[len(before) + height :]])
            place = np.nonzero(stored >= 0)
            day.counter.store(place[0] + 1, place[1], stored[place])
        general, between = both_ways(slow, fast, len(before) + 1, block, compare=True)
        assert general == between
        assert slow.bits() == fast.bits()


def test_a_rising_window_in_the_middle_is_stored_without_a_search_for_anchors(monkeypatch):
    with Day(ROWS, WIDTH) as slow, Day(ROWS, WIDTH) as fast:
        values = 10 * np.arange(1, ROWS + 1).repeat(WIDTH).reshape(ROWS, WIDTH)
        both_ways(slow, fast, 1, values, compare=True)
        slow.counter.store_rows(12, values[11:15] + 3)
        monkeypatch.setattr(type(fast.counter), "_compute", None)
        fast.counter.store_rows(12, values[11:15] + 3)
        assert slow.bits() == fast.bits()


@pytest.mark.parametrize("start", [0, 7])
def test_rising_and_never_moved_columns_are_stored_without_a_search_for_anchors(start, monkeypatch):
    with Day(ROWS, WIDTH) as day:
        block = start + np.arange(5 * WIDTH).reshape(5, WIDTH) * bool(start)
        day.counter.store_rows(1, block)
        monkeypatch.setattr(type(day.counter), "_compute", None)
        day.counter.store_rows(6, block + (100 if start else 0))


def test_rows_that_are_stored_again_keep_all_rows_after_them():
    with Day(ROWS, WIDTH) as slow, Day(ROWS, WIDTH) as fast:
        block = 5 + np.arange(12 * WIDTH).reshape(12, WIDTH)
        both_ways(slow, fast, 1, block, compare=True)
        general, onward = both_ways(slow, fast, 6, block[5:8] + 1, compare=True)
        assert general == onward
        assert slow.bits() == fast.bits()
        assert fast.span.read(1, 2)[0].tolist() == [12] * WIDTH


@pytest.mark.parametrize("guard", [0, 50])
def test_the_cell_that_the_next_day_closes_follows_the_new_last_sample(guard):
    with Day(ROWS, WIDTH) as slow, Day(ROWS, WIDTH) as fast:
        both_ways(slow, fast, slow.counter.last_row, np.full((1, WIDTH), guard), compare=True)
        both_ways(slow, fast, 1, np.zeros((4, WIDTH), np.int64), compare=True)
        general, onward = both_ways(slow, fast, 5, np.full((1, WIDTH), 3), compare=True)
        assert general == onward
        assert slow.bits() == fast.bits()


@pytest.mark.parametrize("before", [[8, 12, 5], [9, 12, 0], [12, 12, 7], [8, 12, 12]])
def test_after_a_dip_differences_are_taken_from_the_value_before_it(before):
    with Day(ROWS, WIDTH) as slow, Day(ROWS, WIDTH) as fast:
        both_ways(slow, fast, 1, np.repeat([[1], [2], *([value] for value in before)], WIDTH, axis=1), compare=True)
        general, onward = both_ways(slow, fast, 6, np.repeat([[13], [15]], WIDTH, axis=1), compare=True)
        assert general == onward
        assert slow.bits() == fast.bits()


@pytest.mark.parametrize("place", range(-5, 8))
@pytest.mark.parametrize("odd", [ABSENT, 0, 1])
def test_both_ways_agree_in_the_middle_with_one_odd_sample_at_any_place_around(place, odd):
    first, height = 12, 3
    values = 100 + 10 * np.arange(ROWS).repeat(WIDTH).reshape(ROWS, WIDTH)
    block = values[first : first + height].copy()
    if not 0 <= place < height:
        values[first + place, 1] = odd
    with Day(ROWS, WIDTH) as slow, Day(ROWS, WIDTH) as fast:
        for day in (slow, fast):
            stored = np.nonzero(values >= 0)
            day.counter.store(stored[0] + 1, stored[1], values[stored])
        general, between = both_ways(slow, fast, first + 1, block, compare=True)
        assert general == between
        assert slow.bits() == fast.bits()
