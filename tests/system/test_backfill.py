"""`tokioctl backfill` of a past day, killed again and again: resumed, complete, and what was acknowledged is not asked for over and over.

BACKFILL_KILLS=30 makes the long form of what CI does in short.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest
from waiting import wait_for

from tests.support.faulty_scene import FaultyScene
from tokiod.archive.lock import lock_owner
from tokiod.clock import SimulatedClock
from tokiod.ledger.ledger import Ledger, LedgerNotReady
from tokiod.simulator.lmt.database import Database
from tokiod.simulator.site import STEP, Site
from tokiod.simulator.sources import COLLECTD, LMT
from tokiod.window import Window, iso

pytestmark = pytest.mark.system

KILLS = int(os.environ.get("BACKFILL_KILLS", "2"))
EPOCH = 1_795_132_800 + 16 * 3600
"""2026-11-20T16:00:00Z."""
PAST = Window(EPOCH, EPOCH + 8 * 3600)
RETENTION = 1200
BEGIN = PAST.end + 7200


SITE = Site(EPOCH, osts=3, osss=2, mdts=1, hosts=3, devices=2, cores=2, timezone="UTC")


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """The LMT database of the site until BEGIN, filled once for all tests."""
    path = tmp_path_factory.mktemp("history") / "lmt.sqlite3"
    with closing(Database(path, SITE)) as database:
        database.fill((BEGIN - EPOCH) // STEP + 1)
    return path


@pytest.fixture
def scene(history):
    with tempfile.TemporaryDirectory(prefix="backfill-") as directory:
        shutil.copy(history, directory)
        clock = SimulatedClock(float(BEGIN), time.time(), 4)
        scene = FaultyScene(Path(directory), SITE, clock, retention=RETENTION, sources=(LMT, COLLECTD), log_level="debug")
        scene.prepare()
        try:
            scene.start_simulator()
            yield scene
        finally:
            scene.close()


def command(scene, source, *options, span=PAST):
    base = [sys.executable, "-m", "tokiod.cli.tokioctl", "backfill", source.name, iso(span.start), iso(span.end)]
    return [*base, "--config", str(scene.config_path), "--clock", str(scene.clock), *options]


def told(scene, source, *options, span=PAST, seconds=600):
    return subprocess.run(command(scene, source, *options, span=span), capture_output=True, text=True, check=False, timeout=seconds)


def jobs(scene):
    try:
        with Ledger.open_readonly(scene.config.archive.ledger) as ledger:
            return ledger.jobs.all()
    except LedgerNotReady:
        return []


def asked_after_stored(log):
    """How often each window of a source was collected after it was said to be stored, from the daemon's log."""
    stored, again = set(), {}
    for line in log.read_text().splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        key = event.get("source"), event.get("window")
        if event.get("event") == "window.stored":
            stored.add(key)
        elif event.get("event") == "window.collected" and "job" in event and key in stored:
            again[key] = again.get(key, 0) + 1
    return again


def assert_complete(scene):
    """The day is stored of every source, and every cell is what the site knows."""
    for source in scene.sources:
        assert any(window.start <= PAST.start and window.end >= PAST.end for window in scene.stored(source)), source.name
    found = scene.compare()
    assert (found.differences, found.filled > 30_000) == ([], True)


def test_a_daemon_that_is_killed_again_and_again_fills_the_day(scene):
    chance = random.Random(7)
    scene.start_daemon()
    wait_for(lambda: scene.complete_to(BEGIN - 600, BEGIN - 60), 60, f"nothing is stored; see {scene.log}")
    for source in scene.sources:
        done = told(scene, source, "--detach", "--parallel", "2", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["state"] in {"queued", "running"}
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.3, 1.2))
        victim = chance.choice(["writer", "collectors", "daemon"])
        if victim == "daemon":
            scene.kill_daemon()
            scene.start_daemon()
        else:
            scene.kill(victim)
    wait_for(lambda: all(job.finished for job in jobs(scene)), 200, f"not done: {jobs(scene)}; see {scene.log}")
    assert scene.stop_daemon() == 0
    assert [(job.state, job.error) for job in jobs(scene)] == [("done", "")] * 2
    assert max(asked_after_stored(scene.log).values(), default=0) <= 1
    assert_complete(scene)


