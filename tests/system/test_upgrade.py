"""The archive, ledger and configuration of tokiod 0.1.0 (tests/data): this version reads them and continues where that one stopped.

The fixture is what `tokiod run` of commit 7988c9c left after two midnights of a simulated site with LMT and collectd: sealed days of LMT,
live days of collectd, and a live file of the current day of both. site.json makes the simulator repeat that site exactly.
"""

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import closing, suppress
from pathlib import Path

import h5py
import numpy as np
import pytest
import unpacked
from waiting import wait_for

from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tests.support.faulty_scene import FaultyScene
from tokiod.archive.layout import daily
from tokiod.clock import SimulatedClock
from tokiod.collector import Site as CollectorSite
from tokiod.collector import collect_window
from tokiod.config import load as configuration
from tokiod.config import plugins
from tokiod.ledger.ledger import Ledger
from tokiod.reports.gaps import gaps
from tokiod.reports.status import read
from tokiod.simulator.lmt.database import Database
from tokiod.simulator.site import STEP, Site
from tokiod.simulator.sources import COLLECTD, LMT
from tokiod.testing.clock import FakeClock
from tokiod.testing.files import FaultyFiles, SimulatedKill
from tokiod.tts.layout import form_of, is_outdated, open_for_reading
from tokiod.tts.live.files import REAL, sweep
from tokiod.tts.schema import ABSENT
from tokiod.window import Calendar, Window, iso

pytestmark = pytest.mark.system

FIXTURE = Path(__file__).parents[1] / "data" / "archive-0.1.0.tar.xz"
WRITTEN_IN = "/var/lib/tokiod"
MEMORY = Path("/dev/shm")
WINDOW = 300


def unpack(directory):
    """Unpack the fixture and have its configuration name this directory; return the epoch second at which its daemon stopped."""
    unpacked.unpack(FIXTURE, Path(directory))
    config = Path(directory) / "tokiod.toml"
    config.write_text(config.read_text().replace(WRITTEN_IN, str(directory)))
    return int((Path(directory) / "stopped").read_text())


@pytest.fixture
def scene():
    with tempfile.TemporaryDirectory(prefix="upgrade-") as directory:
        clock = SimulatedClock(float(unpack(directory)), time.time(), 240)
        made = FaultyScene(
            Path(directory), Site.read(Path(directory) / "site.json"), clock, window=WINDOW, sources=(LMT, COLLECTD), retention=100_000
        )
        try:
            yield made
        finally:
            made.close()


def is_of_0_1_0(path):
    with open_for_reading(path) as file:
        return is_outdated(file)


def run(scene, before, seconds):
    """Let a daemon run until an hour more is stored."""
    end = int(scene.clock.time()) // WINDOW * WINDOW + 3600
    wait_for(lambda: scene.complete_to(before["demo-collectd"][0].start, end), seconds, f"not complete; see {scene.log}")
    assert scene.stop_daemon() == 0


def test_what_an_older_version_stored_is_read(scene):
    config = configuration.load(scene.config_path)
    assert [(source.name, source.kind) for source in config.source] == [("demo-lmt", "lmt"), ("demo-collectd", "collectd_es")]
    status = read(config, scene.clock.time())
    assert {line.name: line.state for line in status.sources} == {"demo-lmt": "stopped", "demo-collectd": "stopped"}
    with Ledger.open_readonly(config.archive.ledger) as ledger:
        assert [gap for gap in gaps(config.source, ledger, config.calendar, scene.clock.time()) if gap.state != "due"] == []
    assert {form_of(file) for path in scene.files() for file in [open_for_reading(path)]} == {"live", "sealed"}
    comparison = scene.compare()
    assert (comparison.differences, comparison.equal, comparison.filled > 190_000) == ([], True, True)


def test_a_daemon_continues_the_archive_of_an_older_version(scene):
    before = {source.name: scene.stored(source) for source in scene.sources}
    *_, today = scene.files(LMT)
    assert is_of_0_1_0(today)
    scene.prepare()
    scene.start_simulator()
    scene.start_daemon()
    run(scene, before, 120)
    comparison = scene.compare()
    assert (comparison.differences, comparison.equal, comparison.filled > 200_000) == ([], True, True)
    assert "aside" not in "".join(str(path) for path in scene.directory.rglob("*"))
    assert not is_of_0_1_0(today)


