"""LMT's saved copy to a sealed file, against just fetching the same rows; a small one by the program, against the start of HDF5."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

from collectors import lmt
from tests.bench import lmt_copy
from tests.bench.measure import Row, paired, timed
from tokiod.clock import SystemClock
from tokiod.collector import Site
from tokiod.reports.archive_inputs import ImportJob, archive
from tokiod.window import Calendar, Window

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START = 1_517_126_400
CALENDAR = Calendar("America/Los_Angeles")
FETCHES = (
    "SELECT TS_ID, OST_ID, READ_BYTES, WRITE_BYTES, KBYTES_FREE, KBYTES_USED, INODES_FREE, INODES_USED FROM OST_DATA",
    "SELECT TS_ID, OSS_ID, PCT_CPU, PCT_MEMORY FROM OSS_DATA",
    "SELECT TS_ID, MDS_ID, PCT_CPU FROM MDS_DATA",
    "SELECT TS_ID, MDS_ID, OPERATION_ID, SAMPLES FROM MDS_OPS_DATA",
)


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    copy = directory / "lmt.sqlite3"
    lmt_copy.write(copy)
    count = fetch(copy)
    pair = paired(lambda: fetch(copy), lambda: archived(copy, directory / "day.hdf5"), 3 if quick else 7)
    yield timed(f"LMT SQLite to a sealed TTS file, {count:,} rows", "ms", 1e3, pair, "at most 1.5")
    yield small(directory, 5 if quick else 15)


def small(directory: Path, times: int) -> Row:
    """`tokioctl archive` of 5 minutes, as a person or a loop over files runs it: most of that is the start of the program."""
    copy, output = directory / "small.sqlite3", directory / "small.hdf5"
    lmt_copy.write(copy, steps=61)
    floor = [sys.executable, "-c", "import h5py"]
    ours = [sys.executable, "-P", "-m", "tokiod.cli.tokioctl", "archive", "lmt", str(copy), "--output", str(output)]
    ours += ["--timezone", CALENDAR.timezone, "--start", "2018-01-28T00:00:00", "--end", "2018-01-28T00:05:00"]

    def run() -> None:
        output.unlink(missing_ok=True)
        subprocess.run(ours, stdout=subprocess.DEVNULL, check=True)

    pair = paired(lambda: subprocess.run(floor, check=True), run, times)
    return timed(f"tokioctl archive of 5 min of LMT, {fetch(copy):,} rows (floor: import h5py)", "ms", 1e3, pair, "at most 1.5")


def fetch(copy: Path) -> int:
    with closing(sqlite3.connect(f"file:{copy}?mode=ro&immutable=1", uri=True)) as db:
        return sum(len(db.execute(statement).fetchall()) for statement in FETCHES)


def archived(copy: Path, output: Path, hours: int = 1) -> None:
    output.unlink(missing_ok=True)
    collector = lmt.saved([copy], lmt.Saved(), Site(CALENDAR, SystemClock()))

    async def run() -> None:
        await archive(ImportJob("lmt", collector, Window(START, START + 3600 * hours), None, output), SystemClock())
        await collector.close()

    asyncio.run(run())
