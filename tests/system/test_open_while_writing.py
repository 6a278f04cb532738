"""Four readers of tokiod.open, each a process, while a writer commits, grows, seals and reopens the file that they read.

OPEN_READS=10000 makes it as long as `make read-while-writing`.

    test_open_while_writing.py write DIRECTORY            until `over` is there: cycles of growing, commits, sealing and reopening
    test_open_while_writing.py KIND DIRECTORY READS       read, then print {reads, cells, faults} as JSON

Commit k writes k to all columns of row k % ROWS. The writer notes k before it writes and after the commit, so what each cell held in any
state that was committed between the start and the end of a read is known exactly.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tokiod
from tests.support.grown_file import grow
from tokiod.reader.followed_file import FollowedFile
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.seal import seal, unseal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

pytestmark = pytest.mark.system

READS = int(os.environ.get("OPEN_READS", "600"))
"""Of all readers together."""
DATASET, START, ROWS, STEP = "datatargets/readbytes", 1_517_184_000, 48, 1800
END = START + ROWS * STEP
COMMITS, FIRST_COLUMNS, MAX_COLUMNS = 5, 30, 70
"""Commits of a cycle; columns at first, and at last: each cycle adds one."""
MIN_CYCLES = 4
KINDS = ("anew", "kept", "xarray", "followed")


def columns_of(cycle: int) -> int:
    return min(FIRST_COLUMNS + cycle, MAX_COLUMNS)


def born(columns: np.ndarray) -> np.ndarray:
    """The first commit that writes to each column."""
    return np.maximum(0, columns - FIRST_COLUMNS + 1) * COMMITS + 1


def spec(cycle: int) -> FileSpec:
    names = tuple(f"OST{i:04x}" for i in range(columns_of(cycle)))
    return FileSpec(START, END, {"datatargets": GroupSpec(STEP, "lmt")}, {DATASET: MatrixSpec(names, counter=False)})


class Progress:
    """The commits that have begun, that are done, and the cycles that are over, for all processes."""

    def __init__(self, directory: Path) -> None:
        fd = os.open(directory / "progress", os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, 4096)
        self._numbers = np.frombuffer(mmap.mmap(fd, 4096), np.int64)

    begun = property(lambda self: int(self._numbers[0]))
    done = property(lambda self: int(self._numbers[1]))
    cycles = property(lambda self: int(self._numbers[2]))

    def note(self, *, begun: int | None = None, done: int | None = None, cycles: int | None = None) -> None:
        for i, number in enumerate((begun, done, cycles)):
            if number is not None:
                self._numbers[i] = number


def write(directory: Path) -> None:
    path, progress = directory / "fs.hdf5", Progress(directory)
    create(path, spec(0), created=START)
    live, number = LiveFile.open(path), 0
    (directory / "ready").touch()
    for cycle in itertools.count():
        live = grow(live, spec(cycle), START)
        for _ in range(COMMITS):
            number += 1
            progress.note(begun=number)
            live.cells[DATASET].write_rows(number % ROWS, np.full((1, len(live.spec.matrices[DATASET].columns)), float(number)))
            live.commit()
            progress.note(done=number)
        seal(live, path, updated=END)
        live.close()
        live = unseal(path, created=END)
        progress.note(cycles=cycle + 1)
        if (directory / "over").exists():
            break
    live.close()


# ---- the readers: each returns the names of columns and the values of rows [first, last)


def anew(path: Path):
    def read(first, last):
        with tokiod.open("fs", START + first * STEP, START + last * STEP, path=path) as archive:
            matrix = archive.array(DATASET)
            return matrix.columns, matrix[...]

    return read


def kept(path: Path):
    """An array that stays open; now and then a new one, for the columns that came since."""
    held, turns = [], itertools.count()

    def read(first, last):
        if next(turns) % 20 == 0:
            held[:] = [tokiod.open("fs", START, END, path=path).array(DATASET)]
        return held[0].columns, held[0][first:last]

    return read


def xarray(path: Path):
    held, turns = [], itertools.count()

    def read(first, last):
        if next(turns) % 20 == 0:
            held[:] = [tokiod.open("fs", START, END, path=path)[DATASET]]
        return tuple(held[0].datatarget.values.tolist()), held[0].isel(time=slice(first, last)).values

    return read


def followed(path: Path):
    file = FollowedFile(path)

    def read(first, last):
        _, columns, values = file.read(DATASET, START + first * STEP, START + last * STEP)
        return columns, values

    return read


def follow(kind: str, directory: Path, reads: int) -> dict:
    read, progress = globals()[kind](directory / "fs.hdf5"), Progress(directory)
    chance, cells, faults = random.Random(kind), 0, []
    for turn in itertools.count():
        first, last = (0, ROWS) if turn % 10 == 0 else sorted(chance.sample(range(ROWS + 1), 2))
        before = progress.done
        try:
            names, values = read(first, last)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what the test is about
            faults.append(f"read {turn} of rows {first} to {last}: {type(error).__name__}: {error}")
            break
        faults += check(names, values, first, before, progress.begun)
        cells += values.size
        if faults or (turn + 1 >= reads and progress.cycles >= MIN_CYCLES):
            break
    return {"reads": turn + 1, "cells": cells, "faults": faults[:5]}


def check(names: tuple[str, ...], values: np.ndarray, first: int, before: int, after: int) -> list[str]:
    """Hold cells against the states of commits `before` to `after`; one that was not committed to meanwhile has one state."""
    columns = np.array([int(name[3:], 16) for name in names])
    rows = np.arange(first, first + len(values))[:, None]
    latest = before - (before - rows) % ROWS
    latest = np.where(latest >= born(columns), latest, 0)
    number = np.nan_to_num(values)
    is_commit = (number % ROWS == rows) & (number >= born(columns)) & (number >= latest) & (number <= after)
    right = np.where(np.isnan(values), latest == 0, is_commit)
    return [
        f"row {row + first} {names[column]}: {values[row, column]}, of commits {before} to {after}"
        for row, column in np.argwhere(~right)[:3].tolist()
    ]


# ---- the run


def test_no_read_fails_and_each_cell_is_of_a_state_committed_during_the_read(tmp_path):
    with started("write", tmp_path) as writer:
        while not (tmp_path / "ready").exists():
            assert writer.poll() is None, writer.stderr.read()
            time.sleep(0.01)
        readers = {kind: started(kind, tmp_path, str(-(-READS // len(KINDS)))) for kind in KINDS}
        out = {kind: process.communicate() for kind, process in readers.items()}
        (tmp_path / "over").touch()
        assert (writer.wait(), writer.stderr.read()) == (0, b"")
    assert {kind: err for kind, (_, err) in out.items()} == dict.fromkeys(KINDS, b"")
    reports = {kind: json.loads(text) for kind, (text, _) in out.items()}
    assert {kind: report["faults"] for kind, report in reports.items()} == {kind: [] for kind in KINDS}
    reads, cycles = sum(report["reads"] for report in reports.values()), Progress(tmp_path).cycles
    assert reads >= READS
    print(f"{reads} reads, {sum(report['cells'] for report in reports.values())} cells, {cycles} times grown, sealed and reopened")


def test_a_cell_of_another_state_is_a_fault():
    """The check itself: of the second commit to a row, too old, too new, of another row, not there."""
    names, second = ("OST0000",), ROWS + 3
    assert check(names, np.array([[second]], float), 3, second, second) == []
    assert check(names, np.array([[3.0]]), 3, second - 1, second) == []
    assert check(names, np.array([[np.nan]]), 3, 2, 3) == []
    for value, before, after in ((3, second, second), (second, second - 2, second - 1), (second + 1, second, second + 9), (np.nan, 3, 3)):
        assert len(check(names, np.array([[value]], float), 3, before, after)) == 1


def started(*command: str | Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, __file__, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


if __name__ == "__main__":
    kind, directory, *count = sys.argv[1:]
    if kind == "write":
        write(Path(directory))
    else:
        print(json.dumps(follow(kind, Path(directory), int(count[0]))))
