"""What may be stored of whole rows, against a look at each cell: times that are even, uneven and invalid."""

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tokiod.batch import Batch, even_rows
from tokiod.selection import Selection
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
# Each 2**62 + 1 after the one before, modulo 2**64: the fifth is 4 s after the first.
turned = st.integers(START, START + 50).map(lambda t: [(t + i * (2**62 + 1) + 2**63) % 2**64 - 2**63 for i in range(5)])


@given(st.one_of(even, wild, turned))
def test_what_lies_in_the_window_is_stored_and_the_rest_counted(times):
    dropped: Counter[str] = Counter()
    cells = Selection(WINDOW, dropped).cells(of_rows(times))
    good = [time for time in times if WINDOW.start <= time < WINDOW.end]
    assert cells.time.tolist() == np.repeat(np.array(good, np.int64), 3).tolist()
    assert dropped == +Counter({"outside the window": 3 * (len(times) - len(good))})


@given(st.one_of(even, wild, turned), st.integers(0, 9))
def test_the_first_row_is_known_where_whole_rows_follow_one_another_in_the_file(times, beyond):
    start = START - 3600 - beyond
    cells = Selection(WINDOW, Counter(), start).cells(of_rows(times))
    rows = [(time - start) // STEP for time in times]
    is_stored = all(WINDOW.start <= time < WINDOW.end for time in times)
    is_consecutive = rows == list(range(rows[0], rows[0] + len(rows)))
    assert cells.first == (rows[0] if is_stored and is_consecutive else None)
    assert not cells.are_aligned or (is_stored and all((time - start) % STEP == 0 for time in times))


def plain(cells, dropped):
    return [array.tobytes() for array in (cells.time, cells.column, cells.value)], cells.first, cells.are_aligned, dropped


strange = [-0.0, -1.5, 5e-324, 1.7976931348623157e308, np.inf, -np.inf, np.nan, -np.nan], [0, -1, LEAST, MOST]
near = st.builds(lambda first, count: [first + STEP * i for i in range(count)], st.integers(START - 7, START + 7), st.integers(9, 13))


@settings(max_examples=500)
@given(st.one_of(near, near, even), st.sampled_from(["gauge", "counter"]), st.data())
def test_rows_that_are_known_to_be_whole_are_chosen_as_those_that_are_looked_at(times, form, data):
    batch = of_rows(times)
    value = np.full(len(batch), 3, np.float64 if form == "gauge" else np.int64)
    for place in data.draw(st.sets(st.sampled_from([0, len(value) - 1]), max_size=1)):
        value[place] = data.draw(st.sampled_from(strange[form == "counter"]))
    unknown = replace(batch, form=form, value=value)
    known = replace(unknown, rows=even_rows(unknown))
    one, other = Counter(), Counter()
    assert plain(Selection(WINDOW, one).cells(unknown), one) == plain(Selection(WINDOW, other).cells(known), other)
