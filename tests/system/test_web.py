"""`tokiod web` next to a real daemon: what is stored is announced, and the picture is the file's."""

import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
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
