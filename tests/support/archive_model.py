"""The right answer, slowly: what an archive of a few short days holds once a set of windows is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h5py
import numpy as np
from hypothesis import strategies as st

from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.batch import Batch
from tokiod.simulator import oracle
from tokiod.testing.clock import FakeClock
from tokiod.tts.live.files import REAL
from tokiod.tts.schema import missing
from tokiod.window import Calendar, Window
from tokiod.window_data import Collected, WindowMeta

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STEP = 3600
ROWS = 24
DAY = ROWS * STEP
EPOCH = 1_517_184_000
"""2018-01-29T00:00:00Z, a midnight."""

CALENDAR = Calendar("UTC")
COUNTER, GAUGE = "datatargets/readbytes", "dataservers/cpuload"

Samples = dict[str, dict[int, int]]
"""Per column: row counted from EPOCH over all days -> absolute counter (which also serves as the gauge's value)."""


def window(samples: Samples, first: int, last: int, names: tuple[str, ...] | None = None) -> Collected:
    """Return what a collector would yield for rows [first, last)."""
    names = names or tuple(sorted(samples))
    found = sorted((row, i, samples[n][row]) for i, n in enumerate(names) for row in samples[n] if first <= row < last)
    time = np.array([EPOCH + row * STEP for row, _, _ in found], np.int64)
    column = np.array([i for _, i, _ in found], np.uint32)
    counts = np.array([v for _, _, v in found], np.int64)
    batches = [
        Batch(COUNTER, "counter", STEP, names, time, column, counts),
        Batch(GAUGE, "gauge", STEP, names, time, column, counts.astype(np.float64)),
    ]
    return Collected(WindowMeta("fs-lmt", "lmt", "fs", Window(EPOCH + first * STEP, EPOCH + last * STEP)), batches)


def expected(samples: Samples, days: int) -> dict[tuple[int, str, str], dict[int, float]]:
    """Return {(day, dataset, column): {row: value}} of every cell that isn't missing."""
    cells: dict[tuple[int, str, str], dict[int, float]] = {}
    for name, column in samples.items():
        differences = oracle.cells(column, reach=oracle.REACH_SECONDS // STEP)
        for day in range(days):
            start, end = day * ROWS, (day + 1) * ROWS
            cells[day, COUNTER, name] = {row - start: cell for row, cell in differences.items() if start <= row < end}
            cells[day, GAUGE, name] = {row - start: float(v) for row, v in column.items() if start <= row < end}
    return cells


DAYS = 3
NAMES = ("OST0000", "OST0001", "OST0002")


def sink_in(directory: Path, files=REAL, **options) -> TtsSink:
    layout = daily(CALENDAR, lambda day, system: directory / f"{day.date}" / f"{system}.hdf5")
    return TtsSink(DayFiles(layout, FakeClock(EPOCH), files, **options))


def held(directory: Path, datasets: Sequence[str] = (COUNTER, GAUGE)) -> dict[tuple[int, str, str], dict[int, float]]:
    """Return every cell of the archive that isn't missing, in the model's form."""
    cells = {}
    for path in sorted(directory.rglob("*.hdf5")):
        with h5py.File(path, "r") as file:
            day = (int(file.attrs["start"]) - EPOCH) // DAY
            for dataset in (name for name in datasets if name in file):
                values = file[dataset][...]
                for i, name in enumerate(file[dataset].attrs["columns"]):
                    rows = np.flatnonzero(~missing(values[:, i]))
                    cells[day, dataset, name.decode()] = {int(r): float(values[r, i]) for r in rows}
    return cells


def filled(cells: dict) -> dict:
    return {key: rows for key, rows in cells.items() if rows}


counters = st.dictionaries(
    st.integers(0, DAYS * ROWS - 1), st.one_of(st.just(0), st.integers(1, 50), st.integers(2**53, 2**53 + 50)), max_size=60
)
archives = st.fixed_dictionaries(dict.fromkeys(NAMES, counters))
