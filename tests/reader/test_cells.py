"""Cells of any file: those that h5py reads, whatever the layout, the rows and the columns are."""

import os
import signal
from contextlib import nullcontext

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stitched_days import READ, save

from tokiod.reader.cells import Cells, Damaged, KeptChunks
from tokiod.reader.errors import NotTts
from tokiod.reader.part import Part

ROWS, COLUMNS = 1500, 70
LAYOUTS = {
    "contiguous": {},
    "sealed": {"chunks": (720, 32), "shuffle": True, "compression": "gzip"},
    "pytokio": {"chunks": (ROWS, COLUMNS), "compression": "gzip"},
    "chunked": {"chunks": (100, 7)},
    "shuffled": {"chunks": (64, 64), "shuffle": True},
    "checked": {"chunks": (720, 32), "fletcher32": True, "compression": "gzip"},
    "lzf": {"chunks": (720, 32), "compression": "lzf"},
    "big-endian": {"dtype": ">f8"},
    "single": {"dtype": "<f4"},
    "integers": {"dtype": "<i8"},
}


@pytest.fixture(scope="module")
def stored():
    """Cells with measured zeros, negative values and missing cells."""
    generator = np.random.default_rng(7)
    cells = np.round(generator.random((ROWS, COLUMNS)) * 50) - 10
    cells[cells == 0] = 0.0
    cells[generator.random(cells.shape) < 0.2] = -0.0
    cells[:, 5] = -0.0
    return cells


@pytest.fixture(scope="module")
def file(tmp_path_factory, stored):
    with h5py.File(tmp_path_factory.mktemp("cells") / "x.hdf5", "w") as file:
        for name, options in LAYOUTS.items():
            file.create_dataset(name, data=stored.astype(options.get("dtype", "<f8")), **options)
        unwritten = file.create_dataset("unwritten", (ROWS, COLUMNS), "<f8", chunks=(100, 32), compression="gzip", fillvalue=-0.0)
        unwritten[200:300] = stored[200:300]
        path = file.filename
    with h5py.File(path, "r") as file:
        yield file


def cells_of(dataset, columns):
    return Cells(dataset, columns, dataset.file.id.get_vfd_handle(), lambda: nullcontext(dataset))


def oracle(dataset, rows, columns):
    """What h5py reads, NaN where the bits are those of -0.0."""
    cells = dataset[...].astype(float)[rows][:, columns]
    cells[(cells == 0) & np.signbit(cells)] = np.nan
    return cells


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_rectangle_is_what_h5py_reads(file, data):
    name = data.draw(st.sampled_from([*LAYOUTS, "unwritten"]))
    width = data.draw(st.sampled_from([COLUMNS, COLUMNS - 3]))
    first, last = sorted(data.draw(st.tuples(st.integers(0, ROWS), st.integers(0, ROWS))))
    columns = data.draw(st.none() | st.lists(st.integers(0, width - 1), unique=True, max_size=9))
    chosen = None if columns is None else np.array(columns, np.intp)
    values = cells_of(file[name], width).read(first, last, chosen)
    np.testing.assert_array_equal(values, oracle(file[name], slice(first, last), np.arange(width) if columns is None else chosen))
    assert not np.signbit(values[values == 0]).any()


def test_only_known_layouts_are_read_around_hdf5(file):
    around = {name for name in [*LAYOUTS, "unwritten"] if (cells := cells_of(file[name], 1))._offset is not None or cells._chunks}
    assert around == {"contiguous", "sealed", "pytokio", "chunked", "shuffled"}


def test_a_live_file_is_read_as_it_is_now(tmp_path):
    place = save(tmp_path, 1, ["a", "b"], [[1, 2]])
    part = Part(place.path)
    assert part.read(READ, 0, 1).tolist() == [[1, 2]]
    offset = part.cells(READ)._offset
    with place.path.open("r+b") as file:
        os.pwrite(file.fileno(), np.array([7.0, -0.0]).tobytes(), offset)
    np.testing.assert_array_equal(part.read(READ, 0, 1), [[7, np.nan]])


def test_chunks_that_stay_inflated_are_the_same_cells_and_never_more_bytes_than_the_limit(file):
    kept = KeptChunks(3 * 720 * 32 * 8)
    cells = Cells(file["sealed"], COLUMNS, file.id.get_vfd_handle(), lambda: nullcontext(file["sealed"]), kept)
    for first, last in ((0, ROWS), (10, 20), (700, 800), (0, 1440)):
        for columns in (None, np.array([40, 3], np.intp)):
            wanted = oracle(file["sealed"], slice(first, last), np.arange(COLUMNS) if columns is None else columns)
            for _ in range(2):
                values = cells.read(first, last, columns)
                np.testing.assert_array_equal(values, wanted)
                values[...] = 7
            assert sum(chunk.nbytes for chunk in kept._chunks.values()) == kept._nbytes <= kept._limit
    kept.clear()
    np.testing.assert_array_equal(cells.read(5, 9), oracle(file["sealed"], slice(5, 9), np.arange(COLUMNS)))


@pytest.mark.parametrize("fault", ["bits", "shorter"])
def test_a_damaged_chunk_is_an_error_with_the_file_and_never_a_value(tmp_path, fault):
    place = save(tmp_path, 1, [f"c{i}" for i in range(40)], np.random.default_rng(1).random((1440, 40)), step=60, is_sealed=True)
    part = Part(place.path)
    offset, size = part.cells(READ)._chunks.places[0, 0]
    with place.path.open("r+b") as file:
        if fault == "bits":
            os.pwrite(file.fileno(), bytes(200), int(offset) + int(size) // 2)
        else:
            os.ftruncate(file.fileno(), int(offset) + 10)
    with pytest.raises(NotTts, match=r"1\.hdf5: "):
        Part(place.path).read(READ, 0, 1440)


def test_a_read_that_the_file_has_not_is_refused_before_memory_is_taken(file):
    cells = cells_of(file["contiguous"], COLUMNS)
    cells._offset = 2**60
    with pytest.raises(Damaged, match="beyond its end"):
        cells.read(0, 1)


def test_a_forked_child_reads_with_threads_of_its_own(file):
    cells = cells_of(file["sealed"], COLUMNS)
    cells.read(0, ROWS)
    child = os.fork()
    if not child:
        signal.alarm(60)
        os._exit(0 if np.array_equal(cells.read(0, ROWS), oracle(file["sealed"], slice(None), np.arange(COLUMNS)), equal_nan=True) else 1)
    assert os.waitpid(child, 0)[1] == 0
