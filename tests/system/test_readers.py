"""Reading the file that is being written: four kinds of readers, as their own processes, through 4,000 commits and 8 growths.

READER_COMMITS=10000 makes it a longer day.

    test_readers.py write DIRECTORY                 the writer: one row a window, and after its commit the number of windows in `done`
    test_readers.py {anew,reader,plain,h5dump} DIRECTORY    read until `over` is there, then print {reads, cells, faults} as JSON

Every cell follows from its row and column, so any cell that is torn, stale or made up shows.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.batch import Batch
from tokiod.reader.followed_file import FollowedFile
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar, Window
from tokiod.window_data import Collected, WindowMeta

pytestmark = pytest.mark.system

EPOCH = 1_517_184_000
STEP = 8
WINDOWS = int(os.environ.get("READER_COMMITS", "4000"))
FIRST_COLUMNS = 60
GROWS_EVERY = 480
GROWTHS = (WINDOWS - 1) // GROWS_EVERY
GAUGE, COUNTER = "fullness/bytes", "datatargets/readbytes"
KINDS = ("anew", "reader", "plain", "h5dump")
READING = Path(__file__).parents[2] / "docs" / "reading.md"


def path_of(directory: Path) -> Path:
    return directory / "2018-01-29.hdf5"


def columns_at(row: int) -> int:
    return FIRST_COLUMNS + row // GROWS_EVERY


def right(dataset: str, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """What a cell holds once it is filled: the counter's grows by this much from one row to the next."""
    return 1000.0 * rows + columns + (0.5 if dataset == GAUGE else 1.0)


