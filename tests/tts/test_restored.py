"""A day that was sealed and opened up again: what its cells tell of raw; and what is collected again, in any pieces, changes nothing."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokiod.tts.counters import Counter
from tokiod.tts.create import create
from tokiod.tts.live import LiveFile
from tokiod.tts.schema import ABSENT
from tokiod.tts.seal import seal, unseal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

NAME, ROWS = "datatargets/readbytes", 24
DAY = FileSpec(0, 5 * ROWS, {"datatargets": GroupSpec(5, "lmt")}, {NAME: MatrixSpec(("a", "b"), counter=True)})
GUARDED = ROWS + 2


def counter(live):
    return Counter(live.cells[NAME], live.raw[NAME], live.span[NAME], keep=live.sealed_raw)


def store(live, raw, first, stop):
    """Store samples of some rows of raw, where there are any."""
    row, column = np.nonzero(raw[first:stop] != ABSENT)
    counter(live).store(row + first, column, raw[row + first, column])
    live.commit()


def cells(live):
    return live.cells[NAME].read(0, ROWS).view(np.int64)


def opened_up(directory, raw):
    """A day with these samples, sealed and opened up; and the cells that it had."""
    create(directory / "day.hdf5", DAY, created=1)
    live = LiveFile.open(directory / "day.hdf5")
    store(live, raw, 0, GUARDED)
    before = cells(live)
    seal(live, live.path, 1)
    live.close()
    return unseal(directory / "day.hdf5", created=1), before


STEPS = st.lists(st.integers(1, 9), min_size=GUARDED, max_size=GUARDED)
LOST = st.sets(st.integers(0, GUARDED - 1))


@st.composite
def rising(draw):
    """Counters that rise, with rows without a sample, and dips between samples, by which the rule knows them."""
    columns = []
    for _ in range(2):
        column = np.cumsum(draw(STEPS)) + draw(st.sampled_from([0, 10**6, 2**60]))
        sampled = {2, 3, 4, GUARDED - 2}
        for row in draw(st.sets(st.integers(5, GUARDED - 3), max_size=4)):
            around = set(range(row - 2, row + 3))
            if row not in sampled:
                column[row] = draw(st.integers(1, int(column[0])))
                sampled |= around
        column[[row for row in draw(LOST) if row not in sampled]] = ABSENT
        columns.append(column)
    return np.array(columns).T.copy()


@settings(max_examples=150, deadline=None)
@given(rising(), st.lists(st.tuples(st.integers(0, GUARDED - 1), st.integers(1, 8)), min_size=1, max_size=4))
def test_what_is_collected_again_in_any_pieces_changes_nothing(tmp_path_factory, raw, pieces):
    live, before = opened_up(tmp_path_factory.mktemp("again"), raw)
    assert (cells(live) == before).all()
    for first, length in pieces:
        store(live, raw, first, first + length)
        assert (cells(live) == before).all()
    live.close()


@settings(max_examples=150, deadline=None)
@given(rising())
def test_of_a_counter_that_rises_every_sample_is_restored_but_dips(tmp_path_factory, raw):
    live, before = opened_up(tmp_path_factory.mktemp("all"), raw)
    restored, known = live.raw[NAME].read(0, GUARDED), raw != ABSENT
    closing = np.zeros_like(known)
    closing[2:] = before[:ROWS] != ABSENT
    assert (restored[closing] == raw[closing]).all()
    assert set(restored[known & ~closing]) <= {ABSENT, *raw[known].tolist()}
    assert (restored[~known] == ABSENT).all()
    live.close()


SAMPLES = st.one_of(st.just(ABSENT), st.integers(0, 6), st.integers(0, 2**62))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(SAMPLES, min_size=2, max_size=2), min_size=GUARDED, max_size=GUARDED))
@example([[ABSENT, ABSENT]] + [[row, 2**54 * row] for row in range(1, GUARDED)])
def test_nothing_is_made_up_but_a_base_for_a_zero(tmp_path_factory, raw):
    raw = np.array(raw, np.int64)
    live, before = opened_up(tmp_path_factory.mktemp("any"), raw)
    assert (cells(live) == before).all()
    restored = live.raw[NAME].read(0, GUARDED)
    there = restored != ABSENT
    assert (raw[there] != ABSENT).all()
    assert ((restored == raw) | (raw == 0))[there].all()
    live.close()


def test_a_window_that_begins_with_a_dip_is_collected_again(tmp_path):
    """Taken for the base, it had made 40 GB of 2."""
    column = [1, *range(100, 100 + ROWS), 999]
    column[9] = 50
    raw = np.array([column, column]).T.copy()
    live, before = opened_up(tmp_path, raw)
    store(live, raw, 9, 15)
    assert (cells(live) == before).all()
    live.close()


@pytest.mark.parametrize("reset", [8, 12])
def test_where_a_counter_began_anew_what_lies_before_the_first_and_behind_the_last_such_step_is_known(tmp_path, reset):
    column = np.arange(GUARDED) * 10 + 1000
    column[reset:] -= int(column[reset]) - 3
    column[18] = ABSENT
    raw = np.array([column, column]).T.copy()
    live, _ = opened_up(tmp_path, raw)
    restored = live.raw[NAME].read(0, GUARDED)
    assert (restored[1:reset] == raw[1:reset]).all()
    assert (restored[20:] == raw[20:]).all()
    assert (restored[reset + 2 : 18] == ABSENT).all()
    live.close()
