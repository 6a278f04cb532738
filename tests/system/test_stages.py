"""Where the time of a window went, in a real daemon: a slow source, a slow sync and a stopped writer are found in fetch, sync and bus."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from waiting import PATIENCE, wait_for

from tests.support.faulty_scene import FaultyScene
from tokiod.clock import SimulatedClock
from tokiod.reports.stages import read_stages
from tokiod.simulator.site import Site
from tokiod.simulator.sources import COLLECTD

pytestmark = pytest.mark.system

RATE = 10
"""A window comes every six seconds."""
DELAY = 3.0
SLOW_SYNC = f"""\
import os, time
real = os.fdatasync
def fdatasync(fd):
    try:
        os.unlink(os.environ["SLOW_SYNC"])
    except FileNotFoundError:
        pass
    else:
        time.sleep({DELAY})
    real(fd)
os.fdatasync = fdatasync
"""


@pytest.fixture
def scene(monkeypatch):
    """A daemon that has stored all windows up to now. Once there is a file `slow`, the next sync of data takes longer."""
    with tempfile.TemporaryDirectory(prefix="tokiod-") as directory:
        (Path(directory) / "sitecustomize.py").write_text(SLOW_SYNC)
        clock = SimulatedClock(1_517_184_000.0 + 12 * 3600, time.time(), RATE)
        site = Site(epoch=int(clock.epoch) - 300, timezone="UTC", osts=4, osss=2, mdts=1)
        made = FaultyScene(Path(directory), site, clock, retention=600, sources=(COLLECTD,))
        made.prepare()
        try:
            made.start_simulator()
            monkeypatch.setenv("PYTHONPATH", directory)
            monkeypatch.setenv("SLOW_SYNC", str(made.directory / "slow"))
            made.start_daemon()
            settle(made)
            yield made
        finally:
            made.close()


def settle(scene):
    """Wait until another window is stored, and all before it."""
    end = (int(scene.clock.time()) // scene.window + 1) * scene.window
    wait_for(lambda: scene.complete_to(scene.site.epoch, end), 60, f"not complete up to {end}; see {scene.log}")


def windows(scene, since=0.0):
    return [one for one in read_stages(scene.config.stages) if one.kind == "window" and one.stages[-1].start >= since]


def wait_open(scene, stage):
    """Wait until a stage has been open for the time of the delay."""
    wait_for(
        lambda: any(one.stages[-1].open and one.stages[-1].stage == stage and one.stages[-1].seconds >= DELAY for one in windows(scene)),
        30,
        f"no {stage} is open",
    )


def slow_source(scene):
    with scene.stopped(COLLECTD):
        wait_open(scene, "fetch")


def slow_sync(scene):
    flag = scene.directory / "slow"
    flag.touch()
    wait_for(lambda: not flag.exists(), 30, "nothing was synced")


def stopped_writer(scene):
    with scene.frozen("writer"):
        wait_open(scene, "bus")


def slow(found):
    """Return which stages took the time of the delay; due is in simulated seconds, and what waits for a delay is due later."""
    return {span.stage for one in found for span in one.stages if span.seconds >= DELAY and span.stage != "due"}


def test_planted_delays_appear_in_their_stage_and_nowhere_else(scene):
    for plant, stage in ((slow_source, "fetch"), (slow_sync, "sync"), (stopped_writer, "bus")):
        begun = time.time()
        plant(scene)
        settle(scene)
        assert slow(windows(scene, begun)) == {stage}
    assert {one.state for one in windows(scene, begun)} <= {"stored", "open"}


def command(scene, *arguments):
    words = [sys.executable, "-m", "tokiod.cli.tokioctl", "stages", *arguments, "--config", str(scene.config_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60 * PATIENCE, env={**os.environ, "COLUMNS": "60"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_stages_of_stored_windows_and_files_are_shown_also_after_a_kill(scene):
    living = json.loads(command(scene, "--json", "--slowest", "100"))
    stored = [one for one in living["slowest"] if one["state"] == "stored"]
    assert {tuple(span["stage"] for span in one["stages"]) for one in stored} == {
        ("due", "ask", "fetch", "parse", "submit", "bus", "apply", "sync", "ledger", "ack")
    }
    assert "make" in {row["stage"] for row in living["stages"]}
    for one in stored:
        assert sum(span["seconds"] for span in one["stages"]) == pytest.approx(one["seconds"], abs=1e-3)
    for process in ("writer", "collectors"):
        scene.kill(process)
    scene.kill_daemon()
    assert command(scene, COLLECTD.name).count(COLLECTD.name) > 1
    dead = json.loads(command(scene, "--json", "--slowest", "100"))
    kept = {(one["name"], one["start"], one["began"]) for one in dead["slowest"]}
    assert {(one["name"], one["start"], one["began"]) for one in stored} <= kept
