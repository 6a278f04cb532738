"""Another process follows the change log, while daemon and ledger are killed and lost: it ends with every cell of the files."""

import random
import sqlite3
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import h5py
import pytest
from followed_archive import FollowedArchive
from waiting import wait_for

from tests.support.faulty_scene import FaultyScene
from tokiod.clock import SimulatedClock
from tokiod.errors import TokiodError
from tokiod.ledger.ledger import Ledger
from tokiod.simulator.site import Site
from tokiod.simulator.sources import LMT
from tokiod.tts.schema import missing
from tokiod.window import Window

pytestmark = pytest.mark.system

HISTORY = 600
RATE = 30
KILLS = 6


@pytest.fixture
def scene():
    with tempfile.TemporaryDirectory(prefix="changes-") as directory:
        clock = SimulatedClock(1_517_184_000.0 + 23.8 * 3600, time.time(), RATE)  # midnight comes after 24 s
        site = Site(epoch=int(clock.epoch) - HISTORY, timezone="UTC", osts=4, osss=2, mdts=1, moment=60)
        made = FaultyScene(Path(directory), site, clock, retention=4 * 3600, sources=(LMT,))
        made.prepare()
        try:
            made.start_simulator()
            made.start_daemon()
            yield made
        finally:
            made.close()


class Files:
    """Reads the cells of a scene's files."""

    def __init__(self, scene):
        self.scene = scene

    def cells(self, _system, window):
        found = {}
        for path in self.scene.files(LMT):
            with suppress(FileNotFoundError), h5py.File(path, "r", locking=False) as file:
                for group in (group for name, group in file.items() if not name.startswith("_")):
                    times = group["timestamps"][...]
                    rows = ((times >= window.start) & (times < window.end)).nonzero()[0]
                    if len(rows):
                        found |= _cells(group, rows[0], rows[-1] + 1, times)
        return found


def _cells(group, first, last, times):
    found = {}
    for dataset in (one for one in group.values() if "columns" in one.attrs):
        values, names = dataset[first:last], [name.decode() for name in dataset.attrs["columns"]]
        for row, column in zip(*(~missing(values)).nonzero(), strict=True):
            found[dataset.name, names[column], int(times[first + row])] = float(values[row, column])
    return found


@pytest.mark.parametrize("seed", [25])
def test_who_follows_the_change_log_through_kills_and_a_lost_ledger_has_every_cell_of_the_files(scene, seed):
    chance = random.Random(seed)
    files, start = Files(scene), scene.site.epoch
    followed = FollowedArchive(files.cells, [LMT.system], Window(start - 86400, start + 86400 * 3))
    copy = scene.config.archive.ledger_copy

    def follow():
        with suppress(TokiodError, sqlite3.Error), Ledger.open_readonly(copy, checked=False) as ledger:
            followed.follow(ledger, chance.randrange(1, 50))
            return followed.is_current(ledger)
        return False

    def is_stored():
        follow()
        return scene.complete_to(start, int(scene.clock.time()) // scene.window * scene.window)

    wait_for(is_stored, 120, f"not complete; see {scene.log}")
    for number in range(KILLS):
        time.sleep(chance.uniform(0.5, 3))
        scene.kill_daemon()
        if number == KILLS // 2:
            for path in scene.config.archive.ledger.parent.glob("ledger.sqlite3*"):
                path.unlink()
        follow()
        scene.start_daemon()
        follow()
    end = int(scene.clock.time()) // scene.window * scene.window + 300
    wait_for(lambda: follow() is not None and scene.complete_to(start, end), 240, f"not complete again; see {scene.log}")
    assert scene.stop_daemon() == 0
    wait_for(follow, 60, f"the copy is not read to its end: seed {seed}")
    assert followed.from_files == 2, "once at first, and once after the ledger was lost"
    held = files.cells(LMT.system, followed.everything)
    assert len(held) > 1000
    assert followed.cells[LMT.system] == held, f"seed {seed}"
