"""Four hosts and one writer's host on machines of their own, as CI plays them; and what the play would not let pass."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from namespaces import why_not
from planted import plant

from tokiod.clock import SimulatedClock
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.simulator.sources import SOURCES

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "tests.system.many_hosts"]
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'support'}"}
SEED = 20_261_125


@pytest.fixture(scope="module", autouse=True)
def machines():
    if reason := why_not():
        if os.environ.get("CI") == "true" and os.geteuid() == 0:
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """What it printed, and where it left its archive."""
    directory = tmp_path_factory.mktemp("h")
    command = [*COMMAND, "--seed", str(SEED), "--directory", str(directory)]
    return subprocess.run(["timeout", "600", *command], capture_output=True, text=True, check=False, env=ENVIRONMENT, cwd=ROOT), directory


def namespaces(pid):
    said = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in said.splitlines() if line.startswith(f"tkd-{pid}-")]


def test_every_cell_is_right_after_partitions_wrong_clocks_and_a_revoked_key(played):
    done, _ = played
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"seed {SEED}; no upgrade from one version to the next until 0.2.0" in done.stderr
    line = r"\d{5,} cells of 5 sources on 4 hosts, clocks of \w+ \+1 h and \w+ -1 h, 2 misused keys: 0 different; \d+ s\n"
    assert re.fullmatch(line, done.stdout)


@pytest.mark.parametrize("source", SOURCES, ids=[source.name for source in SOURCES])
def test_a_cell_that_is_different_would_be_seen(played, source):
    _, directory = played
    scene = Scene(directory, Site.read(directory / "site.json"), SimulatedClock(0.0, 0.0, 1.0), sources=SOURCES)
    path = scene.files(source)[-1]
    sound = path.read_bytes()
    try:
        plant(path, 12345.5, source.shown)
        assert scene.compare().counts == {"different": 1}
    finally:
        path.write_bytes(sound)
    assert scene.compare().equal


def test_a_play_that_is_ended_leaves_no_process_and_no_namespace(tmp_path):
    process = subprocess.Popen(
        [*COMMAND, "--seed", "1", "--directory", str(tmp_path)],
        env=ENVIRONMENT,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "log-elder").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert len(namespaces(process.pid)) == 5
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 1
    assert namespaces(process.pid) == []
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False).stdout
    assert left == ""
