"""The state of the rule after a day that 0.1.0 sealed is that of its raw samples, of which the file holds only some."""

from unittest.mock import patch

import h5py
import numpy as np
import pytest
from counter_days import slow_day
from hypothesis import given
from hypothesis import strategies as st

from tokiod.tts.counters.counter import Counter
from tokiod.tts.counters.difference_rule import Rule
from tokiod.tts.layout import PROVED, edges_name
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.schema import ABSENT
from tokiod.tts.sealed import sealed_neighbour
from tokiod.tts.sealed.seal import seal
from tokiod.tts.sealed.sealed_neighbour import end_state
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

NAME, ROWS = "datatargets/readbytes", 24
DAY = FileSpec(0, 5 * ROWS, {"datatargets": GroupSpec(5, "lmt")}, {NAME: MatrixSpec(("OST0010", "OST0002"), counter=True)})
SORTED = [1, 0]
"""The columns of the sealed file, as live ones."""
SAMPLES = st.one_of(st.just(ABSENT), st.integers(0, 6), st.integers(0, 2**50))
COLUMN = st.lists(SAMPLES, min_size=ROWS + 2, max_size=ROWS + 2)
GROWING = st.lists(st.integers(-1, 9), min_size=ROWS + 2, max_size=ROWS + 2).map(
    lambda steps: [ABSENT if step < 0 else int(value) for step, value in zip(steps, np.cumsum(np.maximum(steps, 0)), strict=True)]
)
RULES = st.builds(Rule, max_step=st.sampled_from([2**62, 2**49, 5]), reach=st.sampled_from([3, 20, 1000]))


def sealed(directory, raw):
    """A day with these raw rows, of which the first and last are the neighbours', sealed as 0.1.0 does."""
    path = directory / "day.hdf5"
    create(path, DAY, created=1)
    live = LiveFile.open(path)
    row, column = np.nonzero(raw != ABSENT)
    Counter(live.cells[NAME], live.raw[NAME], live.span[NAME]).store(row, column, raw[row, column])
    live.commit()
    seal(live, path, 1)
    live.close()
    return path


def expected(raw, rule):
    """The slow rule's state after the day; the sample before the day is in row -1."""
    begin = np.full((5, 2), ABSENT)
    before = raw[0]
    begin[0] = np.where(before > 0, before, ABSENT)
    begin[1] = np.where(before > 0, -1, ABSENT)
    begin[4] = np.where(before == 0, -1, ABSENT)
    return slow_day(raw[1:], begin, rule)[1][:, SORTED]


@given(st.tuples(COLUMN | GROWING, COLUMN | GROWING), RULES, st.sampled_from([1, 7, 720]))
def test_the_state_after_a_sealed_day_is_that_of_all_its_samples(tmp_path_factory, columns, rule, chunk):
    raw = np.array(columns, np.int64).T.copy()
    path = sealed(tmp_path_factory.mktemp("day"), raw)
    with patch.object(sealed_neighbour, "CHUNK_ROWS", chunk):
        assert end_state(path, NAME, rule).tolist() == expected(raw, rule).tolist()


def test_where_raw_cannot_be_restored_the_kept_samples_give_the_state(tmp_path):
    raw = np.full((ROWS + 2, 2), ABSENT)
    raw[1:-1] = np.arange(100, 100 + ROWS)[:, np.newaxis]
    path = sealed(tmp_path, raw)
    with h5py.File(path, "r+") as file:
        file[edges_name(NAME)].attrs[PROVED] = np.zeros(2, np.uint8)
    assert end_state(path, NAME, Rule()).tolist() == [[99 + ROWS] * 2, [ROWS - 1] * 2, *[[ABSENT] * 2] * 3]


def test_a_counter_that_the_file_does_not_have_is_a_key_error(tmp_path):
    path = sealed(tmp_path, np.full((ROWS + 2, 2), 5))
    with pytest.raises(KeyError):
        end_state(path, "datatargets/writebytes", Rule())