def test_daemons_that_are_killed_in_their_first_seconds_leave_an_archive_that_the_next_one_continues(scene):
    before = {source.name: scene.stored(source) for source in scene.sources}
    scene.prepare()
    scene.start_simulator()
    chance = random.Random(1)
    for _ in range(8):
        scene.start_daemon()
        time.sleep(chance.uniform(0.3, 3))
        scene.kill_daemon()
        assert {form_of(file) for path in scene.files() for file in [open_for_reading(path)]} == {"live", "sealed"}
    scene.start_daemon()
    run(scene, before, 180)
    comparison = scene.compare()
    assert (comparison.differences, comparison.equal, comparison.filled > 200_000) == ([], True, True)
    assert "aside" not in "".join(str(path) for path in scene.directory.rglob("*"))


def tokioctl(scene, *arguments):
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", *arguments, "--config", str(scene.config_path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def test_verify_names_a_sealed_day_whose_cells_follow_the_older_rule_and_a_forced_backfill_stores_it_by_the_present_one(scene):
    """The cells after zeros, which 0.1.0 left missing or filled with a whole counter."""
    (yesterday,) = (path for path in scene.files(LMT) if path.parent.name == "2018-11-03")
    with h5py.File(yesterday, "r+", locking=False) as file:
        span = Window(int(file.attrs["start"]), int(file.attrs["end"]))
        cells = file["datatargets/readbytes"]
        cells[-300, 0], cells[-200, 1] = -0.0, 3.36e11
    assert is_of_0_1_0(yesterday)
    scene.prepare()
    scene.start_simulator()
    # The damaged cells are in the last hour. A verification from the source's first sample on would look for older ones for a day.
    start, end = iso(span.end - 3600), iso(span.end)
    clock = ("--clock", str(scene.clock))
    done = tokioctl(scene, "verify", "demo-lmt", start, end, *clock)
    assert done.returncode == 1, done.stderr
    assert "tokiod 0.1.0 sealed this day by another rule of differences" in done.stdout
    command = done.stdout.partition("`")[2].partition("`")[0].split()
    assert command[:4] == ["tokioctl", "backfill", "--force", "demo-lmt"]
    told = json.loads(tokioctl(scene, "verify", "demo-lmt", start, end, "--json", *clock).stdout)
    assert sum(sum(counts.values()) for one in told["differing"] for counts in one["datasets"].values()) == 2
    assert len(told["outdated"]) == 1
    scene.start_daemon()
    wait_for(lambda: '"collectors.ready"' in scene.log.read_text(), 60, "the daemon does not start")
    done = tokioctl(scene, *command[1:])
    assert done.returncode == 0, done.stderr + scene.log.read_text()
    assert scene.stop_daemon() == 0
    assert not is_of_0_1_0(yesterday)
    done = tokioctl(scene, "verify", "demo-lmt", start, end, *clock)
    assert (done.returncode, "sealed this day" in done.stdout) == (0, False), done.stdout
    assert scene.compare().differences == []


# ---- the conversion, killed at each of its file operations


