"""Programs that are started in a directory of another user import nothing from it, and neither do the processes that they start."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.waiting import wait_for
from tokiod.clock import SimulatedClock
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.simulator.sources import LMT

pytestmark = pytest.mark.system

NOON = 1_517_184_000 + 12 * 3600
PLANTED = ("structlog", "numpy", "msgspec", "zmq", "asyncio", "tokiod", "collectors", "pickle", "socket")
HOSTILE = "import os, pathlib\npathlib.Path({trace!r}).open('a').write(f'{{__name__}} in {{os.getpid()}}\\n')\nraise SystemExit(3)\n"


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A current directory with modules that record who imports them; returns the record's path."""
    directory, trace = tmp_path / "hostile", tmp_path / "imported"
    directory.mkdir()
    for name in PLANTED:
        (directory / f"{name}.py").write_text(HOSTILE.format(trace=str(trace)))
    monkeypatch.chdir(directory)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return trace


def test_the_planted_modules_are_imported_by_a_python_without_the_option(hostile):
    subprocess.run([sys.executable, "-m", "tokiod.cli.tokiod", "--help"], check=False, capture_output=True)
    assert hostile.exists()


def test_a_daemon_its_simulator_and_its_children_import_nothing_from_it(hostile, tmp_path):
    clock = SimulatedClock(float(NOON), time.time(), 30)
    scene = Scene(tmp_path / "scene", Site(epoch=NOON - 300, timezone="UTC", osts=8, osss=2, mdts=1), clock, sources=(LMT,))
    scene.prepare()
    try:
        scene.start_simulator()
        scene.start_daemon()
        wait_for(lambda: bool(scene.stored()), 60, f"nothing stored; see {scene.log}")
    finally:
        scene.close()
    assert not hostile.exists(), hostile.read_text()


def test_workers_of_a_process_import_nothing_from_it(hostile, tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        "import os\nfrom tokiod.toolkit.worker_pool import workers\n"
        "if __name__ == '__main__':\n    with workers(1) as pool: print(pool.submit(os.getcwd).result())\n"
    )
    done = subprocess.run([sys.executable, "-P", script], check=False, capture_output=True, text=True)
    assert done.stdout.strip() == str(Path.cwd()), done.stderr
    assert not hostile.exists(), hostile.read_text()
