"""The trouble of a source, and its reason, in the same words by status, gaps, /healthz, the log, the metrics and the alerts."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.faulty_scene import FaultyScene
from tokiod.clock import SimulatedClock
from tokiod.runtime.log_sentences import sentence
from tokiod.simulator.scene import wait_for
from tokiod.simulator.site import Site
from tokiod.simulator.sources import COLLECTD, free_port

pytestmark = pytest.mark.system

HISTORY, RATE = 1200, 20
NAME = COLLECTD.name
RULES = (Path(__file__).parents[2] / "config" / "prometheus" / "tokiod.rules.yml").read_text()
ALERTS = {"late": "Stale", "waiting": "Stale", "fatal": "Fatal", "empty": "Empty"}


def tokioctl(scene, *arguments):
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", *arguments, "--config", str(scene.config_path), "--clock", str(scene.clock)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def as_json(scene, command):
    return json.loads(tokioctl(scene, command, "--json").stdout)


def fetched(scene, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{scene.ports['metrics']}{path}", timeout=20) as answer:
        return answer.read().decode()


def change(scene, old, new):
    text = scene.config_path.read_text()
    assert old in text
    scene.config_path.write_text(text.replace(old, new))


@contextmanager
def outage(scene):
    scene.start_simulator()
    scene.start_daemon()
    wait_for(lambda: scene.stored(COLLECTD), 60, "nothing is stored")
    scene.kill_source(COLLECTD)
    yield
    scene.start_source(COLLECTD)


@contextmanager
def wrong_prefix(scene):
    change(scene, 'host_prefix = "bb"', 'host_prefix = "cc"')
    scene.start_simulator()
    scene.start_daemon()
    yield


@contextmanager
def missing_secret(scene):
    change(scene, "[[source]]\n", '[[source]]\napi_key_file = "absent-key"\n')
    scene.start_simulator()
    scene.start_daemon()
    yield


@contextmanager
def full_disk(scene):
    place = scene.directory / "tts"
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], check=True)
    try:
        scene.start_simulator()
        scene.start_daemon()
        yield
        subprocess.run(["mount", "-o", "remount,size=1g", str(place)], check=True)
        wait_for(lambda: scene.stored(COLLECTD), 120, "nothing is stored once there is space")
    finally:
        scene.close()
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def scene():
    clock = SimulatedClock(1_517_184_000.0 + 12 * 3600, time.time(), RATE)
    site = Site(epoch=int(clock.epoch) - HISTORY, timezone="UTC", osts=2, osss=1, mdts=1, hosts=2, devices=2, cores=2, trouble=False)
    with tempfile.TemporaryDirectory(prefix="tokiod-") as directory:
        made = FaultyScene(Path(directory), site, clock, retention=HISTORY, sources=(COLLECTD,), ports={"metrics": free_port()})
        made.prepare()
        with made.config_path.open("a") as file:
            file.write(f'empty_after = "5m"\n[metrics]\naddress = "127.0.0.1:{made.ports["metrics"]}"\n')
        try:
            yield made
        finally:
            made.close()


def logged(scene):
    """Return the sentences of the log, and the errors in it."""
    events = [json.loads(line) for line in scene.log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
    sentences = {sentence(event["event"], event) for event in events}
    return sentences, {event[key] for event in events for key in ("reason", "error") if key in event}


@pytest.mark.parametrize(
    ("cause", "trouble"), [(outage, "waiting"), (wrong_prefix, "empty"), (missing_secret, "fatal"), (full_disk, "waiting")]
)
def test_every_surface_reports_a_trouble_by_its_word_and_its_reason(scene, cause, trouble):
    if cause is full_disk and os.geteuid():
        pytest.skip("only root may mount")
    with cause(scene):
        wait_for(scene.config.archive.ledger.exists, 60, "no ledger")
        wait_for(lambda: as_json(scene, "status")["sources"][0]["trouble"] == trouble, 120, f"the source is not {trouble}")
        wait_for(lambda: fetched(scene, "/healthz") == f"degraded: {trouble}: {NAME}\n", 60, "/healthz does not report it")
        assert f'tokiod_source_state{{source="{NAME}",state="{trouble}"}} 1.0' in fetched(scene, "/metrics")
        shown = tokioctl(scene, "status")
        (line,) = as_json(scene, "status")["sources"]
        assert (line["trouble"], shown.returncode) == (trouble, 1)
        assert re.search(rf"^{NAME}: {trouble}: ", shown.stdout, re.MULTILINE)
        sentences, reasons = logged(scene)
        assert any(one.startswith(f"{NAME}: {trouble}: ") for one in sentences), sentences
        if trouble == "empty":  # its reason has the time since when, and each of its windows its own
            assert "empty" in {gap["state"] for gap in as_json(scene, "gaps")}
        else:
            assert line["reason"] in reasons
            assert line["reason"] in {gap["reason"] for gap in as_json(scene, "gaps")}
    summary = re.search(rf"alert: TokiodSource{ALERTS[trouble]}\n(?:.*\n)*?.*summary: \"(.*)\"", RULES)[1]
    assert re.search(rf"\b{trouble}\b", summary), summary
