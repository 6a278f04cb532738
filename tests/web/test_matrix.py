"""The two bytes of a pixel, by a slow reference for any cells."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokiod.web.matrix import level_of


def reference(value):
    if math.isnan(value):
        return 0
    if value <= 0:
        return 1
    return min(255, max(2, 2 + math.floor((math.log2(value) + 11) * 4)))


@given(st.lists(st.floats(allow_infinity=False), min_size=1))
def test_the_level_of_any_value_is_that_of_the_stated_scale(values):
    assert level_of(np.array(values)).tolist() == [reference(value) for value in values]


def test_missing_zero_and_a_value_have_three_levels_and_a_doubling_has_four():
    found = level_of(np.array([np.nan, 0.0, -0.0, -3.0, 2.0**-11, 1.0, 2.0, 2.0**60]))
    assert found.tolist() == [0, 1, 1, 1, 2, 46, 50, 255]
