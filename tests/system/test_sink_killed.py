"""The process `tokiod sink` is killed at random instants while windows are stored, lost and sealed: its receiver has every cell."""

import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from sunk import install_json_lines, received
from waiting import wait_for
from written_archive import MIDNIGHT, STEP, WrittenArchive

from tokiod.clock import SimulatedClock

pytestmark = pytest.mark.system

SECTION = """
[[sink]]
name = "lines"
kind = "json_lines"
path = "{}/rows.jsonl"
"""
KILLS = 8
"""While it works; others come while it starts."""


@pytest.fixture
def site(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="sink-") as name:
        directory = Path(name)
        install_json_lines(monkeypatch, directory)
        archive = WrittenArchive(directory, SimulatedClock(MIDNIGHT + 3 * 86400, time.time(), 1.0))
        archive.configure(SECTION.format(directory))
        yield archive
        archive.close()


class Sink:
    """The process, and its log."""

    def __init__(self, archive):
        self.archive, self.process = archive, None
        self.log = archive.directory / "log"

    def start(self):
        command = [sys.executable, "-m", "tokiod.cli.tokiod", "sink", "lines", "--config", str(self.archive.directory / "tokiod.toml")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*command, "--clock", str(self.archive.clock)], stdout=log, stderr=log)

    def starts(self):
        return self.log.read_text().count("sink.ready") if self.log.exists() else 0

    def await_moment(self, chance):
        """Wait for a random time, or until just after the sink wrote its cursor or its receiver a line."""
        watched = self.archive.directory / chance.choice(["nothing", "sinks/lines/cursor.json", "rows.jsonl"])
        before, end = changed(watched), time.monotonic() + chance.expovariate(1 if watched.exists() else 2)
        while time.monotonic() < end and changed(watched) == before:
            time.sleep(0.0005)
        time.sleep(chance.choice([0, 0, 0.001, 0.003]))

    def kill(self):
        self.process.kill()
        self.process.wait()


def changed(path):
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_ino, status.st_size


def write(archive, chance, has_ended):
    """Store windows of three days, in any order, and lose, seal and restart now and then, until it has ended."""
    lost = False
    numbers = np.random.default_rng(chance.randrange(2**32))
    while not has_ended():
        time_of = MIDNIGHT + STEP * chance.randrange(3 * 1440 - 30)
        turn = chance.random()
        if turn < 0.015:
            archive.set_aside(time_of)
        elif turn < 0.06:
            archive.seal(time_of)
        elif turn < 0.08:
            archive.restart()
        elif turn < 0.09 and not lost:
            lost = True
            archive.lose_ledger()
        else:
            length = min(chance.randrange(1, 30), 1440 - (time_of - MIDNIGHT) // STEP % 1440)
            archive.store(time_of, length, chance.choice([3, 3, 5]), numbers)
        if chance.random() < 0.3:
            archive.publish()
        time.sleep(chance.uniform(0, 0.05))
    archive.publish()


@pytest.mark.parametrize("seed", [1, 2])
def test_through_kills_the_receiver_ends_with_every_cell_of_the_files(site, seed):
    sink, kills = Sink(site), 0

    def kill_again_and_again():
        nonlocal kills
        chance = random.Random(seed)
        while sink.starts() < KILLS:
            before, early = sink.starts(), chance.random() < 0.25
            sink.start()
            while sink.starts() == before and not early:
                assert sink.process.poll() is None, sink.log.read_text()
                time.sleep(0.02)
            sink.await_moment(chance)
            sink.kill()
            kills += 1

    with ThreadPoolExecutor(1) as thread:
        killer = thread.submit(kill_again_and_again)
        write(site, random.Random(seed + 100), killer.done)
    killer.result()
    starts = sink.starts()
    sink.start()
    try:
        wait_for(lambda: sink.starts() > starts, 30, "the sink does not start")
        path = site.directory / "rows.jsonl"
        held = site.held()
        assert sum(map(len, held.values())) > 1000
        wait_for(lambda: received(path) == held, 20, f"the receiver does not hold what the files do: seed {seed}, {sink.log.read_text()}")
    finally:
        sink.process.terminate()
        assert sink.process.wait(60) == 0
    print(f"seed {seed}: {kills} kills, {sum(map(len, held.values()))} cells, {path.stat().st_size >> 20} MiB sent")
