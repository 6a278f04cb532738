"""A path is read again and again: each read is of the file that it is then."""

from contextlib import ExitStack

import h5py
import numpy as np
import pytest
from grown_file import grow

from tokiod.reader.followed_file import FollowedFile
from tokiod.tts.layout import NotLive, open_for_reading, read_spec
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.seal import seal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

START = 1_517_126_400
COLUMNS = ("fs-OST0010", "fs-OST0009", "fs-OST000a")


@pytest.fixture
def make(tmp_path):
    """Make a live file and open it; it is closed after the test."""
    groups = {"datatargets": GroupSpec(5, "lmt"), "fullness": GroupSpec(10, "lmt")}
    matrices = {"datatargets/readbytes": MatrixSpec(COLUMNS, counter=True), "fullness/bytes": MatrixSpec(("b10", "b2"), counter=False)}
    with ExitStack() as opened:

        def make_and_open():
            create(tmp_path / "fs.hdf5", FileSpec(START, START + 40, groups, matrices), created=START)
            live = LiveFile.open(tmp_path / "fs.hdf5")
            opened.callback(live.close)
            return live

        yield make_and_open


@pytest.fixture
def widened():
    """What the file is not yet: another column, another dataset."""
    matrices = {
        "datatargets/readbytes": MatrixSpec(("fs-OST0009", "fs-OST0011"), counter=True),
        "datatargets/writebytes": MatrixSpec(("fs-OST0009",), counter=True),
    }
    return FileSpec(START, START + 40, {"datatargets": GroupSpec(5, "lmt")}, matrices)


def test_a_span_is_read_with_its_time_stamps_and_names_and_nan_for_what_is_missing(make):
    live = make()
    live.cells["fullness/bytes"].write_rows(1, np.array([[0.0, -0.0], [-0.0, 5.0]]))
    with FollowedFile(live.path) as reader:
        stamps, columns, values = reader.read("fullness/bytes", START + 10, START + 30)
    assert (stamps.tolist(), columns) == ([START + 10, START + 20], ("b10", "b2"))
    np.testing.assert_array_equal(values, [[0.0, np.nan], [np.nan, 5.0]])
    assert not np.signbit(values[0, 0])


@pytest.mark.parametrize(
    ("start", "end", "rows"), [(0, START, []), (START - 5, START + 1, [0]), (START + 31, 2**40, []), (START + 25, START + 31, [3])]
)
def test_a_row_belongs_to_a_span_that_holds_its_time_stamp(make, start, end, rows):
    with FollowedFile(make().path) as reader:
        stamps, _, values = reader.read("fullness/bytes", start, end)
    assert stamps.tolist() == [START + 10 * row for row in rows]
    assert values.shape == (len(rows), 2)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_file_of_an_earlier_version_without_dimension_scales_is_the_same(make, is_sealed):
    live = make()
    live.cells["fullness/bytes"].write_rows(0, np.array([[1.0, 2.0]]))
    if is_sealed:
        seal(live, live.path, START)
    live.close()
    with open_for_reading(live.path) as file:
        wanted = read_spec(file)
    with h5py.File(live.path, "r+", libver=("v108", "v110"), locking=False) as file:
        for name in ("datatargets/readbytes", "fullness/bytes"):
            for attribute in ("DIMENSION_LIST", "DIMENSION_LABELS", "missing"):
                del file[name].attrs[attribute]
        for group, scale in (("datatargets", "datatarget"), ("fullness", "target")):
            del file[group][scale]
            for attribute in list(file[group]["timestamps"].attrs):
                del file[group]["timestamps"].attrs[attribute]
    with open_for_reading(live.path) as file:
        assert read_spec(file) == wanted
    with FollowedFile(live.path) as reader:
        assert reader.datasets() == ("datatargets/readbytes", "fullness/bytes")
        assert reader.read("fullness/bytes", START, START + 10)[2].tolist() in ([[1.0, 2.0]], [[2.0, 1.0]])
    if not is_sealed:
        LiveFile.open(live.path).close()


def test_a_reader_that_stays_open_sees_every_write_at_once(make):
    live = make()
    matrix = live.cells["datatargets/readbytes"]
    with FollowedFile(live.path) as reader:
        for n in range(100):
            matrix.write_rows(n % 8, np.full((1, 3), float(n)))
            _, _, values = reader.read("datatargets/readbytes", START + 5 * (n % 8), START + 5 * (n % 8) + 1)
            assert values.tolist() == [[n, n, n]]


def test_a_reader_that_stays_open_follows_growth_and_sealing(make, widened):
    live = make()
    live.cells["datatargets/readbytes"].write_rows(0, np.array([[1.0, 2.0, 3.0]]))
    with FollowedFile(live.path) as reader:
        assert reader.datasets() == ("datatargets/readbytes", "fullness/bytes")
        live = grow(live, widened, START)
        live.cells["datatargets/readbytes"].write_rows(1, np.array([[4.0, 5.0, 6.0, 7.0]]))
        assert reader.datasets() == ("datatargets/readbytes", "datatargets/writebytes", "fullness/bytes")
        _, columns, values = reader.read("datatargets/readbytes", START, START + 6)
        assert columns == ("fs-OST0010", "fs-OST0009", "fs-OST000a", "fs-OST0011")
        np.testing.assert_array_equal(values, [[1, 2, 3, np.nan], [4, 5, 6, 7]])
        seal(live, live.path, START)
        live.close()
        _, columns, values = reader.read("datatargets/readbytes", START, START + 6)
        assert columns == ("fs-OST0009", "fs-OST000a", "fs-OST0010", "fs-OST0011")
        np.testing.assert_array_equal(values, [[2, 3, 1, np.nan], [5, 6, 4, 7]])


def test_columns_without_names_and_datasets_without_columns_are_left_out(tmp_path):
    with h5py.File(tmp_path / "pytokio.hdf5", "w") as file:
        group = file.create_group("datatargets")
        group.create_dataset("timestamps", data=np.array([0, 5]))
        group.create_dataset("readbytes", data=np.array([[1.0, -0.0], [2.0, -0.0]])).attrs["columns"] = np.array([b"a"])
        group.create_dataset("writebytes", data=np.full((2, 2), -0.0)).attrs["columns"] = np.array([])
    with FollowedFile(tmp_path / "pytokio.hdf5") as reader:
        assert reader.datasets() == ("datatargets/readbytes",)
        stamps, columns, values = reader.read("datatargets/readbytes", 0, 10)
    assert (stamps.tolist(), columns, values.tolist()) == ([0, 5], ("a",), [[1.0], [2.0]])


def test_a_reader_tells_when_there_is_nothing_to_read(make, tmp_path):
    with pytest.raises(FileNotFoundError):
        FollowedFile(tmp_path / "missing.hdf5")
    (tmp_path / "junk.hdf5").write_text("junk")
    with pytest.raises(NotLive, match="HDF5 can't open it"):
        FollowedFile(tmp_path / "junk.hdf5")
    live = make()
    with FollowedFile(live.path) as reader:
        with pytest.raises(KeyError):
            reader.read("datatargets/writebytes", 0, 1)
        live.path.unlink()
        with pytest.raises(FileNotFoundError):
            reader.read("fullness/bytes", 0, 1)
