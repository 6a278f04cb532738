"""A real daemon's metrics and health, and the alerts that are made of them."""

import http.client
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from maven import Unavailable
from prometheus_client.parser import text_string_to_metric_families
from promtool import promtool
from waiting import wait_for

from tests.support.faulty_scene import FaultyScene
from tokiod.clock import SimulatedClock
from tokiod.metrics import catalogue
from tokiod.simulator.site import Site
from tokiod.simulator.sources import LMT, free_port

pytestmark = pytest.mark.system

RULES = Path(__file__).parents[2] / "config" / "prometheus"
HISTORY, RATE = 600, 30


@pytest.fixture(scope="module")
def tool():
    try:
        return promtool()
    except Unavailable as error:
        pytest.fail(str(error)) if os.environ.get("CI") == "true" else pytest.skip(str(error))


@contextmanager
def daemon(directory, *, start=True):
    """A small site with ten minutes of past, and a daemon with metrics over it; start: and everything is stored."""
    clock = SimulatedClock(1_517_184_000.0 + 12 * 3600, time.time(), RATE)
    site = Site(epoch=int(clock.epoch) - HISTORY, timezone="UTC", osts=4, osss=2, mdts=1)
    made = FaultyScene(directory, site, clock, retention=4 * 3600, ports={"metrics": free_port()})
    made.prepare()
    with made.config_path.open("a") as file:
        file.write(f'[metrics]\naddress = "127.0.0.1:{made.ports["metrics"]}"\n')
    try:
        made.start_simulator()
        if start:
            made.start_daemon()
            wait_for(lambda: made.complete_to(site.epoch, int(clock.epoch) // 60 * 60), 60, "the past is not stored")
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def scene():
    with tempfile.TemporaryDirectory(prefix="tokiod-") as directory, daemon(Path(directory)) as made:
        yield made


def get(scene, path):
    """Return the answer; status 0 while no server listens."""
    with closing(http.client.HTTPConnection("127.0.0.1", scene.ports["metrics"], timeout=50)) as connection:
        try:
            connection.request("GET", path)
        except ConnectionRefusedError:
            return 0, ""
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def samples(scene):
    status, text = get(scene, "/metrics")
    assert status == 200
    return {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def counters(found):
    return {key: value for key, value in found.items() if key[0].endswith(("_total", "_count", "_sum", "_bucket"))}


def test_a_daemon_that_keeps_up_is_alive_and_ready_and_tells_of_every_metric(scene):
    wait_for(lambda: get(scene, "/readyz") == (200, "ready\n"), 20, "not ready")
    wait_for(lambda: get(scene, "/healthz") == (200, "alive\n"), 20, "not alive")
    found, name = samples(scene), scene.sources[0].name
    told = {key[0].removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for key in found}
    # No hub, sink or other host is here: tests/hub, test_sink_process.py and tests/supervisor/test_host_metrics.py have theirs.
    elsewhere = ("tokiod_hub_", "tokiod_sink_", "tokiod_host_", "tokiod_relay_")
    assert {metric.name for metric in catalogue.ALL if not metric.name.startswith(elsewhere)} == told
    assert found["tokiod_windows_total", "stored", name] >= HISTORY // 60
    assert found["tokiod_source_lag_seconds", name] < 10 * 60
    assert (found["tokiod_process_up", "writer"], found["tokiod_process_up", "collectors"]) == (1, 1)
    assert found["tokiod_writer_cells_total",] >= found["tokiod_cells_total", name] > 0
    assert found["tokiod_file_changes_total", "made", "done"] == 1


def test_what_is_counted_goes_on_when_the_writer_and_the_collectors_are_killed(scene):
    before = samples(scene)
    for process in ("writer", "collectors"):
        os.kill(scene.pid(process), signal.SIGKILL)
        wait_for(lambda process=process: samples(scene)["tokiod_process_restarts_total", process] == 1, 20, "not restarted")
    stored = ("tokiod_windows_total", "stored", scene.sources[0].name)
    wait_for(lambda: samples(scene)[stored] > before[stored], 30, "nothing is stored any more")
    after = samples(scene)
    assert {key: after[key] for key, value in counters(before).items() if after[key] < value} == {}
    # The files of a killed process stay until its successor has begun.
    # Three files for each process that counts, and one that is locked for each role, whether it runs or not.
    files = 3 * len({"writer", "collectors", "feed"}) + len(catalogue.ROLES)
    wait_for(lambda: len(list((scene.directory / "metrics").iterdir())) == files, 20, "files of killed processes remain")


def test_a_source_that_is_down_makes_it_degraded_and_is_no_reason_for_a_restart(scene):
    name, process = scene.sources[0].name, scene.pid("collectors")
    with scene.stopped(LMT):
        wait_for(lambda: get(scene, "/healthz") == (200, f"degraded: late: {name}\n"), 40, "not degraded")
        found = samples(scene)
        assert found["tokiod_source_stale", name] == 1
        assert found["tokiod_source_lag_seconds", name] > 60
    wait_for(lambda: get(scene, "/healthz") == (200, "alive\n"), 60, "not alive again")
    assert scene.pid("collectors") == process


def test_as_two_units_the_collectors_serve_what_both_count():
    with tempfile.TemporaryDirectory(prefix="tokiod-") as directory, daemon(Path(directory), start=False) as scene:
        options = ["--config", str(scene.config_path), "--clock", str(scene.clock)]
        commands = ([sys.executable, "-m", "tokiod.cli.tokiod", role, *options] for role in ("writer", "collectors"))
        with (scene.directory / "units.log").open("wb") as log:
            units = [subprocess.Popen(command, stderr=log) for command in commands]
        try:
            wait_for(lambda: get(scene, "/readyz") == (200, "ready\n"), 40, "not ready")
            wait_for(lambda: get(scene, "/healthz") == (200, "alive\n"), 40, "not alive")
            found = samples(scene)
            assert found["tokiod_windows_total", "stored", scene.sources[0].name] > 0
            assert found["tokiod_writer_cells_total",] > 0
            units[0].kill()
            wait_for(lambda: samples(scene)["tokiod_process_up", "writer"] == 0, 10, "the writer is not missed")
            assert samples(scene)["tokiod_writer_cells_total",] >= found["tokiod_writer_cells_total",]
        finally:
            for unit in units:
                unit.kill()
                unit.wait()


def test_prometheus_finds_no_fault_with_the_metrics(scene, tool):
    text = get(scene, "/metrics")[1]
    done = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_alerts_are_understood_and_do_what_their_tests_say(tool):
    for command in (["check", "rules", RULES / "tokiod.rules.yml"], ["test", "rules", RULES / "tokiod.rules.test.yml"]):
        done = subprocess.run([tool, *command], capture_output=True, text=True, check=False, timeout=600)
        assert (done.returncode, done.stdout.count("SUCCESS")) == (0, 1), done.stdout + done.stderr


@pytest.mark.parametrize(("one", "another"), [("> 900", "> 9000"), ("< 7 *", "< 8 *"), ("for: 15m", "for: 1m")])
def test_a_threshold_that_is_changed_fails_the_tests_of_the_alerts(tool, tmp_path, one, another):
    (tmp_path / "tokiod.rules.yml").write_text((RULES / "tokiod.rules.yml").read_text().replace(one, another))
    (tmp_path / "tokiod.rules.test.yml").write_text((RULES / "tokiod.rules.test.yml").read_text())
    command = [tool, "test", "rules", tmp_path / "tokiod.rules.test.yml"]
    assert subprocess.run(command, capture_output=True, check=False, timeout=600).returncode == 1
