"""One job of a sealed day of ten million rows, and the list of jobs that `tokioctl top` makes of a day that runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import h5py
import numpy as np

import tokiod
from tests.bench.measure import Row, paired, timed
from tokiod.analysis.top import top
from tokiod.jobs.span import Days
from tokiod.jobs.table_file import Index, narrow, write
from tokiod.reader.span import Span
from tokiod.tts.live.files import REAL
from tokiod.window_data import job_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY, SECOND, TARGETS = 1_723_075_200, 10**9, 60
OPERATIONS = ("open", "close", "getattr", "setattr", "punch", "sync", "statfs", "mknod", "unlink", "rename")
COUNTS = ("read_bytes.samples", "read_bytes.sum", "write_bytes.samples", "write_bytes.sum", *(f"{name}.samples" for name in OPERATIONS))


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    count, jobs = (200_000, 500) if quick else (10_000_000, 5000)
    path = directory / "jobs" / "fs" / "2024-08-08" / f"{DAY}-{DAY + 86400}.jobs"
    path.parent.mkdir(parents=True)
    seconds = _save(path, np.arange(1440), count, jobs)
    archive = tokiod.open("fs", DAY, DAY + 86400, path=f"{directory}/%Y-%m-%d/{{system}}.hdf5")
    number = [jobs // 2]

    def floor() -> None:
        with h5py.File(path, "r", locking=False) as file:
            first, last = file["first"][number[0]], file["first"][number[0] + 1]
            for name in file["rows"]:
                file[f"rows/{name}"][first:last]

    def ours() -> None:
        number[0] = (number[0] + 7) % jobs
        assert len(archive.job_figures(str(1_000_000 + number[0]))) > count // jobs // 2

    note = f"written in {seconds:.0f} s, {path.stat().st_size / count:.0f} B per row; floor: its rows by h5py"
    yield timed(f"one job of {count:,} rows", "ms", 1e3, paired(floor, ours, 15), "50 ms", note)
    yield _live(directory, quick=quick)


def _live(directory: Path, *, quick: bool) -> Row:
    changed, place = (600 if quick else 5600), directory / "live" / "fs" / "2024-08-08"
    place.mkdir(parents=True)
    for window in range(62):
        start = DAY + 60 * window
        _save(place / f"{start}-{start + 60}@jobs.jobs", np.array([window]), changed, 2000)
    days, span = Days((directory / "live",), "fs"), Span(DAY + 60 * 60, DAY + 60 * 62)

    def floor() -> None:
        for path in place.iterdir():
            with h5py.File(path, "r", locking=False) as file:
                file["rows/time"][...]

    pair = paired(floor, lambda: top(days, span, "bytes", "names"), 5)
    note = f"{changed} rows in a minute, an hour of windows; floor: their times by h5py"
    return timed("top of two windows", "ms", 1e3, pair, "one second", note)


def _save(path: Path, windows: np.ndarray, count: int, jobs: int) -> float:
    """Write a file of random rows of some windows of a minute; return the seconds that it took."""
    random = np.random.default_rng(len(windows))
    pair = np.sort(random.integers(0, jobs * TARGETS, count))
    time_of = DAY + random.choice(windows, count) * 60 + 5
    order = np.lexsort((time_of, pair))
    job, target, time_of = pair // TARGETS, pair % TARGETS, time_of[order]
    keys = [job_key(str(1_000_000 + number), str(1000 + number % 300), None, None, f"{number:012x}") for number in range(jobs)]
    growing = random.integers(0, 1000, count).cumsum()
    columns = {
        "window": narrow(np.searchsorted(windows, (time_of - DAY) // 60), len(windows)),
        "target": narrow(target, TARGETS),
        "time": time_of,
        "begin": np.full(count, (DAY - 600) * SECOND),
        "last": time_of * SECOND,
        "ended": np.zeros(count, np.int64),
    } | {name: growing * (1 if name.endswith("samples") else 1_000_003) for name in COUNTS}
    names = np.array([b"fs-OST%04x" % number for number in range(TARGETS)])
    spans = tuple(("jobs", DAY + 60 * window, DAY + 60 * window + 60) for window in windows.tolist())
    index = Index("fs", spans, np.array(keys, "S"), names, np.searchsorted(job, np.arange(jobs + 1)).astype(np.int64), tuple(columns))
    begun = time.perf_counter()
    write(path, REAL, index, columns.items())
    return time.perf_counter() - begun
