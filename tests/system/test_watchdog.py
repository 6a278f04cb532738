"""Each stage of a real daemon is frozen in turn: it is noticed and restarted within twice the watchdog's time, and nothing is lost."""

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from waiting import wait_for

from tokiod.clock import SimulatedClock
from tokiod.errors import TokiodError
from tokiod.runtime.sd_notify import fields
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.supervisor.control_socket import Ping, ask

pytestmark = pytest.mark.system

NOON = 1_517_184_000 + 12 * 3600
HISTORY = 600
WATCHDOG = 3.0
START = 6.0
"""Seconds that a process may take to start on a loaded machine."""

BLOCKS = """
import asyncio, time
from pathlib import Path
import msgspec
from tokiod.collector import SourceConfig
from tokiod.window_data import WindowData

class Config(SourceConfig, frozen=True):
    how: str
    once: str

    @property
    def step(self):
        return 5

    def datasets(self):
        return frozenset({"datatargets/writebytes"})

class Saved(msgspec.Struct):
    pass

class Blocks:
    step, replayable, needs_sample_at_end = 5, True, False

    def __init__(self, config):
        self.config = config

    async def collect(self, window):
        once = Path(self.config.once)
        if not once.exists():
            once.touch()
            while self.config.how == "loop":
                time.sleep(1)
            while True:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    pass
        return WindowData()

    async def close(self):
        pass

def live(config, site):
    return Blocks(config)

def saved(inputs, options, site):
    raise NotImplementedError
"""


@contextmanager
def small_scene(directory, rate=30):
    clock = SimulatedClock(float(NOON), time.time(), rate)
    made = Scene(Path(directory), Site(epoch=NOON - HISTORY, timezone="UTC", osts=4, osss=2, mdts=1), clock, retention=4 * 3600)
    made.prepare()
    try:
        made.start_simulator()
        yield made
    finally:
        made.close()


@pytest.fixture
def scene(monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", str(int(WATCHDOG * 1e6)))
    with tempfile.TemporaryDirectory(prefix="tokiod-watchdog-") as directory, small_scene(directory) as made:
        yield made


def ping(scene):
    try:
        return ask(scene.directory / "control", Ping(), 2)
    except TokiodError:
        return None


def is_ready(scene):
    pong = ping(scene)
    return pong is not None and pong.ready and pong.alive


def start(scene):
    scene.start_daemon()
    wait_for(lambda: is_ready(scene), 60, f"not ready; see {scene.log}")


def assert_all_is_right(scene):
    end = int(scene.clock.time()) // scene.window * scene.window
    wait_for(lambda: scene.complete_to(scene.site.epoch, end), 60, f"not complete up to {end}; see {scene.log}")
    assert scene.stop_daemon() == 0
    comparison = scene.compare()
    assert (comparison.differences, comparison.equal, comparison.filled > 1000) == ([], True, True)


def hung(scene):
    events = (json.loads(line) for line in scene.log.read_text().splitlines() if line.startswith("{") and line.endswith("}"))
    return [(event["child"], event["silent_for"]) for event in events if event["event"] == "child.hung"]


@pytest.mark.parametrize("process", ["writer", "collectors", "feed"])
def test_a_frozen_process_is_replaced(scene, process):
    start(scene)
    before = scene.pid(process)
    os.kill(before, signal.SIGSTOP)
    wait_for(lambda: scene.pid(process) not in {before, None}, 2 * WATCHDOG + START, f"the {process} is not replaced; see {scene.log}")
    assert [(child, silent < 2 * WATCHDOG) for child, silent in hung(scene)] == [(process, True)]
    wait_for(lambda: is_ready(scene), 60, f"not ready again; see {scene.log}")
    assert_all_is_right(scene)


@pytest.mark.parametrize("how", ["loop", "for ever"])
def test_a_collector_that_blocks_the_loop_or_never_returns_is_replaced_with_its_process(scene, how, tmp_path, monkeypatch):
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "blocks.py").write_text(BLOCKS)
    (tmp_path / "sitecustomize.py").write_text(
        "import collectors\nfrom tokiod.polling import collect_window\n"
        f"collectors.__path__.append({str(tmp_path / 'plugins')!r})\ncollect_window.CANCEL_SECONDS = 0.5\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with scene.config_path.open("a") as file:
        file.write(f'[[source]]\nname = "blocks"\nkind = "blocks"\nsystem = "other"\nhow = "{how}"\nonce = "{tmp_path}/once"\n')
        file.write('timeout = "1s"\n')
    scene.start_daemon()
    wait_for((tmp_path / "once").exists, 60, f"never asked; see {scene.log}")
    before = scene.pid("collectors")
    limit = 2 * WATCHDOG + 1.5 + START
    wait_for(lambda: scene.pid("collectors") not in {before, None}, limit, f"the collectors are not replaced; see {scene.log}")
    wait_for(lambda: is_ready(scene), 60, f"not ready again; see {scene.log}")
    assert [child for child, _ in hung(scene)] == ["collectors"]
    assert scene.stop_daemon() == 0


def test_a_frozen_supervisor_says_nothing_to_systemd_and_a_child_that_hangs_for_good_neither(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="tokiod-watchdog-") as directory, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"{directory}/notify")
        systemd.settimeout(60)
        monkeypatch.setenv("WATCHDOG_USEC", str(int(WATCHDOG * 1e6)))
        monkeypatch.setenv("NOTIFY_SOCKET", f"{directory}/notify")
        with small_scene(directory) as scene:
            scene.start_daemon()
            said = {}
            while "READY" not in said:
                said = fields(systemd.recv(4096))
            assert scene.stored()
            while "windows stored" not in said.get("STATUS", ""):
                said = fields(systemd.recv(4096))
            supervisor = scene.processes()[0]
            os.kill(supervisor, signal.SIGSTOP)
            systemd.settimeout(0.5)
            with suppress(TimeoutError):
                while systemd.recv(4096):
                    pass
            time.sleep(WATCHDOG)
            with pytest.raises(TimeoutError):
                systemd.recv(4096)
            os.kill(supervisor, signal.SIGCONT)
            systemd.settimeout(10)
            assert fields(systemd.recv(4096))["WATCHDOG"] == "1"
            assert hung(scene) == []
            assert scene.stop_daemon() == 0
            systemd.settimeout(1)
            while "STOPPING" not in said:
                said = fields(systemd.recv(4096))


