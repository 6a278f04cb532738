"""Names of columns that are kept for the next file take a bounded amount of memory."""

import tracemalloc

import numpy as np
import pytest

from tokiod.reader import part, stitched


def names(day, n):
    return tuple(f"node{day:04d}-{column:06d}" for column in range(n))


WORK = {
    "names": lambda day, n: part._decoded(np.array([name.encode() for name in names(day, n)]).tobytes(), 15),
    "union": lambda day, n: stitched._union((names(day, n), names(day + 1, n))),
    "positions": lambda day, n: stitched._positions(names(day, n), names(day, n)),
}


@pytest.mark.parametrize("work", WORK)
def test_files_that_all_have_many_other_names_cost_those_of_some_files(work):
    """40 files of 6,000 columns each, of which no two have the same."""
    tracemalloc.start()
    for day in range(40):
        WORK[work](day, 6000)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 12 << 20


@pytest.mark.parametrize("n", [3, 6000])
def test_the_names_of_the_file_before_are_the_same_tuple(n):
    first, second = (WORK["names"](1, n) for _ in range(2))
    assert first is second
