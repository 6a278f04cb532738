import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.ranges import Ranges
from tokiod.window import Window

EDGE = st.integers(-5, 25)
SPAN = st.tuples(EDGE, EDGE)
STEPS = st.lists(st.tuples(st.booleans(), SPAN), max_size=25)


def both(steps):
    """The same additions and removals on a Ranges and on a set of integers."""
    ranges, integers = Ranges(), set()
    for adding, (start, end) in steps:
        if adding:
            ranges.add(start, end)
            integers |= set(range(start, end))
        else:
            ranges.remove(start, end)
            integers -= set(range(start, end))
    return ranges, integers


def runs(integers):
    """The maximal runs of a set of integers, oldest first, found one integer at a time."""
    found = []
    for i in sorted(integers):
        if found and found[-1][1] == i:
            found[-1][1] = i + 1
        else:
            found.append([i, i + 1])
    return [tuple(run) for run in found]


def windows(integers):
    return [Window(*run) for run in runs(integers)]


@given(STEPS)
def test_any_sequence_of_add_and_remove_is_a_set_of_integers_in_maximal_runs(steps):
    ranges, integers = both(steps)
    assert list(ranges) == runs(integers)
    assert (len(ranges), ranges.total) == (len(runs(integers)), len(integers))


@given(STEPS, SPAN)
def test_within_and_holes_are_the_runs_that_are_there_and_those_that_are_not(steps, span):
    ranges, integers = both(steps)
    asked = set(range(*span))
    assert ranges.within(*span) == windows(integers & asked)
    assert ranges.holes(*span) == windows(asked - integers)


@given(STEPS, SPAN)
def test_the_oldest_and_the_newest_hole_are_the_first_and_the_last_of_all_holes(steps, span):
    ranges, _ = both(steps)
    holes = ranges.holes(*span)
    assert ranges.oldest_hole(*span) == (holes[0] if holes else None)
    assert ranges.newest_hole(*span) == (holes[-1] if holes else None)


@given(STEPS, EDGE, st.integers(1, 20))
def test_covers_is_true_where_every_second_is_there(steps, start, seconds):
    ranges, integers = both(steps)
    assert ranges.covers(Window(start, start + seconds)) == (set(range(start, start + seconds)) <= integers)


@given(STEPS, EDGE)
def test_reach_is_the_first_integer_from_the_start_on_that_is_missing(steps, start):
    ranges, integers = both(steps)
    missing = start
    while missing in integers:
        missing += 1
    assert ranges.reach(start) == missing


@given(STEPS)
def test_the_order_of_additions_does_not_matter(steps):
    spans = [span for _, span in steps]
    assert Ranges(spans) == Ranges(reversed(spans)) == Ranges(sorted(spans))


def test_a_copy_changes_by_itself():
    ranges = Ranges([(0, 10)])
    other = ranges.copy()
    other.remove(3, 5)
    assert (list(ranges), list(other)) == ([(0, 10)], [(0, 3), (5, 10)])


def test_ranges_say_what_they_hold_and_are_no_keys():
    assert repr(Ranges([(0, 5), (5, 7), (9, 9)])) == "Ranges([(0, 7)])"
    assert Ranges() != []
    with pytest.raises(TypeError, match="unhashable"):
        hash(Ranges())