def test_a_disk_that_hangs_is_told_to_systemd_and_all_is_right_when_it_goes_on(scene):
    if os.geteuid() != 0:
        pytest.skip("only root may mount and freeze a disk")
    disk, image = scene.directory / "tts", scene.directory / "image"
    disk.mkdir()
    with image.open("wb") as file:
        os.truncate(file.fileno(), 64 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True, capture_output=True, timeout=150)
    mount = subprocess.run(["mount", "-o", "loop", str(image), str(disk)], check=False, capture_output=True, text=True, timeout=150)
    if mount.returncode:
        pytest.skip(f"a disk can't be mounted here: {mount.stderr.strip()}")
    try:
        start(scene)
        before = scene.pid("writer")
        subprocess.run(["fsfreeze", "--freeze", str(disk)], check=True, timeout=150)
        try:
            wait_for(lambda: hung(scene) != [], 3 * WATCHDOG, f"not noticed; see {scene.log}")
            wait_for(lambda: (pong := ping(scene)) is not None and not pong.alive, 3 * WATCHDOG, f"it is said to be alive; see {scene.log}")
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", str(disk)], check=True, timeout=150)
        wait_for(lambda: scene.pid("writer") not in {before, None}, START, f"the writer is not replaced; see {scene.log}")
        wait_for(lambda: is_ready(scene), 60, f"not ready again; see {scene.log}")
        assert_all_is_right(scene)
    finally:
        scene.close()
        subprocess.run(["umount", "-l", str(disk)], check=True, timeout=150)


def test_a_source_that_is_down_for_hours_restarts_nothing(monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "5000000")
    with tempfile.TemporaryDirectory(prefix="tokiod-watchdog-") as directory, small_scene(directory, rate=900) as scene:
        start(scene)
        (scene.directory / "lmt.sqlite3").rename(scene.directory / "away")
        time.sleep(12)  # three hours
        assert [one.restarts for one in ping(scene).processes] == [0, 0, 0]
        assert "demo-lmt down" in ping(scene).processes[-1].status
        (scene.directory / "away").rename(scene.directory / "lmt.sqlite3")
        wait_for(lambda: "down" not in ping(scene).processes[-1].status, 60, f"it stays down; see {scene.log}")
        assert scene.stop_daemon() == 0
        assert hung(scene) == []


def test_a_command_that_hangs_does_not_outlive_the_collectors_that_ran_it(scene):
    hangs = scene.directory / "lfs"
    hangs.write_text("#!/bin/sh\nsleep 600 &\nwait\n")
    hangs.chmod(0o755)
    with scene.config_path.open("a") as config:
        config.write(
            f'[[source]]\nname = "full"\nkind = "lustre"\nsystem = "full"\nmounts = ["/scratch"]\nlfs = ["{hangs}"]\nfailover = false\n'
        )
    scene.start_daemon()
    wait_for(lambda: is_ready(scene), 30, f"not ready; see {scene.log}")

    def hanging():
        commands = {int(path.parent.name): path for path in Path("/proc").glob("[0-9]*/cmdline")}
        return [pid for pid, path in commands.items() if str(hangs).encode() in _read(path)]

    wait_for(hanging, 60, f"lfs is not run; see {scene.log}")
    ran = hanging()
    # SIGKILL leaves the collectors no time to end what they run.
    wait_for(lambda: scene.kill("collectors"), 10, "no collectors to kill")
    wait_for(lambda: not set(ran) & set(hanging()), 10, f"{ran} are still there; see {scene.log}")
    wait_for(lambda: is_ready(scene), 30, f"not ready again; see {scene.log}")


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""
