"""A day of ten million rows of the job table: its hours are merged into one file at the lowest priority, and one job of it is read."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tests.bench.measure import Row, paired, timed
from tokiod.jobs.rows import read, table_files
from tokiod.jobs.table_file import Index, narrow, write
from tokiod.tts.live.files import REAL

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY = 1_723_075_200
ROWS, QUICK_ROWS = 10_000_000, 400_000
JOBS, TARGETS, MINUTES = 2_000, 60, 60
COUNTS = (
    "read_bytes.samples",
    "read_bytes.sum",
    "write_bytes.samples",
    "write_bytes.sum",
    "open.samples",
    "close.samples",
    "getattr.samples",
)
MERGE = """\
import os, resource, sys
from pathlib import Path
from tokiod.jobs.merge import merge
from tokiod.tts.live.files import REAL
os.nice(19)
merge([Path(path) for path in sys.argv[2:]], Path(sys.argv[1]), REAL)
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_maxrss // 1024, used.ru_utime + used.ru_stime)
"""


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    """Yield how long a day takes to be sealed, what it takes on disk, and how long one of its jobs takes to be found."""
    total, place, merged = QUICK_ROWS if quick else ROWS, directory / "hours", directory / "day"
    place.mkdir()
    merged.mkdir()
    hours = [_hour(place, hour, total // 24) for hour in range(24)]
    size = sum(path.stat().st_size for path in hours)
    copied = _seconds(lambda: _copy(hours, directory / "copy"))
    target = merged / f"{DAY}-{DAY + 86400}.jobs"
    begun = time.perf_counter()
    line = [sys.executable, "-c", MERGE, str(target), *map(str, hours)]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    used = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout.split()
    seconds = time.perf_counter() - begun
    sizes = f"{size / total:.1f} B a row in hours, {target.stat().st_size / total:.1f} B sealed"
    note = f"{float(used[1]):.0f} s of a processor; {sizes}; peak memory {used[0]} MB; floor: the files copied, synced"
    yield Row(f"seal a day of {total / 1e6:g} M rows of jobs, nice 19", "s", copied, seconds, seconds / copied, "60 s", note)
    (file,) = table_files(merged)

    def floor() -> None:
        with file.path.open("rb") as opened:
            opened.read(1 << 16)

    def ours() -> None:
        assert len(read([merged], DAY, DAY + 86400, str(JOBS // 2))) > 0

    found = len(read([merged], DAY, DAY + 86400, str(JOBS // 2)))
    yield timed(f"find one job of {JOBS} of that day", "ms", 1e3, paired(floor, ours, 20), "50 ms", f"{found} rows; floor: 64 KiB read")


def _hour(place: Path, hour: int, n: int) -> Path:
    """Write the rows of an hour as sixty merged windows have them: each job on some targets, with counts that grow."""
    chance = np.random.default_rng(hour)
    job, target = np.sort(chance.integers(0, JOBS, n)), chance.integers(0, TARGETS, n)
    time_of = DAY + 3600 * hour + chance.integers(0, 3600, n)
    order = np.lexsort((time_of, target, job))
    job, target, time_of = job[order], target[order], time_of[order]
    keys = np.array(
        [f"{number}\x1f{1000 + number % 300}\x1f\x1fnid{number % 500:05}\x1f{number * 2654435761 % 2**48:012x}" for number in range(JOBS)],
        "S",
    )
    by_key = np.argsort(keys)
    job = np.argsort(by_key)[job]
    order = np.lexsort((time_of, target, job))
    job, target, time_of = job[order], target[order], time_of[order]
    windows = tuple(("jobs", DAY + 3600 * hour + 60 * minute, DAY + 3600 * hour + 60 * minute + 60) for minute in range(MINUTES))
    columns = {
        "window": narrow((time_of - DAY - 3600 * hour) // 60, MINUTES),
        "target": narrow(target, TARGETS),
        "time": time_of,
        "begin": np.full(n, DAY * 10**9),
        "last": time_of * 10**9 + chance.integers(0, 10**9, n),
        "ended": np.zeros(n, np.int64),
    }
    columns |= {name: np.cumsum(chance.integers(0, 1 << (24 if name.endswith("sum") else 6), n)) for name in COUNTS}
    names = np.array([f"fs-OST{number:04x}".encode() for number in range(TARGETS)], "S")
    first = np.searchsorted(job, np.arange(JOBS + 1)).astype(np.int64)
    path = place / f"{windows[0][1]}-{windows[-1][2]}.jobs"
    write(path, REAL, Index("fs", windows, keys[by_key], names, first, tuple(columns)), columns.items())
    return path


def _copy(paths: list[Path], place: Path) -> None:
    with place.open("wb") as copy:
        for path in paths:
            copy.write(path.read_bytes())
        copy.flush()
        os.fsync(copy.fileno())
    place.unlink()


def _seconds(act: object) -> float:
    begun = time.perf_counter()
    act()  # type: ignore[operator]
    return time.perf_counter() - begun
