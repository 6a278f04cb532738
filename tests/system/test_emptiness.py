"""A source that is up and returns no record: what every surface reports, and that its past comes without help once the cause is removed."""

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import pytest

from tokiod.clock import SimulatedClock
from tokiod.simulator.scene import Scene, wait_for
from tokiod.simulator.site import Site
from tokiod.simulator.sources import COLLECTD, free_port
from tokiod.window import Window

pytestmark = pytest.mark.system

HISTORY, RATE = 3600, 20
NAME = COLLECTD.name


def tokioctl(scene, *arguments):
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", *arguments, "--config", str(scene.config_path)]
    command += [] if arguments[0] == "reload" else ["--clock", str(scene.clock)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def fetched(scene, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{scene.ports['metrics']}{path}", timeout=20) as answer:
        return answer.read().decode()


@pytest.fixture
def scene():
    clock = SimulatedClock(1_517_184_000.0 + 12 * 3600, time.time(), RATE)
    site = Site(epoch=int(clock.epoch) - HISTORY, timezone="UTC", osts=2, osss=1, mdts=1, hosts=2, devices=2, cores=2, trouble=False)
    with tempfile.TemporaryDirectory(prefix="tokiod-") as directory:
        made = Scene(Path(directory), site, clock, retention=HISTORY, sources=(COLLECTD,), ports={"metrics": free_port()})
        made.prepare()
        with made.config_path.open("a") as file:
            file.write(f'empty_after = "5m"\n[metrics]\naddress = "127.0.0.1:{made.ports["metrics"]}"\n')
        try:
            yield made
        finally:
            made.close()


def change(scene, old, new):
    text = scene.config_path.read_text()
    assert old in text
    scene.config_path.write_text(text.replace(old, new))


def status(scene):
    return json.loads(tokioctl(scene, "status", "--json").stdout)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_wrong_prefix_is_reported_everywhere_and_after_its_correction_the_past_is_collected(scene, restarts):
    change(scene, 'host_prefix = "bb"', 'host_prefix = "cc"')
    scene.start_simulator()
    scene.start_daemon()
    wait_for(scene.config.archive.ledger_copy.exists, 60, "no ledger")
    wait_for(lambda: status(scene)["sources"][0]["state"] == "empty", 120, "the source does not become empty")
    wait_for(lambda: "empty" in fetched(scene, "/healthz"), 60, "/healthz does not report it")
    assert fetched(scene, "/healthz") == f"degraded: empty: {NAME}\n"
    now = status(scene)
    (line,) = now["sources"]
    words = '; check index = "cori-collectd-*", host_prefix = "cc", device_prefix = "nvme"'
    assert now["health"] == "degraded"
    assert line["reason"].startswith("up, but no record in the last ")
    assert line["reason"].endswith(words)
    assert line["empty_windows"] >= 5
    (gap,) = [gap for gap in json.loads(tokioctl(scene, "gaps", "--json").stdout) if gap["state"] == "empty"][-1:]
    assert (gap["source"], gap["error_class"]) == (NAME, "Empty")
    metrics = fetched(scene, "/metrics")
    assert f'tokiod_source_state{{source="{NAME}",state="empty"}} 1.0' in metrics
    assert f'tokiod_source_stale{{source="{NAME}"}} 0.0' in metrics
    (logged,) = [line for line in scene.log.read_text().splitlines() if '"event": "source.empty"' in line]
    assert json.loads(logged)["reason"].endswith(words)

    change(scene, 'host_prefix = "cc"', 'host_prefix = "bb"')
    fixed = int(scene.clock.time())
    if restarts:
        assert scene.stop_daemon() == 0
        scene.start_daemon()
    else:
        assert tokioctl(scene, "reload").returncode == 0
    # What is within the retention then; of the first windows some are over it meanwhile.
    wanted = Window((fixed - HISTORY) // 60 * 60 + HISTORY // 2, fixed // 60 * 60)

    def is_complete():
        now = status(scene)
        return scene.complete_to(wanted.start, wanted.end) and now["health"] == "fine" and not now["jobs"]

    wait_for(is_complete, 240, "the past does not come")
    assert scene.stop_daemon() == 0
    found = scene.compare(stored=lambda _source: [wanted])
    assert ([one for one in found.differences if wanted.start <= one.time < wanted.end], found.filled > 500) == ([], True)


def test_a_pattern_without_an_index_is_an_error(scene):
    change(scene, 'index = "cori-collectd-*"', 'index = "cori-colectd-*"')
    scene.start_simulator()
    done = tokioctl(scene, "once", NAME)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no index matches cori-colectd-* on the server: check index" in done.stderr
