"""An archive to look at: two systems whose day is half over, with what a site's day has, and a year of days before it.

usual     48 OSTs with jobs that come and go; an idle hour; a lost hour; two windows that failed; one OST that fell silent
outlier   the same, with one cell a thousand times as large
half      the same, with every second row of an hour, half of the targets and half of the windows missing
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from job_days import JobDays, polled
from recorded_stages import save, work

from tests.support.web_site import WebProcess
from tokiod.archive.lock import ProcessLock
from tokiod.batch import Batch
from tokiod.bus.feed import Feed
from tokiod.config import load as configuration
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.simulator.sources import free_port
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec
from tokiod.window import Window
from tokiod.window_data import WindowMeta, job_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

DAY, STEP = 86400, 5
MIDNIGHT = 1_517_184_000
NOW = MIDNIGHT + DAY // 2 + 30
ROWS = (NOW - MIDNIGHT) // STEP
HOUR = 3600 // STEP
LOST, FAILED = (9 * HOUR + 360, 10 * HOUR + 360), (11 * HOUR, 11 * HOUR + 24)
KINDS = ("usual", "outlier", "half")
CONFIG = """\
timezone = "UTC"
[archive]
path = "{0}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{0}/private/bus"
[feed]
endpoint = "ipc://{0}/feed"
[web]
address = "127.0.0.1:{1}"
[jobs]
users_in = ["page"]
[[source]]
name = "cscratch-lmt"
kind = "lmt"
system = "cscratch"
url = "sqlite:///none"
window = "60s"
settle = "15s"
[[source]]
name = "community-lmt"
kind = "lmt"
system = "community"
url = "sqlite:///none"
window = "60s"
settle = "15s"
"""
MATRICES = {
    "datatargets/readbytes": ([f"OST{number:04x}" for number in range(48)], True, 2.0**29),
    "datatargets/writebytes": ([f"OST{number:04x}" for number in range(48)], True, 2.0**27),
    "dataservers/cpuload": ([f"oss{number:02}" for number in range(12)], False, 60.0),
    "mdtargets/opens": ([f"MDT{number:04x}" for number in range(4)], True, 900.0),
    "mdtargets/closes": ([f"MDT{number:04x}" for number in range(4)], True, 800.0),
    "mdservers/cpuload": (["mds01", "mds02"], False, 30.0),
}


class Scene(WebProcess):
    """The archive of a kind in a directory."""

    def __init__(self, directory: Path, kind: str) -> None:
        directory.mkdir()
        super().__init__(directory / "tokiod.toml", free_port(), directory / "log")
        self.path.write_text(CONFIG.format(directory, self.socket))
        self.config = configuration.load(self.path)
        self.kind = kind
        self.config.archive.private.mkdir(parents=True)
        for number, source in enumerate(self.config.source):
            self._file(source.system, np.random.default_rng(number))
        self._ledger()
        self._stages()
        self._jobs(np.random.default_rng(7))

    @contextmanager
    def daemon(self) -> Iterator[None]:
        """Hold the archive's lock and publish something every second, as a daemon does."""
        stopping = threading.Event()

        def publish() -> None:
            batch = Batch("mdtargets/opens", "counter", STEP, ("MDT0000",), np.array([MIDNIGHT]), np.zeros(1, np.uint32), np.ones(1))
            with Feed(self.config.feed.endpoint, "one") as feed:
                while not stopping.wait(1):
                    feed.poll()
                    feed.publish("cscratch", batch, MIDNIGHT)

        thread = threading.Thread(target=publish)
        with ProcessLock(self.config.archive.lock, owner=self.config.archive.owner):
            thread.start()
            try:
                yield
            finally:
                stopping.set()
                thread.join()

    @property
    def address(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.socket}"

    def _file(self, system: str, random: np.random.Generator) -> None:
        path = self.config.archive.root / "2018-01-29" / f"{system}.hdf5"
        path.parent.mkdir(exist_ok=True)
        groups = {name.partition("/")[0]: GroupSpec(STEP, "lmt") for name in MATRICES}
        matrices = {name: MatrixSpec(tuple(columns), counter=counter) for name, (columns, counter, _) in MATRICES.items()}
        create(path, FileSpec(MIDNIGHT, MIDNIGHT + DAY, groups, matrices), created=MIDNIGHT)
        file = LiveFile.open(path)
        for name, (columns, _, most) in MATRICES.items():
            cells = values(random, len(columns), most, self.kind)
            file.cells[name].write_rows(0, np.where(np.isnan(cells), -0.0, cells))
        file.commit()
        file.close()

    def _ledger(self) -> None:
        with Ledger.open(self.config.archive.ledger) as ledger:
            for source in self.config.source:
                ledger.register(source, MIDNIGHT - 200 * DAY)
                for day in range(1, 201):
                    end = MIDNIGHT - (day - 1) * DAY - (7200 if day % 17 == 5 else DAY // 2 if self.kind == "half" and day % 2 else 0)
                    self._store(ledger, source.name, MIDNIGHT - day * DAY, end)
                for hour in range(9):
                    self._store(
                        ledger, source.name, MIDNIGHT + hour * 3600, MIDNIGHT + hour * 3600 + (1800 if self.kind == "half" else 3600)
                    )
                for first, last in ((9 * HOUR, LOST[0]), (LOST[1], FAILED[0]), (FAILED[1], ROWS)):
                    self._store(ledger, source.name, MIDNIGHT + first * STEP, MIDNIGHT + last * STEP // 60 * 60)
                for day in (9, 40):
                    lost = Window(MIDNIGHT - day * DAY, MIDNIGHT - day * DAY + 5400)
                    ledger.forget(source.system, lost, NOW, source=source.name)
                    ledger.lost(source.name, lost, "NoData", "the source deleted it", NOW)
            lost, failed = (Window(MIDNIGHT + first * STEP, MIDNIGHT + last * STEP) for first, last in (LOST, FAILED))
            ledger.lost("cscratch-lmt", lost, "NoData", "the source deleted it: retention of TIMESTAMP_INFO", NOW)
            ledger.failed("cscratch-lmt", failed, "Transient", "can't connect to MySQL server on 'lmt01' (timed out)", 3, NOW + 60, NOW)

    def _store(self, ledger: Ledger, source: str, start: int, end: int) -> None:
        system = source.partition("-")[0]
        ledger.store([StoredEntry(WindowMeta(source, "lmt", system, Window(start, end)), 1000)], min(end + 20, NOW))

    def _jobs(self, random: np.random.Generator) -> None:
        """Store an hour of 60 jobs, of which some write most, and one that opens most files; and processes without a job."""
        jobs, start = JobDays(self.config.archive.jobs, "cscratch", window=600), NOW - 3630
        rows = []
        for number in range(60):
            key = job_key(str(4_478_500 + number), str(21_000 + number % 17), None, f"nid{number:05}", f"{number:012x}")
            key = key if number % 9 else job_key("", str(21_000 + number), "python3.11", None, f"{number:012x}")
            most = 2.0 ** random.integers(28, 41)
            begin = int(start + random.integers(-3000, 1800))
            for target in random.choice(48, 1 + int(random.integers(0, 20)), replace=False):
                sums = {"write_bytes.sum": int(most), "read_bytes.sum": int(most * random.random() / 3)}
                rows.append(polled(NOW - 630, f"cscratch-OST{target:04x}".encode(), key, begin, sums))
            opens = int(random.integers(10, 90_000)) * (60 if number == 23 else 1)
            counts = {"open.samples": opens, "close.samples": opens - 3, "unlink.samples": 7}
            rows.append(polled(NOW - 630, b"cscratch-MDT0002", key, begin, counts))
        jobs.store(*rows)

    def _stages(self) -> None:
        wall, random = round((time.time() - 700) * 1e9), np.random.default_rng(5)
        collectors, writer = [], []
        for number in range(40):
            begun, slow = 15.0 * number, {13: "fetch", 21: "sync", 29: "bus"}.get(number)
            waits = {"fetch": 0.4, "bus": 0.01, "sync": 0.05} | ({slow: 6.0} if slow else {})
            ask = begun + 0.1 * random.random()
            fetched = ask + waits["fetch"] * (1 + random.random())
            sent = fetched + 0.08
            applied = sent + waits["bus"] + 0.005
            synced = applied + 0.01
            stored = synced + waits["sync"]
            about = {"name": "cscratch-lmt", "window": 1000 + number}
            collectors += [
                work(2 * number + 1, "collection", begun, ask, ask + 0.002, fetched, sent, **about),
                work(2 * number + 2, "submission", sent, sent + 0.001, stored + 0.04, **about),
            ]
            writer.append(work(number + 1, "commit", applied, synced, stored, stored + 0.02, stored + 0.03, **about))
        collectors.append(work(99, "collection", 620, 620.1, 620.2, None, None, name="community-lmt", window=1040, outcome="open"))
        collectors.append(work(100, "collection", 500, 500.1, 500.2, 503, 503.1, name="community-lmt", window=1030, outcome="failed"))
        writer.append(work(99, "seal", 300, 304.5, name="cscratch"))
        self.config.stages.mkdir()
        for role, works in zip(("collectors", "writer"), (collectors, writer), strict=True):
            save(
                self.config.stages,
                role,
                [one.__class__(**{name: getattr(one, name) for name in one.__struct_fields__} | {"wall": wall}) for one in works],
            )


def values(random: np.random.Generator, columns: int, most: float, kind: str) -> NDArray[np.float64]:
    """Return the cells f8[rows, columns] of the day up to now, NaN where missing."""
    cells = most / 300 * random.gamma(2.0, 1.0, (ROWS, columns))
    for _ in range(14):
        first, length = random.integers(0, ROWS - 200), random.integers(120, 2000)
        which = random.random(columns) < random.choice([0.2, 0.6, 1.0])
        cells[first : first + length, which] += (
            most * random.random() * (0.6 + 0.4 * random.random((len(cells[first : first + length]), which.sum())))
        )
    cells[4 * HOUR : 5 * HOUR] = 0.0
    cells[slice(*LOST)] = np.nan
    cells[slice(*FAILED)] = np.nan
    cells[10 * HOUR + 480 :, columns // 3] = np.nan
    if kind == "outlier":
        cells[10 * HOUR, 0] = 1000 * most
    if kind == "half":
        cells[10 * HOUR + 360 : 11 * HOUR + 360 : 2] = np.nan
        cells[:, ::2] = np.nan
        for hour in range(9):
            cells[hour * HOUR + HOUR // 2 : (hour + 1) * HOUR] = np.nan
    return cells
