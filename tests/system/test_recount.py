"""Documents that become visible long after their window was stored: the recount finds them, and the archive is whole without a hand."""

import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import wait_for

from tokiod.clock import SimulatedClock
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.simulator.sources import COLLECTD

pytestmark = pytest.mark.system

EPOCH = 1_795_132_800
BEGIN = EPOCH + 7200
LATE, RATE = 240, 30
AGAIN = replace(COLLECTD, config=COLLECTD.config + 'recount = ["4m", "8m"]\n')


@pytest.fixture
def scene():
    site = Site(EPOCH, hosts=4, devices=2, cores=2, late=LATE, timezone="UTC")
    with tempfile.TemporaryDirectory(prefix="recount-") as directory:
        scene = Scene(Path(directory), site, SimulatedClock(float(BEGIN), time.time(), RATE), retention=600, sources=(AGAIN,))
        scene.prepare()
        try:
            scene.start_simulator()
            yield scene
        finally:
            scene.close()


def events(scene, name):
    return [e for e in map(json.loads, (line for line in scene.log.read_text().splitlines() if line[:1] == "{")) if e["event"] == name]


def wrong(scene):
    """The cells of the first five minutes that are not right."""
    return [one for one in scene.compare(determined=True).differences if BEGIN <= one.time < BEGIN + 300]


def test_what_came_late_is_found_and_every_cell_is_right(scene):
    scene.start_daemon()
    wait_for(lambda: scene.complete_to(BEGIN, BEGIN + 300), 60, f"nothing is stored; see {scene.log}")
    # A daemon that is late itself has the first windows whole. It catches up, and collects windows before all of them has come.
    wait_for(lambda: events(scene, "window.grown"), 90, "nothing was late: this test shows nothing")
    wait_for(lambda: not wrong(scene), 90, "what came late was not found")
    assert scene.stop_daemon() == 0
