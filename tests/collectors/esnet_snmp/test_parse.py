"""Answers of numbers are parsed in arrays: to the same points, and the same reasons, as pairs of any type one by one."""

import json

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from collectors.esnet_snmp.parse import MAX_EPOCH, Points, parse

TIMES = st.integers(-2, 5) | st.integers(MAX_EPOCH - 2, MAX_EPOCH + 2) | st.integers()
RATES = st.none() | st.integers(-2, 2) | st.integers() | st.floats(allow_nan=False)
PAIRS = st.lists(st.tuples(TIMES, RATES), max_size=8)


def parts(points):
    return points.time.tolist(), points.rate.tobytes(), points.interval, points.dropped.counts, sorted(points.dropped.why)


@given(PAIRS)
@example([(1, -0.0), (2, None)])
@example([(10**400, 1.0), (2, 1.0)])
@example([(1, 1e12), (2, 1.1e12), (3, -1)])
@example([])
def test_an_answer_of_numbers_is_parsed_as_pairs_of_any_type_are(pairs):
    found = parse(json.dumps({"agg": "30", "data": pairs}).encode(), "the service")
    assert parts(found) == parts(Points.of(pairs, 30))
    assert (found.time.dtype, found.rate.dtype) == (np.int64, np.float64)
