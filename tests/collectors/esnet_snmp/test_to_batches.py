"""Rows are time-weighted means of the points that lie over them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collectors.esnet_snmp.to_batches import covered_rows, each_time_once, rows
from tokiod.window import Window

WINDOW = Window(600, 720)


def slow(points, interval, step, window):
    """Every second on its own."""
    found = {}
    for second in range(window.start, window.end):
        over = [t for t in points if t <= second < t + interval]
        if over:
            found.setdefault((second - window.start) // step * step + window.start, []).append(points[max(over)])
    return {row: sum(rates) / len(rates) for row, rates in found.items()}


@given(st.dictionaries(st.integers(500, 800), st.floats(0, 1e9), max_size=30), st.integers(1, 60), st.sampled_from([1, 5, 7, 20, 60]))
def test_rows_are_what_every_second_on_its_own_gives(points, interval, step):
    points = dict(sorted(points.items()))
    if interval == step:
        interval += 1
    time, mean = rows(np.array(list(points), np.int64), np.array(list(points.values()), float), interval, step, WINDOW)
    want = slow(points, interval, step, WINDOW)
    assert time.tolist() == list(want)
    np.testing.assert_allclose(mean, list(want.values()), rtol=1e-12)


def test_a_point_is_its_rows_where_both_are_as_long():
    time, rate = rows(np.array([599, 603, 633, 720]), np.array([1.0, -0.0, 3.0, 4.0]), 30, 30, WINDOW)
    assert time.tolist() == [600, 630]
    assert rate.tolist() == [0.0, 3.0]
    assert not np.signbit(rate).any()


def test_the_last_value_counts_and_null_never_replaces_one():
    time, rate = each_time_once(np.array([60, 30, 60, 30, 90]), np.array([1.0, 2.0, 3.0, np.nan, np.nan]))
    assert time.tolist() == [30, 60]
    assert rate.tolist() == [2.0, 3.0]


steps = st.sampled_from([20, 30, 60])


@given(st.sets(st.integers(500, 800)), st.integers(1, 200), steps)
def test_what_is_covered_rows_of_a_window_is_what_is_covered_rows_of_its_parts(times, interval, step):
    time = np.array(sorted(times), np.int64)
    halves = (covered_rows(time, interval, step, Window(*edges)) for edges in ((600, 660), (660, 720)))
    assert sum(halves) == covered_rows(time, interval, step, WINDOW)


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.integers(10, 200), steps, st.integers(0, 30))
def test_a_point_that_becomes_known_is_covered_rows_of_every_window_that_it_changes(before, more, interval, step, phase):
    """Points of a service are an interval apart."""
    one, other = (np.array(sorted(some), np.int64) * interval + phase for some in (before, before | more))
    for window in (Window(start, start + 60) for start in range(600, 1200, 60)):
        rate = [points.astype(float) for points in (one, other)]
        (_, old), (_, new) = (rows(points, of, interval, step, window) for points, of in zip((one, other), rate, strict=True))
        grown = covered_rows(other, interval, step, window) - covered_rows(one, interval, step, window)
        assert (grown > 0) == (old.tolist() != new.tolist())
        assert grown >= 0
