"""A sealed file keeps few samples of a counter, and all that its cells do not determine."""

import numpy as np
import pytest

from tokiod.tts.counters.day_counter import DayCounter
from tokiod.tts.schema import ABSENT, NO_ROW
from tokiod.tts.sealed.kept_samples import fill_raw, kept_samples, span_of
from tokiod.tts.sealed.restore_raw import DETERMINED, KEPT
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

NAME, ROWS = "datatargets/readbytes", 12
DAY = FileSpec(0, 5 * ROWS, {"datatargets": GroupSpec(5, "lmt")}, {NAME: MatrixSpec(("a", "b", "c"), counter=True)})
ORDER = np.array([2, 0, 1])
RISING = np.arange(1, 3 * ROWS + 4).reshape(ROWS + 1, 3)


@pytest.fixture
def live(make):
    return make(DAY)


def store(live, raw):
    row, column = np.nonzero(raw != ABSENT)
    DayCounter.of(live, NAME).store(row, column, raw[row, column])


def kept_rows(live):
    kept, proved = kept_samples(live, NAME, ORDER)
    return [kept[0, kept[1] == i].tolist() for i in range(3)], proved.tolist()


def test_of_a_column_that_rises_no_more_is_kept_than_its_ends(live):
    store(live, RISING)
    assert kept_rows(live) == ([[0, ROWS - 1, ROWS]] * 3, [DETERMINED] * 3)


def test_samples_that_close_no_cell_are_kept_too(live):
    raw = RISING.copy()
    raw[5, 2], raw[8, 0], raw[9:, 1] = 1, ABSENT, 0
    store(live, raw)
    rows, proved = kept_rows(live)
    assert (rows, proved) == ([[0, 5, 6, 11, 12], [0, 11, 12], [0, 9, 11, 12]], [DETERMINED] * 3)


def test_the_first_nonzero_sample_is_the_one_that_is_there_now(live):
    raw = RISING.copy()
    raw[:3] = 0
    store(live, raw)
    DayCounter.of(live, NAME).store(np.full(3, 3), np.arange(3), np.zeros(3, np.int64))
    kept, _ = kept_samples(live, NAME, ORDER)
    span = span_of(kept, ROWS, 3)
    assert (live.span[NAME].read(0, 2)[0].tolist(), span.tolist()) == ([3] * 3, [[4] * 3, [ROWS - 1] * 3])


def test_in_a_column_with_cells_that_have_no_sample_every_sample_is_kept(live):
    """A loss of power may leave such cells."""
    store(live, RISING)
    raw = RISING.copy()
    raw[4:7, 0] = ABSENT
    live.raw[NAME].write_rows(0, raw)
    rows, proved = kept_rows(live)
    assert (rows[1], proved) == ([0, 1, 2, 3, 7, 8, 9, 10, 11, 12], [DETERMINED, KEPT, DETERMINED])
    again = np.full_like(raw, ABSENT)
    fill_raw(kept_samples(live, NAME, ORDER)[0], 0, again)
    assert (again[:, 1] == raw[:, 0]).all()


def test_the_last_sample_is_the_one_that_is_there_where_a_kill_left_the_span_ahead_of_the_samples(live):
    raw = np.full((ROWS, 3), ABSENT)
    raw[:4, 0], raw[:2, 1] = [5, 6, 9, 9], [7, 8]
    store(live, raw)
    span = live.span[NAME].read(0, 2)
    span[1] = [ROWS - 1, 3, ROWS - 1]
    live.span[NAME].write_rows(0, span)
    kept, _ = kept_samples(live, NAME, ORDER)
    assert span_of(kept, ROWS, 3)[1, np.argsort(ORDER)].tolist() == [3, 1, NO_ROW]


def test_a_day_without_samples_keeps_nothing(live):
    assert kept_rows(live) == ([[]] * 3, [DETERMINED] * 3)
