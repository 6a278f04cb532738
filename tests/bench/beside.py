"""What windows feel of long work on their files: a growth, the making of tomorrow's file, sealing; and how soon a writer is ready again."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tests.bench.measure import Row
from tokiod.archive.layout import daily
from tokiod.batch import Batch
from tokiod.clock import SystemClock
from tokiod.errors import Refusal
from tokiod.tts.schema import DATASETS
from tokiod.window import Calendar, Window
from tokiod.window_data import Collected, WindowMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tokiod.sink import FileChange

START = 1_517_184_000
DAY = 86400
RATES = ("datatargets/readrates", "datatargets/writerates", "datatargets/readoprates", "datatargets/writeoprates")
LMT = tuple(d for d in DATASETS if d.startswith(("dataservers/", "fullness/", "failover/", "datatargets/")))[:26]
EVERY = 0.25
"""Seconds between two windows of the other source: its pace, so that the machine is not just busy with them."""
GROWN, SEALED = "target: 50 ms", "target: 20 ms added"


class Site:
    """A file of so many columns, step and datasets, and the windows of one minute that go into it."""

    def __init__(self, directory: Path, datasets: tuple[str, ...], step: int, columns: int) -> None:
        layout = daily(Calendar("UTC"), lambda day, system: directory / f"{day.date}" / f"{system}.hdf5")
        self.sink = TtsSink(DayFiles(layout, SystemClock(), executor="threads"))
        self.path = layout("fs", START).path
        self._datasets, self._step = datasets, step
        self.names = tuple(f"fs-OST{i:04x}" for i in range(columns))
        self.changes: list[FileChange] = []

    def maintain(self) -> None:
        """Do as the writer's loop does in every turn; raise what kept a file from its change."""
        done = self.sink.run_maintenance()
        if failed := [one.error for one in done if one.error is not None]:
            raise failed[0]
        self.changes += done

    def store(self, first: int, height: int, names: tuple[str, ...] | None = None) -> float:
        """Store rows, however often that must be tried; returns the seconds that the last attempt and its sync took."""
        window = self.window(first, height, names or self.names)
        while True:
            start = time.perf_counter()
            try:
                self.sink.apply(window)
            except Refusal:
                time.sleep(0.05)
                self.maintain()
                continue
            assert self.sink.commit() == []
            return time.perf_counter() - start

    def window(self, first: int, height: int, names: tuple[str, ...]) -> Collected:
        width, step = len(names), self._step
        row = np.repeat(np.arange(first, first + height), width)
        column = np.tile(np.arange(width, dtype=np.uint32), height)
        # Loads that wander, half of them idle: what sealing compresses is neither noise nor nothing.
        value = np.where(column % 2, 4096.0 * ((row * 7919 + column * 104729) % 5000), 0.0)
        batches = [Batch(dataset, "gauge", step, names, START + row * step, column, value) for dataset in self._datasets]
        end = START + (first + height) * step
        return Collected(WindowMeta("fs-x", "x", "fs", Window(START + first * step, end)), batches)

    def beside(self, is_over: Callable[[], bool], first: int = 0) -> tuple[float, list[float]]:
        """Store windows at their pace until something is over, from row `first` on; returns how long that took, and each commit."""
        began, taken, row = time.perf_counter(), [], 0
        while not is_over():
            taken.append(self.store(first + row, 60 // self._step))
            row = (row + 60 // self._step) % (DAY // self._step // 2)
            turned = time.perf_counter()
            self.maintain()
            taken[-1] += time.perf_counter() - turned
            time.sleep(EVERY)
        return time.perf_counter() - began, taken


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    yield from growing(directory / "growth", 1200 if quick else 12_000)
    yield from sealing(directory / "sealing", LMT[:4] if quick else LMT)


def growing(directory: Path, columns: int) -> Iterator[Row]:
    """A new column in a file of four datasets at 10 s: 3.3 GB where there are 3,000 hosts of 4 devices."""
    site = Site(directory, RATES, 10, columns)
    site.store(0, 6)
    size = f"{site.path.stat().st_size / 1e9:.1f} GB"
    calm = [site.store(6 * n, 6) for n in range(20)]
    wider = site.window(0, 6, (*site.names, "new"))
    finished: list[float] = []

    def is_over() -> bool:
        began = time.perf_counter()
        try:
            site.sink.apply(wider)
        except Refusal:
            return False
        assert site.sink.commit() == []
        finished.append(time.perf_counter() - began)
        return True

    seconds, taken = site.beside(is_over)
    note = f"{size} in {seconds:.1f} s; half of {len(taken)} commits under {statistics.median(taken) * 1e3:.1f} ms"
    yield Row(f"longest commit beside a growth, {columns} columns", "ms", max(calm) * 1e3, max(taken) * 1e3, None, GROWN, note)
    yield Row("the window that waited for it, once it is over", "ms", max(calm) * 1e3, finished[0] * 1e3, None, GROWN, size)
    site.sink.close()
    yield Row("a killed writer is ready again, that file open", "s", None, _restarted(directory), None, "target: 0.5 s", size)
    site.path.unlink()


CONFIG = """\
timezone = "UTC"
archive.path = "{directory}/%Y-%m-%d/{{system}}.hdf5"
bus.endpoint = "ipc://{directory}/bus"
feed.endpoint = "ipc://{directory}/feed"
[[source]]
name = "x"
kind = "lmt"
system = "fs"
url = "sqlite:///none"
"""


def _restarted(directory: Path) -> float:
    """Start and kill a real writer twice; return the seconds from the second start to its being ready."""
    config = directory / "tokiod.toml"
    config.write_text(CONFIG.format(directory=directory))
    command = [sys.executable, "-m", "tokiod.cli.tokiod", "writer", "--config", str(config), "--clock", f"{START + 3600}@{time.time()}x1"]
    seconds = 0.0
    for _ in range(2):
        began = time.perf_counter()
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as writer:
            assert writer.stderr is not None
            if not any("writer.ready" in line for line in writer.stderr):
                raise RuntimeError("the writer does not start")
            seconds = time.perf_counter() - began
            writer.kill()
    return seconds


def sealing(directory: Path, datasets: tuple[str, ...]) -> Iterator[Row]:
    """A full day of 17,280 rows x 248 columns is sealed while the next day's windows are stored."""
    site = Site(directory, datasets, 5, 248)
    for first in range(0, DAY // 5, 720):
        site.store(first, 720)
    size = site.path.stat().st_size
    calm = [site.store(DAY // 5 + 12 * n, 12) for n in range(40)]
    assert site.sink.seal("fs", START)
    seconds, taken = site.beside(lambda: any(one.change == "sealed" for one in site.changes), DAY // 5)
    ratio = size / site.path.stat().st_size
    note = f"{size / 1e9:.1f} GB in {seconds:.1f} s, to 1/{ratio:.1f}; "
    note += f"half of {len(taken)} commits under {statistics.median(taken) * 1e3:.1f} ms"
    yield Row(f"longest commit beside sealing, 17,280 x 248 x {len(datasets)}", "ms", max(calm) * 1e3, max(taken) * 1e3, None, SEALED, note)
    site.sink.close()
