"""A daemon that has nothing to do wakes a few times a minute: how often, and not how long, is the same on every machine."""

import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from waiting import wait_for

from tokiod.errors import TokiodError
from tokiod.runtime.process_setup import python_command
from tokiod.supervisor.control_socket import Ping, ask

pytestmark = pytest.mark.system

CONFIG = """
timezone = "UTC"
archive.path = "{root}/tts/%Y-%m-%d/{{system}}.hdf5"
bus.endpoint = "ipc://{root}/private/bus"
feed.endpoint = "ipc://{root}/feed"
[[source]]
name = "cscratch-mmperfmon"
kind = "mmperfmon"
system = "cscratch"
step = 60
watch = "{root}/in"
"""
SECONDS = 30.0
WAKES = {"run": 9, "feed": 6, "writer": 14, "collectors": 20}
"""Of all threads in so many seconds, and half as many again as were counted: 4, 3, 8 and 12."""


@pytest.fixture
def root():
    with tempfile.TemporaryDirectory(prefix="tokiod-idle-") as directory:
        root = Path(directory)
        (root / "private").mkdir(mode=0o700)
        for name in ("in", "tts"):
            (root / name).mkdir()
        (root / "tokiod.toml").write_text(CONFIG.format(root=root))
        yield root


@pytest.fixture
def daemon(root):
    command = python_command("tokiod.cli.tokiod", "run", "--config", str(root / "tokiod.toml"))
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: is_ready(root), 60, "the daemon is not ready")
            yield process
        finally:
            process.terminate()


def is_ready(root):
    try:
        return ask(root / "private" / "control", Ping(), 5.0).ready
    except TokiodError:
        return False


def processes(daemon):
    """Return the ids of the daemon's processes by name."""
    children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
    return {"run": daemon.pid} | {Path(f"/proc/{pid}/cmdline").read_text().split("\0")[4]: int(pid) for pid in children}


def wakes(pid):
    """Return how often the threads of a process have waited for something, and gone on."""
    status = [(thread / "status").read_text() for thread in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for text in status)


def test_an_idle_daemon_wakes_a_few_times_a_minute(daemon):
    found = processes(daemon)
    assert set(found) == set(WAKES)
    time.sleep(12)  # the first checks, which the start brings about
    before = {name: wakes(pid) for name, pid in found.items()}
    time.sleep(SECONDS)
    counted = {name: wakes(pid) - before[name] for name, pid in found.items()}
    assert {name: count for name, count in counted.items() if count > WAKES[name]} == {}
    assert all(counted.values()), counted
