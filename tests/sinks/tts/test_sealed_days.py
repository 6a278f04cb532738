"""Sealed days next to those that windows come for are read once, and as many are kept as there are open files."""

import archive_model as model
from archive_model import NAMES, sink_in

from sinks.tts.sealed_days import SealedDays

SAMPLES = {name: {row: 100 * row + i + 1 for row in range(3 * model.ROWS)} for i, name in enumerate(NAMES)}


def sealed_files(directory, days):
    sink = sink_in(directory)
    for day in range(days):
        sink.apply(model.window(SAMPLES, day * model.ROWS, (day + 1) * model.ROWS))
        assert sink.commit() == []
        sink.adopt("fs", model.EPOCH + day * model.DAY)
    sink.seal_reopened()
    sink.close()
    return sorted(directory.rglob("*.hdf5"))


def test_only_the_days_that_were_read_last_are_kept(tmp_path):
    paths = sealed_files(tmp_path, 3)
    days = SealedDays(2)
    read = [days.read(path) for path in paths]
    assert None not in read
    assert [days.known(path) for path in paths] == [None, *read[1:]]


def test_a_day_that_was_replaced_is_not_known_and_a_damaged_or_missing_one_is_none(tmp_path):
    path, other = sealed_files(tmp_path, 2)
    days = SealedDays(2)
    assert days.read(path) is not None
    other.replace(path)
    assert days.known(path) is None
    path.write_bytes(b"no HDF5")
    assert (days.read(path), days.known(path)) == (None, None)
    path.unlink()
    assert (days.read(path), days.known(path)) == (None, None)
