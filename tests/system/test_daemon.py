"""The whole daemon, as a person runs it: refused, frozen, stopped, on a full disk, with a clock that jumps, under Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace
from waiting import PATIENCE, wait_for

from tests.support.faulty_scene import FaultyScene
from tokiod.clock import SimulatedClock
from tokiod.simulator.site import Site

pytestmark = pytest.mark.system

HISTORY = 600
RATE = 30
STEPS = 300


@pytest.fixture
def scene():
    """A small site with ten minutes of past, whose database is there; the daemon is not."""
    with tempfile.TemporaryDirectory(prefix="tokiod-") as directory:
        now = time.time()
        clock = SimulatedClock(1_517_184_000.0 + 12 * 3600, now, RATE)
        site = Site(epoch=int(clock.epoch) - HISTORY, timezone="UTC", osts=4, osss=2, mdts=1)
        made = FaultyScene(Path(directory), site, clock, retention=4 * 3600)
        made.prepare()
        try:
            made.start_simulator()
            yield made
        finally:
            made.close()


@pytest.fixture
def running(scene):
    scene.start_daemon()
    wait_stored(scene)
    return scene


def wait_stored(scene, seconds=40):
    """Wait until everything up to now is stored."""
    end = int(scene.clock.time()) // scene.window * scene.window
    wait_for(lambda: scene.complete_to(scene.site.epoch, end), seconds, f"not complete up to {end}")


def assert_every_cell_is_right(scene):
    comparison = scene.compare()
    assert (comparison.differences, comparison.equal) == ([], True)
    assert comparison.filled > STEPS


def command(program, *arguments):
    return [sys.executable, "-m", f"tokiod.cli.{program}", *map(str, arguments)]


def run(program, *arguments, timeout=150):
    return subprocess.run(command(program, *arguments), capture_output=True, text=True, check=False, timeout=timeout)


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid):
    """Whether a process has ended (as a zombie it has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@contextmanager
def small_disk(directory, options):
    directory.mkdir(exist_ok=True)
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small disk can't be mounted here: {done.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


# ---- what it refuses


@pytest.mark.parametrize("role", ["run", "writer"])
def test_a_second_daemon_on_the_archive_is_refused_with_a_sentence_and_the_first_goes_on(running, role):
    writer = running.pid("writer")
    second = run("tokiod", role, "--config", running.config_path, "--clock", running.clock)
    assert (second.returncode, second.stdout) == (2, "")
    assert f"process {writer} already writes to " in second.stderr
    assert "Traceback" not in second.stderr
    wait_stored(running)
    assert running.pid("writer") == writer
    assert running.stop_daemon() == 0
    assert_every_cell_is_right(running)


def test_a_directory_that_can_not_be_written_is_a_sentence_and_exit_2(scene):
    with small_disk(scene.directory / "tts", "ro,size=1m"):
        refused = run("tokiod", "run", "--config", scene.config_path, "--clock", scene.clock)
    assert refused.returncode == 2
    assert "can't lock the archive: Read-only file system: " in refused.stderr
    assert "make it writable" in refused.stderr
    assert "Traceback" not in refused.stderr


# ---- stopping and freezing


def test_sigterm_stops_everything_within_seconds_with_exit_0_and_every_acknowledged_cell(running):
    processes = [running.pid("writer"), running.pid("collectors")]
    start = time.monotonic()
    assert running.stop_daemon() == 0
    assert time.monotonic() - start < PATIENCE * 10
    assert [gone(pid) for pid in processes] == [True, True]
    assert_every_cell_is_right(running)


@pytest.mark.parametrize("process", ["writer", "collectors", "feed"])
def test_a_process_that_is_frozen_for_seconds_loses_nothing(running, process):
    pid = running.pid(process)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(3)
    os.kill(pid, signal.SIGCONT)
    wait_stored(running)
    assert running.pid(process) == pid
    assert running.stop_daemon() == 0
    assert_every_cell_is_right(running)


def test_children_of_a_killed_daemon_end_by_themselves_and_the_next_one_goes_on(running):
    processes = [running.pid("writer"), running.pid("collectors"), running.pid("feed")]
    running.kill_daemon()
    running.start_daemon()
    wait_for(lambda: all(map(gone, processes)), 20, "a child outlived its daemon")
    wait_for(lambda: running.pid("collectors") is not None, 20, "the next daemon has no collectors")
    wait_stored(running)
    assert running.stop_daemon() == 0
    assert_every_cell_is_right(running)


# ---- disks and clocks


def fill(path):
    """Take all the space there is."""
    with suppress(OSError), path.open("wb", buffering=0) as junk:
        while True:
            junk.write(bytes(4096))


def test_a_full_disk_is_named_in_log_and_status_and_everything_is_stored_once_there_is_room(scene):
    with small_disk(scene.directory / "tts", "size=3m") as disk:
        scene.start_daemon()
        sentence = "a new file needs 9 MiB, 3 MiB are free"
        wait_for(lambda: sentence in scene.log.read_text(), 30, "no word of it in the log")
        wait_for(lambda: sentence in status(scene)[1]["sources"][0]["last_error"], 20, f"not in the status: {status(scene)}")
        assert (scene.stored(), scene.files()) == ([], [])
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        wait_stored(scene)
        assert scene.stop_daemon() == 0
        assert_every_cell_is_right(scene)
        assert "Traceback" not in scene.log.read_text()


def test_a_disk_that_fills_up_under_the_ledger_acknowledges_nothing_and_everything_is_stored_once_there_is_room(scene):
    with small_disk(scene.directory / "tts", "size=24m") as disk:
        scene.start_daemon()
        wait_stored(scene)
        fill(disk / "junk")
        wait_for(lambda: "database or disk is full" in scene.log.read_text(), 30, "no word of it in the log")
        (disk / "junk").unlink()
        wait_stored(scene)
        assert scene.stop_daemon() == 0
        assert_every_cell_is_right(scene)
        assert "Traceback" not in scene.log.read_text()


@pytest.mark.parametrize("jump", [-7200, -90, 90, 3600])
def test_a_daemon_whose_clock_jumps_and_jumps_back_again_has_every_cell_and_calls_nothing_lost(running, jump):
    true = running.clock
    assert running.stop_daemon() == 0
    running.clock = replace(true, epoch=true.epoch + jump)
    running.start_daemon()
    wait_for(lambda: running.log.read_text().count("collectors.ready") == 2, 30, "the daemon does not start")
    time.sleep(2)
    assert running.stop_daemon() == 0
    running.clock = true
    running.start_daemon()
    wait_stored(running)
    wait_for(lambda: status(running)[0] == 0, 30, f"not fine: {status(running)}")
    assert status(running)[1]["sources"][0]["gaps"]["lost"] == 0
    assert running.stop_daemon() == 0
    assert_every_cell_is_right(running)


# ---- what a person sees


def status(scene):
    done = run("tokioctl", "status", "--json", "--config", scene.config_path, "--clock", scene.clock)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_the_status_tells_fine_degraded_and_down_by_word_and_exit_code(running):
    wait_for(lambda: status(running)[0] == 0, 30, f"not fine: {status(running)}")
    fine = status(running)[1]
    assert (fine["health"], fine["writer"]) == ("fine", running.pid("writer"))
    assert [(one["name"], one["state"]) for one in fine["sources"]] == [("demo-lmt", "running")]
    assert [one["path"] for one in fine["files"]] == list(map(str, running.files()))
    pid = running.pid("collectors")
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(lambda: status(running)[0] == 1, 20, "never degraded")
        assert status(running)[1]["health"] == "degraded"
    finally:
        os.kill(pid, signal.SIGCONT)
    assert running.stop_daemon() == 0
    code, down = status(running)
    assert (code, down["health"], down["writer"]) == (2, "down", None)
    assert down["sources"][0]["cells"] >= fine["sources"][0]["cells"] > 0


class Terminal:
    """A program in a terminal of its own, whose keys a test presses."""

    def __init__(self, *arguments):
        self._master, slave = os.openpty()
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "200", "LINES": "40"}
        line = ["setsid", "--ctty", *arguments]
        self.process = subprocess.Popen(line, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        self.seen = ""

    def read(self):
        try:
            self.seen += os.read(self._master, 65536).decode(errors="replace")
        except OSError:  # what a terminal says when its program has ended
            return False
        return True

    def wait_for(self, text):
        while text not in self.seen:
            assert self.read(), self.seen

    def press(self, keys):
        os.write(self._master, keys)

    def wait(self):
        while self.read():
            pass
        return self.process.wait(100)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminal():
    opened = []

    def start(program, *arguments):
        opened.append(Terminal(*command(program, *arguments)))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


CTRL_C = b"\x03"


def test_ctrl_c_ends_a_watched_status_without_a_word(scene, terminal):
    watching = terminal("tokioctl", "status", "--watch", "--config", scene.config_path, "--clock", scene.clock)
    watching.wait_for("demo-lmt")
    watching.press(CTRL_C)
    assert watching.wait() == 0
    assert "Traceback" not in watching.seen
    assert "Aborted" not in watching.seen


def test_ctrl_c_stops_the_daemon_in_order_with_exit_0(scene, terminal):
    daemon = terminal("tokiod", "run", "--config", scene.config_path, "--clock", scene.clock)
    daemon.wait_for("collectors.ready")
    processes = children(daemon.process.pid)
    assert len(processes) == 3
    wait_stored(scene)
    daemon.press(CTRL_C)
    assert daemon.wait() == 0
    assert daemon.seen.index("collectors.stopped") < daemon.seen.index("writer.stopped") < daemon.seen.index("feed.stopped")
    assert "Traceback" not in daemon.seen
    assert list(map(gone, processes)) == [True, True, True]
    assert_every_cell_is_right(scene)
