"""The gap is only a hint, and never hides a row that may hold a sample."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tokiod.tts.counters.affected_rows import Gap

ROWS = 30
runs = st.tuples(st.integers(1, ROWS), st.integers(1, ROWS)).map(sorted)


def gap_of(run):
    gap = Gap()
    gap.start, gap.stop = run
    return gap


def rows_of(pieces):
    return [row for piece in pieces for row in range(*piece)]


@given(runs, runs)
def test_around_the_gap_are_all_rows_but_its_own(run, asked):
    assert rows_of(gap_of(run).around(*asked)) == [row for row in range(*asked) if row not in range(*run)]


@given(runs, st.integers(1, ROWS), st.integers(1, 9))
def test_before_and_behind_a_row_outside_the_gap_as_many_rows_are_left_as_asked_for(run, row, count):
    gap = gap_of(run)
    if row <= gap.start or row >= gap.stop:
        assert len(rows_of(gap.around(gap.before(row, count), row))) == count
        assert len(rows_of(gap.around(row, gap.behind(row, count)))) == count


@given(runs, runs)
def test_after_shrinking_the_wider_rest_without_the_given_up_rows_is_left(run, stored):
    gap = gap_of(run)
    gap.shrink(*stored)
    below, above = ([row for row in range(*run) if row < stored[0]], [row for row in range(*run) if row >= stored[1]])
    assert list(range(gap.start, gap.stop)) == max(below, above, key=len)


@given(runs, runs, st.sets(st.integers(1, ROWS)))
def test_widening_takes_the_widest_run_without_a_sample_if_it_is_wider(run, looked, sampled):
    gap = gap_of(run)
    inside = sorted(sampled & set(range(*looked)) - set(range(*run)))
    gap.widen(looked[0], inside, looked[1])
    edges = [looked[0] - 1, *inside, looked[1]]
    widest = max(b - a - 1 for a, b in pairwise(edges))
    assert gap.stop - gap.start == max(widest, run[1] - run[0])
    assert not set(range(gap.start, gap.stop)) & set(inside)