def sums(row: int, columns: np.ndarray) -> np.ndarray:
    """The counter's value at a row: the sum of right() over the rows before it, and more than 2^53."""
    return 2**54 + 1000 * (row * (row - 1) // 2) + row * (columns + 1)


def born(columns: np.ndarray) -> np.ndarray:
    """The row in which a column is first there."""
    return np.maximum(0, columns - FIRST_COLUMNS + 1) * GROWS_EVERY


# ---- the writer


def write(directory: Path) -> None:
    layout = daily(Calendar("UTC"), lambda day, _system: directory / f"{day.date}.hdf5")
    sink = TtsSink(DayFiles(layout, FakeClock(EPOCH)))
    done = os.open(directory / "done", os.O_RDWR | os.O_CREAT)
    for row in range(WINDOWS):
        sink.apply(window(row))
        assert sink.commit() == []
        os.pwrite(done, (row + 1).to_bytes(8, "little"), 0)
    sink.close()
    (directory / "over").touch()


def window(row: int) -> Collected:
    columns = np.arange(columns_at(row))
    names = tuple(f"OST{column:04x}" for column in columns)
    time_of_row, index = np.full(len(columns), EPOCH + row * STEP), columns.astype(np.uint32)
    batches = [
        Batch(GAUGE, "gauge", STEP, names, time_of_row, index, right(GAUGE, np.array(row), columns)),
        Batch(COUNTER, "counter", STEP, names, time_of_row, index, sums(row, columns)),
    ]
    return Collected(WindowMeta("fs-lmt", "lmt", "fs", Window(EPOCH + row * STEP, EPOCH + (row + 1) * STEP)), batches)


# ---- the readers


def anew(path: Path):
    def read(dataset, first, last):
        with h5py.File(path, "r") as file:
            node = file[dataset]
            return names_of(node), node[first:last]

    return read


def reader(path: Path):
    kept = FollowedFile(path)

    def read(dataset, first, last):
        _, names, values = kept.read(dataset, EPOCH + first * STEP, EPOCH + last * STEP)
        return [name.encode() for name in names], np.where(np.isnan(values), -0.0, values)

    return read


def plain(path: Path):
    """As docs/reading.md says, by its own words."""
    (code,) = re.findall(r"^```python keep-open\n(.*?)^```", READING.read_text(), re.MULTILINE | re.DOTALL)
    words: dict = {}
    exec(code, words)
    kept, held = words["OpenFile"](path), {}

    def read(dataset, first, last):
        held[dataset] = node = kept.dataset(dataset)  # a dataset that stays open is one whose old cells HDF5 remembers
        return names_of(node), node[first:last]

    return read


def h5dump(path: Path):
    """The first columns only: those that no growth moves."""

    def read(dataset, first, last):
        wanted = ["-d", f"/{dataset}", "-s", f"{first},0", "-c", f"{last - first},{FIRST_COLUMNS}", "-y", "-m", "%.17g", "-A", "0"]
        done = subprocess.run(["h5dump", *wanted, str(path)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        data = done.stdout.rpartition("DATA {")[2].partition("}")[0]
        values = np.array([float(word) for word in data.replace(",", " ").split()])
        return [f"OST{column:04x}".encode() for column in range(FIRST_COLUMNS)], values.reshape(last - first, FIRST_COLUMNS)

    return read


def names_of(node) -> list[bytes]:
    return list(node.attrs["columns"])


def span(kind: str, turn: int, acknowledged: int) -> tuple[int, int]:
    """Return which rows to read: the newest few again and again, as HDF5 would remember them; now and then any few, or everything."""
    if turn % 50 == 49 and kind != "h5dump":  # which takes seconds to print all
        return 0, WINDOWS
    first = max(0, acknowledged - 20) if turn % 10 else random.randrange(WINDOWS - 40)
    return first, first + 40


def follow(kind: str, directory: Path) -> dict:
    read = globals()[kind](path_of(directory))
    done = os.open(directory / "done", os.O_RDONLY)
    reads, cells, faults = 0, 0, []
    for turn in itertools.count():
        over = (directory / "over").exists()
        acknowledged = int.from_bytes(os.pread(done, 8, 0), "little")
        first, last = (0, WINDOWS) if over else span(kind, turn, acknowledged)
        for dataset in (GAUGE, COUNTER):
            try:
                names, values = read(dataset, first, last)
                cells += check(dataset, names, values, first, acknowledged, faults)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what the test is about
                faults.append(f"{dataset} rows {first} to {last}: {type(error).__name__}: {error}")
            reads += 1
        if over or faults:
            break
        time.sleep(0.005)
    return {"reads": reads, "cells": cells, "faults": faults}


def check(dataset: str, names: list[bytes], values: np.ndarray, first: int, acknowledged: int, faults: list[str]) -> int:
    """Hold what was read against what must be there and against what may be; returns how many cells had to be."""
    columns = np.array([int(name[3:], 16) for name in names])
    if len(columns) != values.shape[1]:
        faults.append(f"{dataset}: {len(columns)} names for {values.shape[1]} columns")
        return 0
    rows = np.arange(first, first + len(values))[:, None]
    missing = (values == 0) & np.signbit(values)
    wrong = ~missing & (values != right(dataset, rows, columns))
    due = (rows >= born(columns)) & (rows < acknowledged - (dataset == COUNTER))
    if len(columns) != FIRST_COLUMNS and len(columns) < columns_at(acknowledged - 1):
        faults.append(f"{dataset}: {len(columns)} columns, {acknowledged} windows acknowledged")
    for what, where in (("wrong", wrong), ("not there", due & missing)):
        for row, column in np.argwhere(where)[:3].tolist():
            faults.append(f"{dataset} row {row + first} {names[column]!r} {what}: {values[row, column]}, {acknowledged} acknowledged")
    return int(due.sum())


# ---- the run


@pytest.fixture(scope="module")
def reports():
    """What each kind of reader saw, all during one run of the writer."""
    # On a disk: in memory the writer has ended before h5dump has read a hundred times.
    with tempfile.TemporaryDirectory(prefix="live-") as name, start("write", Path(name)) as writer:
        directory = Path(name)
        while not ((directory / "done").exists() and (directory / "done").stat().st_size):
            assert writer.poll() is None, writer.stderr.read()
            time.sleep(0.01)
        readers = {kind: start(kind, directory) for kind in KINDS if kind != "h5dump" or shutil.which("h5dump")}
        out = {kind: process.communicate(timeout=800) for kind, process in readers.items()}
        assert (writer.wait(300), writer.stderr.read()) == (0, b"")
    assert {kind: err for kind, (_, err) in out.items()} == dict.fromkeys(out, b"")
    return {kind: json.loads(text) for kind, (text, _) in out.items()}


def start(kind: str, directory: Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, __file__, kind, str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("kind", KINDS)
def test_no_reader_ever_meets_an_error_a_torn_cell_or_one_older_than_the_last_acknowledgement(reports, kind):
    if kind not in reports:
        reason = "h5dump is not installed: apt-get install hdf5-tools"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    assert reports[kind]["faults"] == []
    assert reports[kind]["reads"] > 100
    assert reports[kind]["cells"] > 10_000


def test_the_file_grew_during_the_run():
    assert columns_at(WINDOWS - 1) - FIRST_COLUMNS == GROWTHS >= 8


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]))
    else:
        print(json.dumps(follow(sys.argv[1], Path(sys.argv[2]))))
