"""The empty is only a hint, and never hides a row that may hold a sample."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tokiod.tts.counters.affected_rows import EmptyRun

ROWS = 30
runs = st.tuples(st.integers(1, ROWS), st.integers(1, ROWS)).map(sorted)


def run_of(run):
    empty = EmptyRun()
    empty.start, empty.stop = run
    return empty


def rows_of(pieces):
    return [row for piece in pieces for row in range(*piece)]


@given(runs, runs)
def test_all_rows_but_those_of_the_run_are_outside_it(run, span):
    assert rows_of(run_of(run).outside(*span)) == [row for row in range(*span) if row not in range(*run)]


@given(runs, st.integers(1, ROWS), st.integers(1, 9))
def test_before_and_after_a_row_outside_the_run_count_rows_are_left(run, row, count):
    empty = run_of(run)
    if row <= empty.start or row >= empty.stop:
        assert len(rows_of(empty.outside(empty.before(row, count), row))) == count
        assert len(rows_of(empty.outside(row, empty.after(row, count)))) == count


@given(runs, runs)
def test_after_shrinking_the_wider_rest_without_the_given_up_rows_is_left(run, stored):
    empty = run_of(run)
    empty.shrink(*stored)
    below, above = ([row for row in range(*run) if row < stored[0]], [row for row in range(*run) if row >= stored[1]])
    assert list(range(empty.start, empty.stop)) == max(below, above, key=len)


@given(runs, runs, st.sets(st.integers(1, ROWS)))
def test_widening_takes_the_widest_run_without_a_sample_if_it_is_wider(run, looked, sampled):
    empty = run_of(run)
    inside = sorted(sampled & set(range(*looked)) - set(range(*run)))
    empty.widen(looked[0], inside, looked[1])
    edges = [looked[0] - 1, *inside, looked[1]]
    widest = max(b - a - 1 for a, b in pairwise(edges))
    assert empty.stop - empty.start == max(widest, run[1] - run[0])
    assert not set(range(empty.start, empty.stop)) & set(inside)
