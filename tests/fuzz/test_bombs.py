"""The short form of `make fuzz`'s bombs: an eighth of their size, within the same limits."""

import pytest

from tests.fuzz.bombs import BOMBS, failures


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_costs_neither_minutes_nor_gigabytes(name):
    assert failures(name, 1 / 8) == ""
