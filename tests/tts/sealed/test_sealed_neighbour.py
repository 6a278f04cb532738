"""What a sealed day tells its neighbours."""

import h5py
import numpy as np
import pytest
from counter_days import slow_day, state_after
from hypothesis import strategies as st

from tokiod.tts.counters.day_counter import DayCounter
from tokiod.tts.counters.difference_rule import Rule, next_day
from tokiod.tts.layout import NotLive, own_name
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.schema import ABSENT
from tokiod.tts.sealed.seal import seal
from tokiod.tts.sealed.sealed_neighbour import SealedDay
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


def expected(raw, rule):
    """The slow rule's state after the day; the sample before the day is in row -1."""
    return slow_day(raw[1:], state_after(raw[0]), rule)[1][:, SORTED]


def test_a_sealed_day_tells_its_first_samples_the_next_days_and_the_states_around_it(tmp_path):
    raw = RAW.copy()
    raw[1, 0] = ABSENT
    day = SealedDay.read(sealed(tmp_path, raw))
    counter = day.counters[NAME]
    assert (day.names(NAME), day.names("datatargets/writebytes"), counter.rows) == (("OST0002", "OST0010"), (), ROWS)
    assert counter.first.tolist() == [raw[1, 1], ABSENT]
    assert counter.after.tolist() == raw[-1, SORTED].tolist()
    assert [counter.differs(state) for state in (counter.begin, counter.begin + 1)] == [False, True]
    assert counter.begin.tolist() == state_after(raw[0])[:, SORTED].tolist()
    assert counter.next_state().tolist() == next_day(expected(raw, Rule()), ROWS, 10**6).tolist()


def test_a_damaged_file_tells_nothing(tmp_path):
    path = sealed(tmp_path, RAW)
    with h5py.File(path, "r+") as file:
        del file[own_name("end", NAME)]
    with pytest.raises(NotLive):
        SealedDay.read(path)
