"""What a sealed day tells its neighbours: of one that 0.1.0 sealed, the state after it follows from raw, of which the file holds a part."""

from unittest.mock import patch

import h5py
import numpy as np
import pytest
from counter_days import slow_day
from hypothesis import given
from hypothesis import strategies as st
from outdated_files import outdate

from tokiod.tts.counters.day_counter import DayCounter
from tokiod.tts.counters.difference_rule import Rule, next_day
from tokiod.tts.layout import NotLive, own_name
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.schema import ABSENT
from tokiod.tts.sealed import sealed_counter
from tokiod.tts.sealed.seal import seal
from tokiod.tts.sealed.sealed_counter import newest_sample, state_after
from tokiod.tts.sealed.sealed_neighbour import SealedDay, computed_ends
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

NAME, ROWS = "datatargets/readbytes", 24
DAY = FileSpec(0, 5 * ROWS, {"datatargets": GroupSpec(5, "lmt")}, {NAME: MatrixSpec(("OST0010", "OST0002"), counter=True)})
STEPS = {NAME: 5}
SORTED = [1, 0]
"""The columns of the sealed file, as live ones."""
SAMPLES = st.one_of(st.just(ABSENT), st.integers(0, 6), st.integers(0, 2**50))
COLUMN = st.lists(SAMPLES, min_size=ROWS + 2, max_size=ROWS + 2)
GROWING = st.lists(st.integers(-1, 9), min_size=ROWS + 2, max_size=ROWS + 2).map(
    lambda steps: [ABSENT if step < 0 else int(value) for step, value in zip(steps, np.cumsum(np.maximum(steps, 0)), strict=True)]
)
RULES = st.builds(Rule, max_step=st.sampled_from([2**62, 2**49, 5]), reach=st.sampled_from([3, 20, 1000]))
RAW = np.arange(100, 100 + 2 * (ROWS + 2)).reshape(ROWS + 2, 2)


def sealed(directory, raw):
    """A day with these raw rows, of which the first and last are the neighbours', sealed."""
    path = directory / "day.hdf5"
    create(path, DAY, created=1)
    live = LiveFile.open(path)
    counter = DayCounter.of(live, NAME)
    counter.set_begin(np.arange(2), state_after(raw[0]))
    row, column = np.nonzero(raw[1:] != ABSENT)
    counter.store(row, column, raw[1:][row, column])
    live.commit()
    seal(live, path, 1)
    live.close()
    return path


def sealed_by_older(directory, raw):
    path = sealed(directory, raw)
    outdate(path, {NAME: raw[0, SORTED]})
    return path


def expected(raw, rule):
    """The slow rule's state after the day; the sample before the day is in row -1."""
    return slow_day(raw[1:], state_after(raw[0]), rule)[1][:, SORTED]


@given(st.tuples(COLUMN | GROWING, COLUMN | GROWING), RULES, st.sampled_from([1, 7, 720]))
def test_the_state_after_a_day_that_an_older_version_sealed_is_that_of_all_its_samples(tmp_path_factory, columns, rule, chunk):
    raw = np.array(columns, np.int64).T.copy()
    path = sealed_by_older(tmp_path_factory.mktemp("day"), raw)
    with patch.object(sealed_counter, "CHUNK_ROWS", chunk):
        names, state = computed_ends(path, {NAME: rule}, STEPS)[NAME]
    assert (names, state.tolist()) == (("OST0002", "OST0010"), next_day(expected(raw, rule), ROWS, rule.reach).tolist())


def test_where_raw_cannot_be_restored_the_kept_samples_give_the_state(tmp_path):
    path = sealed_by_older(tmp_path, RAW)
    with h5py.File(path, "r+") as file:
        file[own_name("edges", NAME)].attrs["proved"] = np.zeros(2, np.uint8)
    _, state = computed_ends(path, {NAME: Rule()}, STEPS)[NAME]
    assert state.tolist() == [RAW[-2, SORTED].tolist(), [-1] * 2, *[[ABSENT] * 2] * 3]


def test_only_counters_of_a_file_that_an_older_version_sealed_are_computed(tmp_path):
    assert computed_ends(sealed(tmp_path, RAW), {NAME: Rule()}, STEPS) == {}
    outdate(tmp_path / "day.hdf5", {NAME: RAW[0, SORTED]})
    assert computed_ends(tmp_path / "day.hdf5", {"datatargets/writebytes": Rule()}, STEPS) == {}
    assert computed_ends(tmp_path / "none.hdf5", {NAME: Rule()}, STEPS) == {}
    (tmp_path / "day.hdf5").write_bytes(b"junk")
    assert computed_ends(tmp_path / "day.hdf5", {NAME: Rule()}, STEPS) == {}


@pytest.mark.parametrize("older", [False, True])
def test_a_sealed_day_tells_its_first_samples_the_next_days_and_the_states_around_it(tmp_path, older):
    raw = RAW.copy()
    raw[1, 0] = ABSENT
    day = SealedDay.read((sealed_by_older if older else sealed)(tmp_path, raw))
    counter = day.counters[NAME]
    assert (day.names(NAME), day.names("datatargets/writebytes"), counter.rows) == (("OST0002", "OST0010"), (), ROWS)
    assert counter.first.tolist() == [raw[1, 1], ABSENT]
    assert counter.after.tolist() == raw[-1, SORTED].tolist()
    assert counter.begin.tolist() == state_after(raw[0])[:, SORTED].tolist()
    state = counter.next_state()
    assert state is None if older else state.tolist() == next_day(expected(raw, Rule()), ROWS, 10**6).tolist()


def test_a_day_that_an_older_version_sealed_differs_only_in_its_newest_sample(tmp_path):
    """Its rows are unknown, and its cells are by another rule anyway."""
    new = SealedDay.read(sealed(tmp_path, RAW)).counters[NAME]
    outdate(tmp_path / "day.hdf5", {NAME: RAW[0, SORTED]})
    older = SealedDay.read(tmp_path / "day.hdf5").counters[NAME]
    begin, earlier, other = new.begin, new.begin.copy(), new.begin.copy()
    earlier[1, 0], other[0, 0] = -3, 99
    assert [one.differs(state) for one in (new, older) for state in (begin, earlier, other)] == [False, True, True, False, False, True]


def test_the_newest_sample_of_a_state_is_that_of_its_latest_row():
    state = np.array(
        [[9, 9, 9, ABSENT, ABSENT], [-5, -5, -5, ABSENT, ABSENT], [ABSENT, 4, 4, ABSENT, ABSENT], [ABSENT, -3, -3, ABSENT, ABSENT]]
    )
    state = np.concatenate([state, [[ABSENT, ABSENT, -1, -2, ABSENT]]])
    assert newest_sample(state).tolist() == [9, 4, 0, 0, ABSENT]


def test_a_damaged_file_tells_nothing(tmp_path):
    path = sealed(tmp_path, RAW)
    with h5py.File(path, "r+") as file:
        del file[own_name("end", NAME)]
    with pytest.raises(NotLive):
        SealedDay.read(path)
