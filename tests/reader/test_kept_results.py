"""Names of columns that are kept for the next file take a bounded amount of memory."""

import tracemalloc

import numpy as np
import pytest

from tokiod.reader import part, stitched

FILES, COLUMNS = 24, 6000


def names(day, n):
    return tuple(f"node{day:04d}-{column:06d}" for column in range(n))


PREPARED = {
    "names": lambda day, n: (np.array([name.encode() for name in names(day, n)]).tobytes(), 15),
    "union": lambda day, n: ((names(day, n), names(day + 1, n)),),
    "positions": lambda day, n: (names(day, n), names(day, n)),
}
WORK = {"names": part._decoded, "union": stitched._union, "positions": stitched._positions}


@pytest.mark.parametrize("work", WORK)
def test_files_that_all_have_many_other_names_cost_those_of_some_files(work):
    """After half of the files, of which no two have the same columns, nothing more is kept."""
    prepared = [PREPARED[work](day, COLUMNS) for day in range(FILES)]
    kept = []
    tracemalloc.start()
    for day, arguments in enumerate(prepared, start=1):
        WORK[work](*arguments)
        if day in {FILES // 2, FILES}:
            kept.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert kept[1] < 1.2 * kept[0]


@pytest.mark.parametrize("n", [3, 6000])
def test_the_names_of_the_file_before_are_the_same_tuple(n):
    first, second = (part._decoded(*PREPARED["names"](1, n)) for _ in range(2))
    assert first is second
