"""Others take the ledger away, put an older one in its place or fill it with garbage while the daemon runs: it mends that by itself."""

import json
import os
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest
from waiting import wait_for

from tokiod.clock import SimulatedClock
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.simulator.sources import LMT, LUSTRE

pytestmark = pytest.mark.system

HISTORY = 600
RATE = 30


@pytest.fixture(scope="module")
def scene():
    with tempfile.TemporaryDirectory(prefix="tokiod-") as directory:
        clock = SimulatedClock(1_517_184_000.0 + 12 * 3600, time.time(), RATE)
        site = Site(epoch=int(clock.epoch) - HISTORY, timezone="UTC", osts=4, osss=2, mdts=1, moment=60)
        made = Scene(Path(directory), site, clock, retention=4 * 3600, sources=(LMT, LUSTRE))
        made.prepare()
        try:
            made.start_simulator()
            made.start_daemon()
            yield made
        finally:
            made.close()


def is_complete(scene):
    return scene.complete_to(scene.site.epoch, int(scene.clock.time()) // scene.window * scene.window)


def deleted(ledger):
    for part in ("", "-wal", "-shm"):
        Path(f"{ledger}{part}").unlink()


def deleted_with_its_directory(ledger):
    shutil.rmtree(ledger.parent)


def put_back(ledger):
    deleted(ledger)
    shutil.move(ledger.with_name("copy"), ledger)


def of_garbage(ledger):
    """Also its log: as long as what is in there is not in the database, garbage in that is never read."""
    for path in filter(Path.exists, (ledger, Path(f"{ledger}-wal"))):
        with path.open("r+b") as file:
            file.write(os.urandom(path.stat().st_size))


@pytest.mark.parametrize("harm", [deleted, deleted_with_its_directory, put_back, of_garbage])
def test_a_ledger_that_others_harm_is_named_and_told_again_by_files_and_sources(scene, harm):
    wait_for(lambda: is_complete(scene), 60, f"not complete; see {tail(scene)}")
    ledger, before = scene.config.archive.ledger, len(events(scene, "ledger.lost"))
    kept = list(scene.stored(LUSTRE))
    with closing(sqlite3.connect(ledger)) as sql, closing(sqlite3.connect(ledger.with_name("copy"))) as copy:
        sql.backup(copy)
    harm(ledger)
    wait_for(lambda: len(events(scene, "ledger.lost")) > before, 120, f"it goes unnoticed: {tail(scene)}")
    assert events(scene, "ledger.lost")[-1]["path"] == str(ledger)
    # The next harm is for a writer that runs: the ledger that one finds at its start is "ledger.rebuilt" and no more.
    wait_for(lambda: is_heard_after(scene, "writer.ready", "ledger.lost"), 120, f"no writer again: {scene.log}")
    wait_for(lambda: is_sound(scene) and is_complete(scene), 120, f"not complete again: {tail(scene)}")
    comparison = scene.compare(determined=True, stored=lambda source: kept if source is LUSTRE else scene.stored(source))
    assert (comparison.differences, comparison.equal) == ([], True)


def is_heard_after(scene, name, other):
    return events(scene, name)[-1]["timestamp"] > events(scene, other)[-1]["timestamp"]


def is_sound(scene):
    with closing(sqlite3.connect(scene.config.archive.ledger)) as ledger:
        try:
            return ledger.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
        except sqlite3.Error:
            return False


def events(scene, name):
    lines = (json.loads(line) for line in scene.log.read_text().splitlines() if line.startswith("{") and name in line)
    return [line for line in lines if line["event"] == name]


def tail(scene):
    return "\n".join(scene.log.read_text().splitlines()[-15:])
