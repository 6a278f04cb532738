"""Files of a span as one matrix: the rows of all days in order, all columns, NaN where a day or a column is absent."""

import numpy as np
import pytest
from stitched_days import READ, save, slot

from tokiod.reader import stitched
from tokiod.reader.errors import NoData, NoSuchDataset, StepChanged
from tokiod.reader.span import Span
from tokiod.reader.stitched import stitch as stitch_paths
from tokiod.tts.layout import NotLive

NAN = np.nan


def whole(slots):
    return Span(slots[0].start, slots[-1].end)


def stitch(slots, dataset, span):
    return stitch_paths([place.path for place in slots], dataset, span)


def array(matrix):
    """The whole matrix, from its blocks."""
    values = np.full((matrix.rows, len(matrix.columns)), NAN)
    for block in matrix.blocks():
        values[block.first : block.first + len(block.values), block.positions] = block.values
    return values


@pytest.mark.parametrize("is_sealed", [False, True])
def test_days_follow_each_other_with_all_columns_in_natural_order_and_an_absent_day_is_missing(tmp_path, is_sealed):
    first = save(tmp_path, 1, ["OST000a", "OST0009"], [[1, 0], [NAN, 4]], is_sealed=is_sealed)
    last = save(tmp_path, 3, ["OST0010", "OST0009"], [[5, 6]], is_sealed=is_sealed)
    slots = [first, slot(tmp_path, 2), last]
    matrix = stitch(slots, READ, whole(slots))
    assert (matrix.columns, matrix.rows, matrix.step) == (("OST0009", "OST000a", "OST0010"), 72, 3600)
    assert (matrix.start, matrix.end, matrix.units) == (first.start, last.end, "bytes")
    wanted = np.full((72, 3), NAN)
    wanted[0, :2], wanted[1, 0], wanted[48, 2], wanted[48, 0] = (0, 1), 4, 5, 6
    np.testing.assert_array_equal(array(matrix), wanted)


def test_only_rows_that_begin_in_the_span_are_in_it(tmp_path):
    slots = [save(tmp_path, day, ["a"], np.arange(24) + 100 * day) for day in (1, 2)]
    span = Span(slots[0].start + 22 * 3600 + 1, slots[1].start + 3601)
    matrix = stitch(slots, READ, span)
    assert (matrix.start, matrix.end) == (slots[0].start + 23 * 3600, slots[1].start + 7200)
    np.testing.assert_array_equal(array(matrix), [[123], [200], [201]])


def test_blocks_of_few_rows_are_the_same_cells(tmp_path, monkeypatch):
    values = np.random.default_rng(5).random((1440, 3))
    slots = [save(tmp_path, 1, "abc", values, step=60)]
    monkeypatch.setattr(stitched, "MAX_BLOCK_BYTES", 1)
    matrix = stitch(slots, READ, whole(slots))
    assert [len(block.values) for block in matrix.blocks()] == [720, 720]
    np.testing.assert_array_equal(array(matrix), values)


def test_a_column_that_a_live_file_gets_later_is_left_out(tmp_path):
    place = save(tmp_path, 1, ["a", "b"], [[1, 2]])
    matrix = stitch([place], READ, whole([place]))
    place.path.unlink()
    save(tmp_path, 1, ["c", "b", "a"], [[9, 4, 3]])
    np.testing.assert_array_equal(array(matrix)[0], [3, 4])


def test_rows_that_are_not_equally_far_apart_are_refused_with_the_time_of_the_change(tmp_path):
    slots = [save(tmp_path, 1, ["a"], [[1]]), slot(tmp_path, 2), save(tmp_path, 3, ["a"], [[1]], step=60)]
    sentence = r"rows are 3600 s apart before 2018-01-03T08:00:00Z and 60 s from then on; end or start there"
    with pytest.raises(StepChanged, match=sentence) as raised:
        stitch(slots, READ, whole(slots))
    assert (raised.value.time, raised.value.steps) == (slots[2].start, (3600, 60))


def test_an_unknown_dataset_is_refused_with_the_nearest_one_and_the_files(tmp_path):
    slots = [save(tmp_path, 1, ["a"], [[1]]), slot(tmp_path, 2)]
    sentence = r"no file from .*1\.hdf5 to .*2\.hdf5 has 'datatargets/readbyte', did you mean datatargets/readbytes\?"
    with pytest.raises(NoSuchDataset, match=sentence):
        stitch(slots, "datatargets/readbyte", whole(slots))
    with pytest.raises(NoSuchDataset, match=r"1\.hdf5 has no 'x/y'; known: datatargets/readbytes"):
        stitch(slots[:1], "x/y", whole(slots))


def test_a_span_without_a_file_or_a_row_has_no_data(tmp_path):
    slots = [slot(tmp_path, 1), slot(tmp_path, 2)]
    with pytest.raises(NoData, match=r"no data in \[.*\); first missing file: .*1\.hdf5") as raised:
        stitch(slots, READ, whole(slots))
    assert raised.value.paths == (slots[0].path, slots[1].path)
    place = save(tmp_path, 3, ["a"], [[1]])
    with pytest.raises(NoData, match=r"no data in \[2018-01-03T08:00:01Z, 2018-01-03T08:00:02Z\)$"):
        stitch([place], READ, Span(place.start + 1, place.start + 2))
    with pytest.raises(NoData, match=r"; the file holds \[2018-01-03T08:00:00Z, 2018-01-04T08:00:00Z\)$"):
        stitch([place], READ, Span(place.end, place.end + 3600))
    last = save(tmp_path, 5, ["a"], [[1]])
    held = r"; the files hold \[2018-01-03T08:00:00Z, 2018-01-06T08:00:00Z\)$"
    with pytest.raises(NoData, match=held):
        stitch([place, last], READ, Span(last.end, last.end + 3600))


def test_a_damaged_file_is_refused(tmp_path):
    place = slot(tmp_path, 1)
    place.path.write_text("no")
    with pytest.raises(NotLive, match=r"1\.hdf5: HDF5 can't open it"):
        stitch([place], READ, whole([place]))