def test_without_a_daemon_the_same_command_goes_on_where_it_was_killed(scene):
    chance = random.Random(8)
    for _ in range(KILLS):
        killed = subprocess.Popen(command(scene, LMT), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert b"no daemon runs" in killed.stderr.readline()
        # As long in all, however often: the day must not be done before the last one.
        time.sleep(chance.uniform(0.3, 1.0) * 3 / KILLS)
        killed.kill()
        killed.communicate()
        wait_for(lambda: lock_owner(scene.config.archive.lock) is None, 20, "its writer does not end")
    for source in scene.sources:
        done = told(scene, source)
        assert (done.returncode, "done" in done.stdout) == (0, True), done.stderr
    assert [job.source for job in jobs(scene)] == [LMT.name, COLLECTD.name]
    assert_complete(scene)
    again = told(scene, LMT)
    assert re.search(r"done, 0 windows: all of it was stored already, --force queries it again", again.stdout)


def test_ctrl_c_ends_it_in_order_and_says_that_the_job_is_kept(scene):
    running = subprocess.Popen(command(scene, LMT), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "no daemon runs" in running.stderr.readline()
    wait_for(lambda: scene.config.archive.ledger.exists() and any(job.windows for job in jobs(scene)), 30, "the job does not begin")
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=150)
    assert (running.returncode, out) == (130, "")
    assert err.endswith("\nstopped; the job is kept: start the daemon or repeat the command to resume it\n")
    assert [job.finished for job in jobs(scene)] == [False]
    ask = [sys.executable, "-m", "tokiod.cli.tokioctl", "backfill", "--config", str(scene.config_path), "--list"]
    listed = subprocess.run(ask, capture_output=True, text=True, check=True, timeout=150)
    assert "not running: start the daemon" in listed.stdout


def test_with_force_the_same_command_resumes_and_says_what_it_does_not_collect_again(scene):
    running = subprocess.Popen(command(scene, LMT, "--force"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: scene.config.archive.ledger.exists() and any(job.windows for job in jobs(scene)), 30, "the job does not begin")
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=150)
    ((number, windows),) = [(job.id, job.windows) for job in jobs(scene)]
    done = told(scene, LMT, "--force")
    assert (done.returncode, "done" in done.stdout) == (0, True), done.stderr
    assert f"job {number} goes on; it has collected {windows} windows: `tokioctl backfill --cancel {number}` before this" in done.stderr
    assert [job.state for job in jobs(scene)] == ["done"]


# A command that looks for a daemon just before one takes the lock.
LOOKED_TOO_EARLY = """
from tokiod.cli import tokioctl
from tokiod.cli.commands import backfill
backfill.is_down = lambda config: True
tokioctl.run()
"""


def test_a_command_whose_writer_finds_a_daemon_that_has_just_started_leaves_the_job_to_it(scene):
    scene.start_daemon()
    wait_for(lambda: scene.complete_to(BEGIN - 600, BEGIN - 60), 60, f"nothing is stored; see {scene.log}")
    span = Window(BEGIN - 7200, BEGIN - 3600)
    python, _, _, *arguments = command(scene, LMT, span=span)
    done = subprocess.run([python, "-c", LOOKED_TOO_EARLY, *arguments], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "a daemon has started at the same time" in done.stderr
    assert any(window.start <= span.start and window.end >= span.end for window in scene.stored(LMT))


def test_a_command_whose_writer_is_killed_and_succeeded_by_a_daemons_leaves_the_job_to_the_daemon(scene):
    running = subprocess.Popen(
        command(scene, LMT, span=Window(EPOCH, EPOCH + 6 * 3600)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: scene.config.archive.ledger.exists() and any(job.windows for job in jobs(scene)), 30, "the job does not begin")
    running.send_signal(signal.SIGSTOP)  # it would start its writer again before the daemon starts one
    os.kill(killed := lock_owner(scene.config.archive.lock), signal.SIGKILL)
    scene.start_daemon()
    wait_for(lambda: lock_owner(scene.config.archive.lock) not in {None, 0, killed}, 30, "the daemon has no writer")  # 0: not recorded yet
    os.kill(successor := lock_owner(scene.config.archive.lock), signal.SIGSTOP)  # on a fast machine it would store all before that
    running.send_signal(signal.SIGCONT)
    notice = next((line for line in running.stderr if "a daemon has started at the same time" in line), None)
    os.kill(successor, signal.SIGCONT)
    out, err = running.communicate(timeout=600)
    assert (running.returncode, "done" in out) == (0, True), err
    assert notice is not None
    assert [(job.source, job.state) for job in jobs(scene)] == [(LMT.name, "done")]


def test_a_job_can_be_followed_listed_and_cancelled_while_live_polling_goes_on(scene):
    scene.start_daemon()
    wait_for(lambda: scene.complete_to(BEGIN - 600, BEGIN - 60), 60, f"nothing is stored; see {scene.log}")
    following = subprocess.Popen(command(scene, LMT), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: any(job.windows > 3 for job in jobs(scene)), 30, "the job does not begin")
    ask = [sys.executable, "-m", "tokiod.cli.tokioctl", "backfill", "--config", str(scene.config_path)]
    listed = subprocess.run([*ask, "--list", "--json"], capture_output=True, text=True, check=True, timeout=150)
    (job,) = json.loads(listed.stdout)
    assert "not running" not in subprocess.run([*ask, "--list"], capture_output=True, text=True, check=True, timeout=150).stdout
    assert (job["source"], job["state"], 0 < job["seconds_left"] < 86400) == (LMT.name, "running", True)
    cancelled = subprocess.run([*ask, "--cancel", "1"], capture_output=True, text=True, check=True, timeout=150)
    assert "cancelled" in cancelled.stdout
    out, _ = following.communicate(timeout=150)
    assert (following.returncode, "job 1: cancelled" in out) == (1, True)
    newest = max(window.end for window in scene.stored(LMT))
    wait_for(lambda: max(window.end for window in scene.stored(LMT)) > newest, 60, "live polling stands still")
