import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokiod.sample_spans import SPAN_GAP_SECONDS, spans_of
from tokiod.window import Window


def test_nothing_lies_nowhere():
    assert spans_of(np.array([], np.int64), 10) == []


def test_a_stray_sample_is_a_span_of_its_own():
    assert spans_of(np.array([7, 1_000_000, 1_000_010, 1_000_000]), 10) == [Window(7, 17), Window(1_000_000, 1_000_020)]


@given(st.lists(st.integers(0, 20 * SPAN_GAP_SECONDS), min_size=1, max_size=40), st.integers(1, 90))
def test_every_sample_lies_in_one_span_and_spans_are_tight_and_apart(times, step):
    spans = spans_of(np.array(times), step)
    assert all(sum(span.start <= time < span.end for span in spans) == 1 for time in times)
    assert all(span.start in times and span.end - step in times for span in spans)
    assert all(later.start - earlier.end > SPAN_GAP_SECONDS for earlier, later in itertools.pairwise(spans))
    inside = sorted(set(times))
    gaps = [later - earlier for earlier, later in itertools.pairwise(inside)]
    assert len(spans) == 1 + sum(gap > SPAN_GAP_SECONDS + step for gap in gaps)
