"""Reading the archive: `tokiod.open`, plain h5py and pytokio in turns, on sealed days of 17,280 x 248 and the live file of such a day.

All return the same values: NaN where a cell is missing. The days of the year are one file under many names, with its times moved to each
day.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import h5py
import numpy as np

import tokiod
from tests.bench import pytokio_process
from tests.bench.measure import Row, paired, skipped, timed
from tokiod.analysis.job import OPERATIONS, summarize_job
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.seal import seal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tokiod.reader.archive import Archive

READ, WRITE, LOAD = "datatargets/readbytes", "datatargets/writebytes", "dataservers/cpuload"
METADATA = tuple(f"mdtargets/{name}s" for name in OPERATIONS)
GROUPS = ("datatargets", "dataservers", "mdservers", "mdtargets")
OSTS = tuple(f"snx11168-OST{i:04x}" for i in range(248))
ROWS, STEP, DAY, HOUR = 17_280, 5, 86400, 3600
START = 1_514_764_800
"""2018-01-01T00:00Z."""


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    place = directory / "reading"
    place.mkdir()
    days, month, times = (40 if quick else 365), (5 if quick else 30), (3 if quick else 7)
    archive(place, days)
    template = f"{place}/%Y-%m-%d.hdf5"

    def opened(start: int, end: int) -> Archive:
        return tokiod.open("fs", start, end, path=template)

    def h5py_span(first_day: int, count: int, rows: slice, columns: slice | int) -> np.ndarray:
        found = []
        for day in range(first_day, first_day + count):
            with h5py.File(_path(place, day), "r") as file:
                values = file[READ][rows, columns]
                values[(values == 0) & np.signbit(values)] = np.nan
                found.append(values)
        return np.concatenate(found)

    day = paired(lambda: h5py_span(3, 1, slice(None), slice(None)), lambda: opened(_at(3), _at(4)).frame(READ), times)
    yield timed("a sealed day of 17,280 x 248 to a DataFrame", "ms", 1000, day, "below 200 ms", "floor: h5py to an array with NaN")
    one = paired(lambda: h5py_span(0, month, slice(None), 17), lambda: opened(_at(0), _at(month)).array(READ)[:, OSTS[17]], times)
    yield timed(f"one OST, {month} days", "ms", 1000, one, "below 350 ms" if not quick else "")
    whole = opened(_at(0), _at(days))
    whole.array(READ)
    hour = slice(10 * 720, 11 * 720)
    at = (days // 2) * ROWS
    inside = paired(lambda: h5py_span(days // 2, 1, hour, slice(None)), lambda: whole.array(READ)[at + hour.start : at + hour.stop], times)
    yield timed(f"an hour of {days} days that are open, all OSTs", "ms", 1000, inside, "below 10 ms")
    opening = paired(lambda: _opened_by_h5py(place, days), lambda: opened(_at(0), _at(days)).array(READ).shape, times)
    yield timed(f"open {days} days: columns and times of each", "ms", 1000, opening, "below 500 ms a year")
    sums = paired(
        lambda: [np.nansum(h5py_span(i, 1, slice(None), slice(None)).reshape(24, 720, -1), axis=1) for i in range(month)],
        lambda: opened(_at(0), _at(month)).reduce(READ, "1h", "sum"),
        max(2, times // 3),
    )
    yield timed(f"{month} days to hourly sums by OST", "ms", 1000, sums, "below 2.5 s a month")
    yield _memory(place, month)
    live = slice(ROWS - 3 * 720, ROWS)
    today = opened(_at(days), _at(days + 1))
    matrix = today.array(READ)
    last = paired(lambda: h5py_span(days, 1, live, slice(None)), lambda: matrix[live], times)
    yield timed("the last 3 hours of a live file, all OSTs", "ms", 1000, last, "below 5 ms")
    job = paired(lambda: h5py_span(3, 1, hour, slice(None)), lambda: summarize_job(opened(_at(3) + 36000, _at(3) + 39600)), times)
    yield timed("a job of an hour", "ms", 1000, job, "below 50 ms", "floor: h5py reads one of its 16 datasets")
    every = paired(
        lambda: [h5py_span(day, 1, hour, 17) for day in range(month)],
        lambda: [opened(_at(day) + 36000, _at(day) + 39600).array(READ)[:, OSTS[17]] for day in range(month)],
        times,
    )
    yield timed(f"an hour of each of {month} days, one OST", "ms", 1000, every, "")
    yield from _beside_pytokio(place, template, quick=quick)
    yield from _jobs(place, month, lambda: [h5py_span(day, 1, slice(None), slice(None)) for day in range(month)])


def _beside_pytokio(place: Path, template: str, *, quick: bool) -> Iterator[Row]:
    """Questions that pytokio's own programs answer, and `tokioctl` by the same keys; its process has imported everything."""
    if not pytokio_process.PYTHON.exists():
        yield skipped("beside pytokio", "", "make .venv-pytokio installs it")
        return
    note, turns = "floor: pytokio 0.13.0", 1 if quick else 3
    day, hour = pytokio_process.times(_at(3), _at(4)), pytokio_process.times(_at(3) + 36000, _at(3) + 39600, " ")
    job = ("--file-system", "fs", "--start-time", hour[0], "--end-time", hour[1])

    def opened(start: int, end: int) -> Archive:
        return tokiod.open("fs", start, end, path=template)

    with pytokio_process.Pytokio(place) as pytokio:
        found = paired(lambda: pytokio.ask("shape", READ, *day), lambda: opened(_at(3), _at(4)).frame(READ), turns)
        yield timed("a sealed day to a DataFrame, beside pytokio", "ms", 1000, found, "ratio below 0.25", note)
        found = paired(lambda: pytokio.ask("job", *job), lambda: summarize_job(opened(_at(3) + 36000, _at(3) + 39600)), turns)
        yield timed("a job of an hour, beside summarize_job", "ms", 1000, found, "ratio below 0.01", note)
        path = str(_path(place, 3))
        command = (sys.executable, "-P", "-m", "tokiod.cli.tokioctl", "summarize", path, "--json")
        found = paired(lambda: pytokio.ask("tts", path), lambda: _run(*command), turns)
        yield timed("tokioctl summarize a day, beside summarize_tts", "ms", 1000, found, "", f"{note}, without its start; ours with it")


