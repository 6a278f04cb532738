"""A real daemon over midnights: tomorrow's file is there before it is needed, yesterday's is sealed, and every cell is right."""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
from waiting import wait_for

from tokiod.archive.seal_marker import mark
from tokiod.clock import SimulatedClock
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.simulator.sources import COLLECTD, LMT
from tokiod.tts.layout import form_of, open_for_reading

pytestmark = pytest.mark.system

MIDNIGHT = 1_541_314_800
"""2018-11-04T00:00 in Los Angeles; the day that begins has 25 hours."""
RATE = 150
"""Slow enough that also a busy machine makes the files of the day before midnight, 100 s after the scene's beginning."""


@pytest.fixture
def scene():
    with tempfile.TemporaryDirectory(prefix="midnight-") as directory:
        clock = SimulatedClock(MIDNIGHT - 15_000.0, time.time(), RATE)
        # The site's moment is the collectors' window: at this rate a minute would be a quarter of a second.
        site = Site(
            epoch=MIDNIGHT - 19_000, timezone="America/Los_Angeles", osts=4, osss=2, mdts=1, hosts=3, devices=2, cores=2, moment=300
        )
        made = Scene(Path(directory), site, clock, window=300, retention=19_000, sources=(LMT, COLLECTD), log_level="debug")
        made.prepare()
        try:
            made.start_simulator()
            yield made
        finally:
            made.close()


def told(scene):
    return [json.loads(line)["event"] for line in scene.log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]


def forms(scene, day):
    found = {}
    for path in scene.files():
        if path.parent.name == day:
            with open_for_reading(path) as file:
                found[path.name] = form_of(file)
    return found


def test_files_are_made_before_midnight_and_sealed_after_it_also_when_the_writer_is_killed_then(scene):
    scene.start_daemon()
    # A writer that is killed between doing and saying says nothing.
    wait_for(lambda: told(scene).count("file.made") == 4, 60, f"today's and tomorrow's files are not made; see {scene.log}")
    assert len(forms(scene, "2018-11-04")) == 2
    assert scene.clock.time() < MIDNIGHT
    scene.kill("writer")
    wait_for(lambda: scene.clock.time() > MIDNIGHT + 300, 60, "the night doesn't fall")
    wait_for(lambda: "file.sealed" in told(scene), 144, f"nothing is sealed; see {scene.log}")
    scene.kill("writer")
    wait_for(lambda: list(forms(scene, "2018-11-03").values()) == ["sealed"] * 2, 144, f"not all is sealed; see {scene.log}")
    first = next(path for path in scene.files() if path.parent.name == "2018-11-03")
    mark(first)  # an order to seal what is sealed is no order
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", "seal", "2018-11-03", "--config", scene.config_path, "--clock", scene.clock]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout.count("already sealed")) == (0, 2), done.stderr
    end = int(scene.clock.time()) // 300 * 300
    wait_for(lambda: scene.complete_to(scene.site.epoch // 300 * 300, end), 60, f"not complete; see {scene.log}")
    assert scene.stop_daemon() == 0
    comparison = scene.compare()
    assert (comparison.differences, comparison.equal, comparison.filled > 10_000) == ([], True, True)
    said = Counter(told(scene))
    assert (said["file.made"], said["file.sealed"] >= 1, said["maintenance.failed"], said["window.failed"]) == (4, True, 0, 0)
