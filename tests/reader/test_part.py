"""What a file holds, as far as it is filled."""

import h5py
import numpy as np
import pytest
from stitched_days import save

from tokiod.reader.part import DatasetEntry, Part
from tokiod.reader.span import Span
from tokiod.tts.layout import NotLive
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.seal import seal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

NOON = 1_517_184_000 + 12 * 3600
READ, LOAD = "datatargets/readbytes", "dataservers/cpuload"
GROUPS = {"datatargets": GroupSpec(5, "lmt"), "dataservers": GroupSpec(60, "lmt")}


@pytest.fixture
def path(tmp_path):
    """Ten minutes: LOAD of two servers is filled for five rows of one."""
    spec = FileSpec(
        NOON, NOON + 600, GROUPS, {READ: MatrixSpec(("a", "b", "c"), counter=True), LOAD: MatrixSpec(("s", "t"), counter=False)}
    )
    path = tmp_path / "fs.hdf5"
    create(path, spec, created=NOON)
    file = LiveFile.open(path)
    file.cells[LOAD].write_rows(0, np.array([[0.0, -0.0]] * 5))
    file.commit()
    file.close()
    return path


def test_a_live_file_is_filled_as_far_as_its_rows_until_now(path):
    part = Part(path)
    assert (part.form, part.names) == ("live", (READ, LOAD))
    assert part.datasets(NOON + 300) == [DatasetEntry(READ, "bytes", 5, 120, 3, 0.0), DatasetEntry(LOAD, "%", 60, 10, 2, 0.5)]
    assert part.datasets(NOON + 86400)[1].filled == 0.25
    assert part.datasets(NOON)[1].filled == 0.0


def test_a_sealed_file_shows_the_same(path, tmp_path):
    sealed = tmp_path / "sealed.hdf5"
    file = LiveFile.open(path)
    seal(file, sealed, updated=NOON + 600)
    file.close()
    assert Part(sealed).form == "sealed"
    assert Part(sealed).datasets(NOON + 86400)[1] == DatasetEntry(LOAD, "%", 60, 10, 2, 0.25)


def test_a_file_with_a_single_row_has_the_step_that_it_states(tmp_path):
    spec = FileSpec(NOON, NOON + 60, {"dataservers": GroupSpec(60, "lmt")}, {LOAD: MatrixSpec(("s",), counter=False)})
    create(tmp_path / "live.hdf5", spec, created=NOON)
    file = LiveFile.open(tmp_path / "live.hdf5")
    seal(file, tmp_path / "sealed.hdf5", updated=NOON + 60)
    file.close()
    for one in "live", "sealed":
        shape = Part(tmp_path / f"{one}.hdf5").shape(LOAD)
        assert (shape.step, shape.rows, shape.end) == (60, 1, NOON + 60), one


def test_what_is_not_a_file_of_hdf5_is_refused(tmp_path):
    (tmp_path / "x.hdf5").write_text("no")
    with pytest.raises(NotLive, match=r"x\.hdf5: HDF5 can't open it"):
        Part(tmp_path / "x.hdf5")
    with pytest.raises(FileNotFoundError):
        Part(tmp_path / "y.hdf5")


def test_a_process_may_have_the_file_open_with_h5py_before_and_after(path):
    """HDF5 refuses one file with different settings of locking in a process."""
    with h5py.File(path, "r"):
        part = Part(path)
        assert part.shape(LOAD).columns == ("s", "t")
    with h5py.File(path, "r") as file:
        np.testing.assert_array_equal(part.read(LOAD, 0, 1), [[0, np.nan]])
        assert file[LOAD].shape == (10, 2)


@pytest.mark.parametrize(
    ("first", "last", "may"), [(-2, 0, False), (-2, 1, True), (23, 24, True), (24, 26, False), (0, 24, True), (5, 6, True)]
)
def test_a_group_may_reach_the_spans_that_its_rows_touch(tmp_path, first, last, may):
    place = save(tmp_path, 1, ["a"], [[1]])
    span = Span(place.start + first * 3600, place.start + last * 3600)
    part = Part(place.path)
    assert [part.may_reach("datatargets", span) for _ in range(2)] == [may, may]
    assert part.may_reach("fullness", span)  # it has no time stamps, which show nothing


def test_a_single_row_without_a_step_lasts_a_day(tmp_path):
    with h5py.File(tmp_path / "one.hdf5", "w") as file:
        file["fullness/timestamps"] = [1000]
    reached = [
        Part(tmp_path / "one.hdf5").may_reach("fullness", Span(start, start + 10)) for start in (980, 995, 1000 + 86399, 1000 + 86400)
    ]
    assert reached == [False, True, True, False]
