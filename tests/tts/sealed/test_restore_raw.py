"""A day that was sealed and unsealed: raw restored from its cells; samples collected again, in any pieces, change nothing."""

from unittest.mock import patch

import numpy as np
from counter_days import state_after
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokiod.tts.counters.day_counter import DayCounter
from tokiod.tts.layout import open_for_reading, own_name
from tokiod.tts.live import create as tts_create
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.schema import ABSENT
from tokiod.tts.sealed import kept_samples as tts_edges
from tokiod.tts.sealed.seal import seal, unseal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

NAME, ROWS = "datatargets/readbytes", 24
DAY = FileSpec(0, 5 * ROWS, {"datatargets": GroupSpec(5, "lmt")}, {NAME: MatrixSpec(("a", "b"), counter=True)})
RAW_ROWS = ROWS + 1


def counter(live):
    return DayCounter.of(live, NAME)


def store(live, raw, first, stop):
    """Store samples of some rows of raw, where there are any."""
    row, column = np.nonzero(raw[first:stop] != ABSENT)
    counter(live).store(row + first, column, raw[row + first, column])
    live.commit()


def cells(live):
    return live.cells[NAME].read(0, ROWS).view(np.int64)


def unsealed(directory, raw, begin=None):
    """A day with these samples, sealed and unsealed; and its cells before."""
    create(directory / "day.hdf5", DAY, created=1)
    live = LiveFile.open(directory / "day.hdf5")
    if begin is not None:
        counter(live).set_begin(np.arange(2), begin)
    store(live, raw, 0, RAW_ROWS)
    before = cells(live)
    seal(live, live.path, 1)
    live.close()
    return unseal(directory / "day.hdf5", created=1), before


SAMPLES = st.one_of(st.just(ABSENT), st.integers(0, 6), st.integers(0, 2**62))


COLUMN = st.lists(SAMPLES, min_size=RAW_ROWS, max_size=RAW_ROWS)
RISING = st.lists(st.integers(0, 9), min_size=RAW_ROWS, max_size=RAW_ROWS).map(lambda steps: np.cumsum(steps).tolist())


PIECES = st.lists(st.tuples(st.integers(0, RAW_ROWS - 1), st.integers(1, 8)), max_size=4)


@settings(max_examples=100, deadline=None)
@given(st.tuples(COLUMN, COLUMN | RISING), PIECES, st.sampled_from([4, 10, 10**6]), st.sampled_from([0, 2, 2**50, ABSENT]))
@example(([2**54 * row for row in range(RAW_ROWS)], [ABSENT] * RAW_ROWS), [(7, 3)], 10**6, 2)
@example(([0] * RAW_ROWS, [2**53 + 2 * row - 1 if row else 0 for row in range(RAW_ROWS)]), [], 4, ABSENT)
@example(([0] * RAW_ROWS, [0, 0, 1, *[2**53 + 2] * (RAW_ROWS - 3)]), [], 4, 0)
def test_all_of_raw_is_restored_and_what_is_collected_again_in_any_pieces_changes_nothing(
    tmp_path_factory, columns, pieces, at_once, before_day
):
    raw = np.array(columns, np.int64).T.copy()
    with patch.object(tts_edges, "BLOCK_CELLS", at_once), patch.object(tts_create, "SLICE_BYTES", 8 * at_once):
        live, before = unsealed(tmp_path_factory.mktemp("any"), raw, begin := state_after(np.full(2, before_day)))
    assert (cells(live) == before).all()
    assert (live.begin[NAME].read(0, 5) == begin).all()
    assert (live.raw[NAME].read(0, RAW_ROWS) == raw).all()
    for first, length in pieces:
        store(live, raw, first, first + length)
        assert (cells(live) == before).all()
    live.close()


def test_of_a_counter_that_rises_no_more_is_kept_than_its_ends_and_what_falls(tmp_path):
    column = np.arange(RAW_ROWS) + 100
    column[9], column[18:] = 50, column[18:] - 110
    live, _ = unsealed(tmp_path, np.array([column, column]).T.copy())
    seal(live, live.path, 1)
    live.close()
    with open_for_reading(tmp_path / "day.hdf5") as file:
        rows = sorted(set(file[own_name("kept", NAME)][0].tolist()))
    assert rows == [0, 9, 10, 18, RAW_ROWS - 2, RAW_ROWS - 1]


def test_a_window_that_begins_with_a_dip_is_collected_again(tmp_path):
    """Taken for the base, it had made 40 GB of 2."""
    column = [*range(100, 100 + ROWS), 999]
    column[9] = 50
    raw = np.array([column, column]).T.copy()
    live, before = unsealed(tmp_path, raw)
    store(live, raw, 9, 15)
    assert (cells(live) == before).all()
    live.close()


def test_a_counter_that_began_anew_is_restored_from_there_on_too(tmp_path):
    column = np.arange(RAW_ROWS) * 10 + 1000
    column[8:] -= int(column[8]) - 3
    column[18] = ABSENT
    raw = np.array([column, column]).T.copy()
    live, _ = unsealed(tmp_path, raw)
    assert (live.raw[NAME].read(0, RAW_ROWS) == raw).all()
    live.close()