@pytest.fixture(scope="module")
def older():
    """An archive of 0.1.0 in memory, and the windows of LMT that follow what it has stored."""
    with tempfile.TemporaryDirectory(prefix="upgrade-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        directory = Path(name)
        unpack(directory)
        for path in (directory / "tts").rglob("bb.hdf5"):
            path.unlink()
        site = Site.read(directory / "site.json")
        config = configuration.load(directory / "tokiod.toml")
        with Ledger.open_readonly(config.archive.ledger) as ledger:
            (*_, (_, end)) = ledger.stored("demo-lmt")
        shutil.rmtree(directory / "tts" / ".tokiod")
        with closing(Database(directory / "lmt.sqlite3", site)) as database:
            database.fill((end + 2 * WINDOW - site.epoch) // STEP + 1)
        windows = [Window(end, end + WINDOW), Window(end + WINDOW, end + 2 * WINDOW)]
        yield directory / "tts", asyncio.run(_collected(config.source[0], windows))


async def _collected(section, windows):
    collector = plugins.load("lmt").live(section, CollectorSite(Calendar("America/Los_Angeles"), FakeClock(windows[-1].end)))
    try:
        return [await collect_window(collector, section, window) for window in windows]
    finally:
        await collector.close()


class Upgraded:
    """A copy of the archive of 0.1.0 that sinks of this version, one after the other, store windows in."""

    def __init__(self, older, directory):
        self.original, self.windows = older
        self.root = directory / "tts"
        shutil.copytree(self.original, self.root)
        self.today = self.root / "2018-11-04" / "demo.hdf5"

    def store(self, files=REAL):
        """Start as the writer does, and store the windows."""
        for path in self.root.iterdir():
            sweep(path)
        layout = daily(Calendar("America/Los_Angeles"), lambda day, system: self.root / f"{day.date}" / f"{system}.hdf5")
        with closing(TtsSink(DayFiles(layout, FakeClock(self.windows[-1].meta.window.end), files))) as sink:
            for window in self.windows:
                sink.apply(window)
                assert sink.commit() == []

    def arrays(self, *, own=True):
        """Return every array of the files; own: those that only tokiod reads, too."""
        return {(path.parent.name, name): array for path in sorted(self.root.rglob("*.hdf5")) for name, array in _arrays(path, own)}


def _arrays(path, own):
    names = []
    with h5py.File(path, "r", locking=False) as file:
        file.visititems(lambda name, node: names.append(name) if isinstance(node, h5py.Dataset) else None)
        return [(name, file[name][...]) for name in names if own or not name.startswith("_")]


def bits(arrays):
    return {name: array.tobytes() for name, array in arrays.items()}


def has_lost(before, after):
    """Return which arrays do not have all cells that they had."""
    return [name for name, array in before.items() if (array != after[name])[array.view(np.int64) != ABSENT].any()]


EVERY = int(os.environ.get("UPGRADE_EVERY", "20"))
"""The process is killed at one in so many operations that change something, and by a power loss at others; UPGRADE_EVERY=1: at all."""
WRITES = 64
"""Of the writes to a file, at which it is killed: what they leave is a temporary file, or a window's cells, which tests/model covers."""


def steps(operations, first=0):
    """Return the operations, counted from 1, that change something or make it durable, of writes only some; first: of each kind."""
    writes = [step for step, name in enumerate(operations, 1) if name == "pwrite"]
    others = defaultdict(list)
    for step, name in enumerate(operations, 1):
        if name not in {"pwrite", "pread_into", "fstat", "stat", "free_space"}:
            others[name].append(step)
    chosen = [step for known in others.values() for step in known[first % min(EVERY, len(known)) :: EVERY]]
    return sorted([*writes[::WRITES], *chosen])


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_an_upgrade_at_noon_that_is_killed_at_any_file_operation_ends_as_one_that_was_not(older, power):
    with tempfile.TemporaryDirectory(prefix="upgrade-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        undisturbed = Upgraded(older, Path(name, "undisturbed"))
        before = undisturbed.arrays(own=False)
        files = FaultyFiles(undisturbed.root)
        undisturbed.store(files)
        right, operations = bits(undisturbed.arrays()), files.operations
        assert not is_of_0_1_0(undisturbed.today)
        assert {"allocate", "rename", "fsync", "fsync_directory", "fdatasync"} <= set(operations)
        for step in steps(operations, first=int(power)):
            upgraded = Upgraded(older, Path(name, f"{step}"))
            files = FaultyFiles(upgraded.root)
            files.kill_at(step)
            with suppress(SimulatedKill):
                upgraded.store(files)
            if power:
                files.power_loss(step)
            assert has_lost(before, upgraded.arrays(own=False)) == [], f"after operation {step}, {operations[step - 1]}"
            upgraded.store()
            assert bits(upgraded.arrays()) == right, f"operation {step}, {operations[step - 1]}"
            shutil.rmtree(Path(name, f"{step}"))
