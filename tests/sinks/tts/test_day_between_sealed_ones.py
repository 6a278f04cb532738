"""A day whose file is lost between days that are sealed is what it was once its own windows are stored again, nobody else's."""

import tempfile
from pathlib import Path

import archive_model as model
import h5py
import pytest
from archive_model import COUNTER, DAYS, NAMES, ROWS, expected, filled, held, sink_in
from hypothesis import given
from hypothesis import strategies as st

LENGTH = 6
SAMPLES = {name: {row: 100 * row + i + 1 for row in range(DAYS * ROWS)} for i, name in enumerate(NAMES)}


def store(sink, samples, first, last):
    for row in range(first, last, LENGTH):
        sink.apply(model.window(samples, row, row + LENGTH, NAMES))
    assert sink.commit() == []


def path(directory, day):
    (found,) = directory.glob(f"2018-01-{29 + day}/fs.hdf5")
    return found


def lost_and_stored_again(directory, samples, day):
    sink = sink_in(directory)
    store(sink, samples, 0, DAYS * ROWS)
    for one in range(DAYS):
        assert sink.seal("fs", model.EPOCH + one * model.DAY)
        assert not any(done.error for done in sink.run_maintenance())
    sink.close()
    path(directory, day).unlink()
    sink = sink_in(directory)
    store(sink, samples, day * ROWS, (day + 1) * ROWS)
    sink.close()


@given(model.archives, st.integers(0, DAYS - 1))
def test_it_knows_the_last_samples_of_the_day_before_and_the_first_of_the_day_after(samples, day):
    with tempfile.TemporaryDirectory() as name:
        lost_and_stored_again(Path(name), samples, day)
        assert filled(held(Path(name))) == filled(expected(samples, DAYS))


@pytest.mark.parametrize("day", range(DAYS))
def test_days_beside_it_that_another_program_wrote_tell_nothing(tmp_path, day):
    lost_and_stored_again(tmp_path, SAMPLES, day)
    for one in set(range(DAYS)) - {day}:
        with h5py.File(path(tmp_path, one), "r+") as file:
            del file["_tokiod"]
    path(tmp_path, day).unlink()
    sink = sink_in(tmp_path)
    store(sink, SAMPLES, day * ROWS, (day + 1) * ROWS)
    sink.close()
    alone = {name: {row: value for row, value in rows.items() if row // ROWS == day} for name, rows in SAMPLES.items()}
    for name in NAMES:
        assert held(tmp_path)[day, COUNTER, name] == expected(alone, DAYS)[day, COUNTER, name]
