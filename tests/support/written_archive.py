"""An archive that a test writes as the writer does: files first, then the ledger with its change log, then the copy for readers."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import h5py
import numpy as np

from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.batch import Batch
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.tts.schema import missing
from tokiod.tts.sealed.seal import seal, sealed_spec
from tokiod.window import Calendar, Window
from tokiod.window_data import Collected, WindowMeta

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.clock import Clock

MIDNIGHT = 1_517_184_000
"""2018-01-29T00:00:00Z."""
STEP = 60
SYSTEM = "cscratch"
GAUGE, COUNTER = "dataservers/cpuload", "datatargets/readbytes"
CONFIG = """\
timezone = "{zone}"
archive.path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"
bus.endpoint = "ipc://{directory}/run/bus"
feed.endpoint = "ipc://{directory}/feed"
site.names = {{ cscratch = "Cori scratch" }}
sink_state = "{directory}/sinks"
"""

Cells = dict[tuple[str, int], dict[str, float]]
"""The cells of each row that are not missing, by dataset and epoch second, without rows that have none: as a receiver holds them."""


class WrittenArchive:
    """One writer's archive of one system. clock: of the records in the log."""

    def __init__(self, directory: Path, clock: Clock, zone: str = "UTC") -> None:
        self.directory, self.clock, self.zone = directory, clock, Calendar(zone)
        self.tts = directory / "tts"
        (self.tts / ".tokiod-readers").mkdir(parents=True)
        (directory / "tokiod.toml").write_text(CONFIG.format(directory=directory, zone=zone))
        self._open()
        self.ledger.changes.begin_epoch(clock.time())

    def configure(self, section: str) -> Path:
        """Add a section to the configuration; return its path."""
        path = self.directory / "tokiod.toml"
        path.write_text(path.read_text() + section)
        return path

    def path(self, time: int) -> Path:
        return self.tts / str(self.zone.day(time).date) / f"{SYSTEM}.hdf5"

    def store(self, start: int, rows: int, columns: int, chance: np.random.Generator) -> None:
        """Store a window of random samples, as of two kinds of datasets; some are missing."""
        window = Window(start, start + rows * STEP)
        names = tuple(f"OST{i:04x}" for i in range(columns))
        times = np.repeat(start + STEP * np.arange(rows, dtype=np.int64), columns)
        column = np.tile(np.arange(columns, dtype=np.uint32), rows)
        keep = chance.random(len(times)) < 0.9
        times, column = times[keep], column[keep]
        loads = np.floor(chance.random(len(times)) * 1e6) / 8
        counts = (times - MIDNIGHT + 10 * 86400) * (1000 + column) + chance.integers(0, 50, len(times))
        batches = [
            Batch(GAUGE, "gauge", STEP, names, times, column, loads),
            Batch(COUNTER, "counter", STEP, names, times, column, counts),
        ]
        self.apply(window, batches)

    def apply(self, window: Window, batches: list[Batch]) -> None:
        """Store the batches of a window."""
        meta = WindowMeta("one", "lmt", SYSTEM, window)
        done = self._sink.apply(Collected(meta, batches))
        assert self._sink.commit() == []
        self.ledger.store([StoredEntry(meta, done.cells, computed=tuple(done.computed))], self.clock.time())

    def set_aside(self, time: int) -> None:
        """Lose the file of a day."""
        if self.path(time).exists():
            self._reopened(lambda: self.path(time).rename(self.path(time).with_name(f"{SYSTEM}.hdf5.aside")))
        day = self.zone.day(time)
        self.ledger.forget(SYSTEM, Window(day.start, day.end), self.clock.time())

    def seal(self, time: int) -> None:
        """Seal the file of a day, if it is live."""
        path, day = self.path(time), self.zone.day(time)
        if path.exists() and sealed_spec(path) is None:
            self._reopened(lambda: seal(path, path, int(self.clock.time())))
            self.ledger.changes.note(SYSTEM, [(day.start, day.end)], "sealed", self.clock.time())

    def restart(self) -> None:
        """Close the writer and begin a run of another one."""
        self.close()
        self._open()
        self.ledger.changes.begin_run()

    def lose_ledger(self) -> None:
        """Lose the ledger: its changes are of another epoch."""
        self.close()
        shutil.rmtree(self.tts / ".tokiod")
        self._open()
        self.ledger.changes.begin_epoch(self.clock.time())

    def publish(self) -> None:
        """Replace the copy of the ledger for readers."""
        self._copy.refresh()

    def close(self) -> None:
        self._sink.close()
        self.ledger.close()

    def held(self) -> Cells:
        """Return all cells of the files, read without the code under test."""
        found: Cells = {}
        for path in sorted(self.tts.glob(f"*/{SYSTEM}.hdf5")):
            with h5py.File(path, "r", locking=False) as file:
                for name in (GAUGE, COUNTER):
                    with suppress(KeyError):
                        found |= _rows(file, name)
        return found

    def _open(self) -> None:
        layout = daily(self.zone, lambda day, system: self.tts / str(day.date) / f"{system}.hdf5")
        self._sink = TtsSink(DayFiles(layout, self.clock))
        self.ledger = Ledger.open(self.tts / ".tokiod" / "ledger.sqlite3")
        self._copy = self.ledger.published_copy(self.tts / ".tokiod-readers" / "ledger.sqlite3", self.clock.monotonic)

    def _reopened(self, change) -> None:
        """Change a file while no other has it open."""
        self._sink.close()
        change()
        layout = daily(self.zone, lambda day, system: self.tts / str(day.date) / f"{system}.hdf5")
        self._sink = TtsSink(DayFiles(layout, self.clock))


def _rows(file: h5py.File, name: str) -> Cells:
    values, times = file[name][...], file[name.partition("/")[0]]["timestamps"][...].tolist()
    names = [one.decode() for one in file[name].attrs["columns"]]
    present = ~missing(values)
    return {
        (name, times[row]): {names[i]: float(values[row, i]) for i in np.flatnonzero(present[row])}
        for row in np.flatnonzero(present.any(axis=1))
    }
