"""`tokiod web` next to a real daemon: what is stored is announced, and the picture is the file's."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from waiting import wait_for
from web_site import Client, WebProcess, decoded

from tokiod.clock import SimulatedClock
from tokiod.reader.followed_file import FollowedFile
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.web.matrix import level_of
from tokiod.window import Calendar

pytestmark = pytest.mark.system

MIDNIGHT = 1_517_184_000
DATASET = "datatargets/readbytes"
WINDOWS = 5


@pytest.fixture
def scene():
    with tempfile.TemporaryDirectory(prefix="web-") as directory:
        clock = SimulatedClock(MIDNIGHT + 3600.0, time.time(), 10)
        made = Scene(Path(directory), Site(epoch=MIDNIGHT + 3000, timezone="UTC", osts=4, osss=2, mdts=1), clock)
        made.prepare()
        with made.config_path.open("a") as config:
            config.write(f'[web]\naddress = "{directory}/http"\n')
        try:
            made.start_simulator()
            made.start_daemon()
            yield made
        finally:
            made.close()


def test_each_stored_window_is_announced_and_its_pixels_are_those_of_the_file_also_after_the_writer_was_killed(scene):
    process = WebProcess(scene.config_path, scene.config_path.parent / "http", scene.config_path.parent / "web.log")
    with process.served(clock=str(scene.clock)):
        viewer = Client(process, f"/api/v1/events?system=demo&dataset={DATASET}")
        try:
            follow(scene, process, viewer)
            scene.kill("writer")
            data, _ = viewer.until(lambda name, _: name == "changed")
            while data["span"] is not None:  # what was in flight; then the new writer
                data, _ = viewer.until(lambda name, _: name == "changed")
            follow(scene, process, viewer)
            scene.stop_daemon()
            assert viewer.until(lambda name, _: name == "feed")[0] == {"feed": False}
            assert process.get("/healthz").body == b"alive\n"
        finally:
            viewer.close()


def follow(scene, process, viewer):
    """Compare each of some windows with the file."""
    for _ in range(WINDOWS):
        data, _ = viewer.until(lambda name, data: name == "changed" and data["span"])
        first, last = data["span"]
        path = f"/api/v1/matrix?system=demo&dataset={DATASET}&start={first}&end={last + 1}&width=4096"
        header, levels, _ = decoded(process.get(path).body)
        with FollowedFile(scene.config.archive.file(Calendar("UTC").day(first), "demo")) as reader:
            times, columns, values = reader.read(DATASET, first, last + 1)
        assert (header["start"], header["columns"], header["pixels"]) == (times[0], list(columns), len(times))
        assert np.array_equal(levels, level_of(values))


def test_the_commands_report_the_web_process_and_reload_it_with_the_daemon(scene):
    process = WebProcess(scene.config_path, scene.config_path.parent / "http", scene.config_path.parent / "web.log")
    with process.served(clock=str(scene.clock)) as running:
        wait_for(lambda: tokioctl(scene, "ping").returncode == 0, 30, "the daemon does not get ready")
        pong = json.loads(tokioctl(scene, "ping", "--json").stdout)
        assert [(one["name"], one["pid"], one["alive"]) for one in pong["processes"]][-1] == ("web", running.pid, True)
        assert f"  web: process {running.pid}: alive, 0 viewers, " in tokioctl(scene, "ping").stdout
        assert "tokiod web: alive, 0 viewers, " in tokioctl(scene, "status").stdout
        assert process.error("/api/v1/systems", host="storage.example.org") == (403, "forbidden_host")
        scene.config_path.write_text(scene.config_path.read_text() + 'hosts = ["storage.example.org"]\n')
        done = tokioctl(scene, "reload")
        assert (done.returncode, done.stderr) == (0, "")
        assert process.get("/api/v1/systems", host="storage.example.org").status == 200
        os.kill(running.pid, signal.SIGSTOP)
        try:
            assert tokioctl(scene, "ping").returncode == 1
        finally:
            os.kill(running.pid, signal.SIGCONT)


def tokioctl(scene, command, *options):
    arguments = [command, "--config", str(scene.config_path), *options]
    return subprocess.run(
        [sys.executable, "-m", "tokiod.cli.tokioctl", *arguments], capture_output=True, text=True, check=False, timeout=100
    )