def _jobs(place: Path, month: int, read_month: Callable[[], object]) -> Iterator[Row]:
    command = (sys.executable, "-P", "-m", "tokiod.cli.tokioctl", "job", "--path", f"{place}/%Y-%m-%d.hdf5", "--json")
    times = [f"{datetime.fromtimestamp(_at(3) + 36000 + at, UTC):%Y-%m-%dT%H:%M:%SZ}" for at in (0, HOUR)]
    one = paired(
        lambda: _run(sys.executable, "-c", "import h5py, click"),
        lambda: _run(*command, "--system", "fs", "--start", times[0], "--end", times[1]),
        3,
    )
    yield timed("a job of an hour, as a command", "ms", 1000, one, "below 400 ms", "floor: python imports h5py and click")
    generator, path = np.random.default_rng(2), place / "jobs.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["jobid", "start", "end", "system"])
        for number in range(1000):
            start = _at(0) + int(generator.integers(0, month * DAY - 2 * HOUR))
            rows.writerow([number, start, start + int(generator.integers(60, 2 * HOUR)), "fs"])
    jobs = paired(read_month, lambda: _run(*command, "--csv", str(path)), 1)
    yield timed(
        f"1,000 jobs of {month} days, of up to 2 h", "s", 1, jobs, "below 10 s a month", "floor: h5py reads one of their 16 datasets"
    )


def _run(*command: str) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def archive(place: Path, days: int) -> None:
    generator = np.random.default_rng(1)
    groups = {name: GroupSpec(STEP, "lmt") for name in GROUPS}
    matrices = {
        READ: MatrixSpec(OSTS, counter=False),
        WRITE: MatrixSpec(OSTS, counter=False),
        LOAD: MatrixSpec(tuple(f"nid{i:05d}" for i in range(248)), counter=False),
        "mdservers/cpuload": MatrixSpec(tuple(f"mds{i}" for i in range(5)), counter=False),
        **{name: MatrixSpec(tuple(f"snx11168-MDT{i:04x}" for i in range(5)), counter=False) for name in METADATA},
    }
    live = _path(place, days)
    create(live, FileSpec(_at(days), _at(days + 1), groups, matrices), created=_at(days))
    file = LiveFile.open(live)
    for name, matrix in matrices.items():
        values = generator.gamma(0.3, 1e8, (ROWS, len(matrix.columns))).round()
        values[generator.random(values.shape) < 0.01] = -0.0
        file.cells[name].write_rows(0, values)
    file.commit()
    file.close()
    first = _path(place, 0)
    seal(live, first, updated=_at(days))
    for day in range(1, days):
        shutil.copy(first, _path(place, day))
    for day in range(days):
        _move(_path(place, day), day)


def _move(path: Path, day: int) -> None:
    with h5py.File(path, "r+") as file:
        file.attrs["start"], file.attrs["end"] = np.int64(_at(day)), np.int64(_at(day + 1))
        for group in GROUPS:
            file[f"{group}/timestamps"][...] = np.arange(_at(day), _at(day + 1), STEP)


def _opened_by_h5py(place: Path, days: int) -> None:
    for day in range(days):
        with h5py.File(_path(place, day), "r") as file:
            _ = file[READ].attrs["columns"], file["datatargets/timestamps"][...]


def _memory(place: Path, month: int) -> Row:
    program = (
        "import tokiod\n"
        # Not that of getrusage(), which is at least this process's size when it was forked.
        "def peak(): return next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        f"a = tokiod.open('fs', {_at(0)}, {_at(month)}, path='{place}/%Y-%m-%d.hdf5'); before = peak()\n"
        f"a.reduce('{READ}', '1h', 'sum'); print(before, peak())"
    )
    before, after = map(int, subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split())
    return Row(f"{month} days to hourly sums: memory", "MiB", before / 1024, after / 1024, after / before, "below 150", "floor: imports")


def _at(day: int) -> int:
    return START + day * DAY


def _path(place: Path, day: int) -> Path:
    return place / f"{datetime.fromtimestamp(_at(day), UTC):%Y-%m-%d}.hdf5"
