"""Small specs, files made of them, what a file holds, bit for bit, and a disk that is soon full."""

import gc
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tokiod.tts.live.create import create
from tokiod.tts.live.files import REAL, Files
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

START = 1_517_126_400


def small_spec(columns: tuple[str, ...] = ("fs-OST0010", "fs-OST0009", "fs-OST000a"), rows: int = 8) -> FileSpec:
    return FileSpec(
        START,
        START + 5 * rows,
        {"datatargets": GroupSpec(5, "lmt"), "fullness": GroupSpec(10, "lmt")},
        {"datatargets/readbytes": MatrixSpec(columns, counter=True), "fullness/bytes": MatrixSpec(("b10", "b2"), counter=False)},
    )


def bits_of(path: Path) -> dict[str, list[list[int]]]:
    """Every matrix of a file as HDF5 reads it, as the integers that its bits are."""
    found = {}
    with h5py.File(path, "r") as file:

        def visit(name: str, node: Any) -> None:
            if isinstance(node, h5py.Dataset) and node.ndim == 2:
                found[name] = node[...].view(np.int64).tolist()

        file.visititems(visit)
    return found


def fill_with_samples(live: LiveFile, seed: int = 1) -> None:
    """Put numbers into every cell and raw sample but some, and the span that belongs to them."""
    chance = np.random.default_rng(seed)
    for matrix in live.cells.values():
        cells = chance.random((matrix.rows, matrix.width))
        matrix.write_rows(0, np.where(chance.random(cells.shape) < 0.2, -0.0, cells))
    for name, matrix in live.raw.items():
        samples = chance.integers(0, 2**62, (matrix.rows, matrix.width))
        matrix.write_rows(0, samples)
        live.span[name].write_rows(0, np.array([[0], [matrix.rows - 2]]).repeat(matrix.width, axis=1))
        live.begin[name].write_rows(0, chance.integers(-5, 2**62, (5, matrix.width)))


@pytest.fixture
def spec() -> FileSpec:
    return small_spec()


@pytest.fixture
def bits() -> Callable[[Path], dict[str, list[list[int]]]]:
    return bits_of


@pytest.fixture
def fill() -> Callable[..., None]:
    return fill_with_samples


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., LiveFile]]:
    """Make a live file and open it; it is closed after the test."""
    with ExitStack() as opened:

        def make_and_open(spec: FileSpec | None = None, name: str = "fs.hdf5", files: Files = REAL) -> LiveFile:
            create(tmp_path / name, spec or small_spec(), created=START)
            live = LiveFile.open(tmp_path / name, files)
            opened.callback(live.close)
            return live

        yield make_and_open


@pytest.fixture
def widened() -> FileSpec:
    """What small_spec() is not yet: another column, another dataset."""
    return FileSpec(
        START,
        START + 40,
        {"datatargets": GroupSpec(5, "lmt")},
        {
            "datatargets/readbytes": MatrixSpec(("fs-OST0009", "fs-OST0011"), counter=True),
            "datatargets/writebytes": MatrixSpec(("fs-OST0009",), counter=True),
        },
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 8 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mounting a small tmpfs is not allowed here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def opened() -> Callable[[], int]:
    """Return a function for the number of objects that a test has left open: tests before it in this process may have left some."""
    gc.collect()
    before = _objects()
    return lambda: max(0, _objects() - before)


def _objects() -> int:
    return h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE | h5py.h5f.OBJ_DATASET | h5py.h5f.OBJ_GROUP | h5py.h5f.OBJ_ATTR)
