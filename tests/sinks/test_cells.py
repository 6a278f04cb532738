"""What may be stored of whole rows, against a look at each cell: times that are even, uneven, and such as nobody has."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sinks.cells import Selection
from tokiod.sample import Batch
from tokiod.window import Window

START, STEP = 1_517_184_000, 5
LEAST, MOST = -(2**63), 2**63 - 1
WINDOW = Window(START, START + 60)


def of_rows(times, width=3):
    time = np.array(times, np.int64).repeat(width)
    names = tuple(f"OST{i}" for i in range(width))
    column = np.tile(np.arange(width, dtype=np.uint32), len(times))
    return Batch("datatargets/readbytes", "gauge", STEP, names, time, column, np.ones(len(time)))


even = st.builds(
    lambda first, every, count: [max(LEAST, min(MOST, first + every * i)) for i in range(count)],
    st.integers(START - 70, START + 70),
    st.sampled_from([STEP, STEP, 1, 7, 0, -STEP]),
    st.integers(1, 13),
)
wild = st.lists(
    st.one_of(st.integers(START - 10, START + 70), st.integers(LEAST, MOST), st.sampled_from([LEAST, MOST])), min_size=1, max_size=6
)
# Each 2**62 + 1 behind the one before, modulo 2**64: the fifth is 4 s behind the first.
turned = st.integers(START, START + 50).map(lambda t: [(t + i * (2**62 + 1) + 2**63) % 2**64 - 2**63 for i in range(5)])


@given(st.one_of(even, wild, turned))
def test_what_lies_in_the_window_is_stored_and_the_rest_counted(times):
    dropped: Counter[str] = Counter()
    cells = Selection(WINDOW, dropped).cells(of_rows(times))
    good = [time for time in times if WINDOW.start <= time < WINDOW.end]
    assert cells.time.tolist() == np.repeat(np.array(good, np.int64), 3).tolist()
    assert dropped == +Counter({"outside the window": 3 * (len(times) - len(good))})


@given(st.one_of(even, wild, turned), st.integers(0, 9))
def test_rows_of_a_file_are_told_where_they_follow_one_another(times, beyond):
    start = START - 3600 - beyond
    cells = Selection(WINDOW, Counter()).cells(of_rows(times))
    if cells.whole is None:
        return
    rows = [(time - start) // STEP for time in times]
    if rows != list(range(rows[0], rows[0] + len(rows))):
        assert cells.whole.rows(start, STEP) is None
        return
    told = cells.whole.rows(start, STEP)
    assert (told.first, told.count) == (rows[0], len(rows))
    assert told.aligned == all((time - start) % STEP == 0 for time in times)
