"""Rows are time-weighted means of the points that lie over them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collectors.esnet_snmp.rows import latest, rows
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


def test_the_last_value_stands_and_null_replaces_none():
    time, rate = latest(np.array([60, 30, 60, 30, 90]), np.array([1.0, 2.0, 3.0, np.nan, np.nan]))
    assert time.tolist() == [30, 60]
    assert rate.tolist() == [2.0, 3.0]
