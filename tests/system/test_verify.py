"""`tokioctl verify` as a person runs it, on the archive of a daemon over two sources, while it runs and when it is down."""

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import faulty
import pytest
from waiting import wait_for

from tokiod.clock import SimulatedClock
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.simulator.sources import COLLECTD, LMT
from tokiod.window import Calendar, Window, iso

pytestmark = pytest.mark.system

HISTORY = 1200
RATE = 20


@pytest.fixture(scope="module")
def scene():
    with tempfile.TemporaryDirectory(prefix="tokiod-") as directory:
        clock = SimulatedClock(1_517_184_000.0 + 12 * 3600, time.time(), RATE)
        site = Site(int(clock.epoch) - HISTORY, timezone="UTC", osts=4, osss=2, mdts=1, hosts=3, devices=2, cores=2)
        made = Scene(Path(directory), site, clock, retention=4 * 3600, sources=(LMT, COLLECTD))
        made.prepare()
        try:
            made.start_simulator()
            made.start_daemon()
            end = int(clock.epoch)
            wait_for(lambda: made.complete_to(site.epoch, end), 90, f"not complete; see {made.log}")
            yield made
        finally:
            made.close()


def verify(scene, source):
    """Return the exit code and what was told of the twenty minutes that were past when the daemon began."""
    span = iso(scene.site.epoch), iso(scene.clock.epoch)
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", "verify", source.name, *span, "--json"]
    done = subprocess.run(
        [*command, "--config", scene.config_path, "--clock", str(scene.clock)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("source", [LMT, COLLECTD], ids=["lmt", "collectd"])
def test_beside_a_daemon_nothing_differs_where_nothing_was_planted(scene, source):
    code, told = verify(scene, source)
    assert (code, told["differing"], told["windows"]) == (0, [], HISTORY // 60)
    assert told["cells"] > 5_000


# The last test of the module: it takes the daemon down and spoils the files.
def test_what_was_planted_in_the_files_of_either_source_is_found_there_and_only_there(scene):
    assert scene.stop_daemon() == 0
    chance = random.Random(3)
    for source in scene.sources:
        (path,) = scene.files(source)
        windows = chance.sample(list(Calendar("UTC").split(Window(scene.site.epoch, int(scene.clock.epoch)), 60)), 12)
        planted = faulty.plant(path, windows, chance)
        code, told = verify(scene, source)
        assert (code, [one["start"] for one in told["differing"]]) == (1, sorted(planted))
        for one in told["differing"]:
            assert sum(sum(counts.values()) for counts in one["datasets"].values()) == len(planted[one["start"]])
            assert {(cell["dataset"], cell["column"], cell["time"]) for cell in one["cells"]} <= planted[one["start"]]
