"""Figures of the TTS file: each function returns seconds by what was measured, the floor beside it, all in one run.

assignment: cells into memory and into a file, unsynced. strewn: cells all over a full day, synced. commit: one window of many datasets.
sealing: an hour of eight matrices. making and growing: a day's file.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import h5py
import numpy as np

from tokiod.tts.create import create
from tokiod.tts.files import REAL
from tokiod.tts.grow import grow
from tokiod.tts.live import LiveFile
from tokiod.tts.seal import seal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WIDTH = 248
DATASETS = tuple(
    f"mdtargets/{name}s"
    for name in ("open", "close", "mknod", "link", "unlink", "mkdir", "rmdir", "rename", "getxattr", "statfs", "setattr", "getattr")
) + tuple(
    f"{group}/{name}"
    for group, names in {
        "datatargets": ("readbytes", "writebytes"),
        "dataservers": ("cpuuser", "cpusys", "cpuidle", "cpuload", "memfree", "memused"),
        "fullness": ("bytes", "bytestotal", "inodes", "inodestotal"),
        "failover": ("datatargets", "mdtargets"),
    }.items()
    for name in names
)


def spec(rows: int, datasets: tuple[str, ...]) -> FileSpec:
    """Return a file of these datasets, 5 s x 248 columns each, without raw."""
    columns = tuple(f"fs-OST{i:04x}" for i in range(WIDTH))
    groups = {dataset.partition("/")[0]: GroupSpec(5, "lmt") for dataset in datasets}
    return FileSpec(0, 5 * rows, groups, {dataset: MatrixSpec(columns, counter=False) for dataset in datasets})


def opened(path: Path, rows: int, datasets: tuple[str, ...]) -> LiveFile:
    """Make a live file and open it."""
    create(path, spec(rows, datasets), created=0)
    return LiveFile.open(path)


def best(act: Callable[[], object], times: int = 20) -> float:
    """Return the seconds of the fastest of some runs."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        act()
        found.append(time.perf_counter() - start)
    return min(found)


def median(act: Callable[[], object], times: int = 9) -> float:
    """Return the seconds of the middle one of some runs."""
    return sorted(best(act, 1) for _ in range(times))[times // 2]


def assignment(directory: Path) -> dict[str, float]:
    """Assign rectangles, partial ones, columns first, to memory and to a file, unsynced: seconds per call."""
    live = opened(directory / "assignment.hdf5", 17_280, ("datatargets/readbytes",))
    matrix, memory = live.cells["datatargets/readbytes"], np.zeros((17_280, WIDTH))
    found = {}
    for rows in (12, 60, 720):
        for shape, width in (("whole rows", WIDTH), ("200 of 248 columns", 200), ("columns first", WIDTH)):
            row, column = np.mgrid[100 : 100 + rows, 0:width]
            if shape == "columns first":
                row, column = row.T, column.T
            row, column, value = row.ravel().copy(), column.ravel().astype(np.uint32), np.random.default_rng(1).random(row.size)
            name = f"{row.size} cells, {shape}"
            found[f"{name}: memory"] = best(lambda r=row, c=column, v=value: memory.__setitem__((r, c), v))
            found[f"{name}: file"] = best(lambda r=row, c=column, v=value: matrix.assign(r, c, v))
            found[f"{name}: file, compared"] = best(lambda r=row, c=column, v=value: matrix.assign(r, c, v, compare=True))
    live.close()
    return found


def strewn(directory: Path) -> dict[str, float]:
    """Assign strewn cells to a full day of one dataset and sync: seconds per call, and those of the sync."""
    live = opened(directory / "strewn.hdf5", 17_280, ("datatargets/readbytes",))
    matrix = live.cells["datatargets/readbytes"]
    chance, found = np.random.default_rng(1), {}
    for n in (10, 100, 1000, 10_000):
        place = chance.choice(17_280 * WIDTH, n, replace=False)
        row, column, value = place // WIDTH, place % WIDTH, chance.random(n)
        found[f"{n} cells, unsynced"] = median(lambda r=row, c=column, v=value: matrix.assign(r, c, v))
        found[f"{n} cells, synced"] = median(lambda r=row, c=column, v=value: (matrix.assign(r, c, v), live.commit()))
    live.close()
    return found


def commit(directory: Path, rows: int = 17_280) -> dict[str, float]:
    """Commit a late window of 12 rows x 248 columns x 26 datasets into a full day, and write and sync the same bytes plainly."""
    live = opened(directory / "commit.hdf5", rows, DATASETS)
    row, column = np.mgrid[rows // 2 : rows // 2 + 12, 0:WIDTH]
    row, column, value = row.ravel().copy(), column.ravel().astype(np.uint32), np.random.default_rng(1).random(row.size)
    fd = REAL.open(live.path)
    places = [matrix._offset + rows // 2 * WIDTH * 8 for matrix in live.cells.values()]

    def plainly() -> None:
        for place in places:
            os.pwrite(fd, value.data, place)
        os.fdatasync(fd)

    def window() -> None:
        for matrix in live.cells.values():
            matrix.assign(row, column, value)
        live.commit()

    found = {f"{len(places)} datasets: pwrite and fdatasync": median(plainly, 31), f"{len(places)} datasets: commit": median(window, 31)}
    REAL.close(fd)
    live.close()
    return found


def sealing(directory: Path) -> dict[str, float]:
    """Seal an hour of eight matrices of smooth, of sparse and of random numbers."""
    live = opened(directory / "sealing.hdf5", 720, DATASETS[-8:])
    chance = np.random.default_rng(1)
    for n, matrix in enumerate(live.cells.values()):
        random = chance.integers(0, 2**20, (matrix.rows, WIDTH)) * 4096.0
        smooth = np.cumsum(chance.integers(0, 5, (matrix.rows, WIDTH)), axis=0) * 4096.0
        sparse = np.where(chance.random(random.shape) < 0.9, 0.0, random)
        matrix.write_rows(0, (smooth, sparse, np.round(chance.random(random.shape) * 100, 2))[n % 3])
    live.commit()

    def plainly() -> None:
        with h5py.File(directory / "plain.hdf5", "w") as file:
            for name, matrix in live.cells.items():
                values = matrix.read(0, matrix.rows)
                file.create_dataset(name, data=values, chunks=(720, 32), shuffle=True, compression="gzip", compression_opts=4)

    found = {
        "8 matrices of an hour: h5py's gzip, unchecked": median(plainly, 3),
        "8 matrices of an hour: sealed and read back": median(lambda: seal(live, directory / "sealed.hdf5", 0), 3),
    }
    live.close()
    return found


def making_and_growing(directory: Path) -> dict[str, float]:
    """Make a day of two datasets, and grow it by one more."""
    path = directory / "growing.hdf5"
    start = time.perf_counter()
    live = opened(path, 17_280, DATASETS[-4:-2])
    made = time.perf_counter()
    grow(live, spec(17_280, DATASETS[-4:-1]), 0).close()
    return {"a day of 2 x 248 columns made": made - start, "grown by 248 columns": time.perf_counter() - made}
