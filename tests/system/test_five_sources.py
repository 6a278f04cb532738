"""Five sources across a midnight and autumn's change of the clocks, as CI runs them; and what it would not let pass."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from planted import plant

from tokiod.clock import SimulatedClock
from tokiod.simulator.compare import Comparison
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.simulator.sources import SOURCES

pytestmark = pytest.mark.system

SCRIPT = Path(__file__).with_name("five_sources.py")
WITHIN = ["timeout", "800"]
"""Ends the script by SIGTERM: killed, it would leave its daemon running."""
SEED = 20_181_104


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """What it said, and where it left its archive."""
    directory = tmp_path_factory.mktemp("f")
    how = ["--hours", "5", "--live", "1", "--rate", "100", "--seed", str(SEED), "--directory", str(directory)]
    return subprocess.run([*WITHIN, sys.executable, str(SCRIPT), *how], capture_output=True, text=True, check=False), directory


@pytest.fixture
def script():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("five_sources", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_every_cell_is_right_memory_flat_and_no_lag_grows_beside_anothers_fault(played):
    done, directory = played
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"seed {SEED}" in done.stderr
    line = r"five sources, 5 h at 100, \d+ faults: \d+ numbers, 0 lost, 0 extra, 0 different, \d+ untold; .* 0 grew; \d+ s\n"
    assert re.fullmatch(line, done.stdout)
    # Both days of which hours were played, the second one with an hour that comes twice.
    assert sorted(path.name for path in (directory / "tts").glob("20*")) == ["2018-11-03", "2018-11-04"]


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


@pytest.mark.parametrize(
    ("memory", "lag", "filled", "good"),
    [
        ([100.0] * 9, 90.0, 1, True),
        ([100.0] * 6 + [120.0] * 3, 90.0, 1, False),
        ([100.0] * 9, 500.0, 1, False),
        ([100.0] * 9, 90.0, 0, False),
    ],
    ids=["all well", "memory grows", "a lag grows", "nothing compared"],
)
def test_memory_that_grows_and_a_lag_beside_anothers_fault_are_not_let_pass(script, memory, lag, filled, good):
    score = script.Score(3, {"one": 80.0, "other": 100.0}, {"one": 70.0, "other": lag}, memory, Comparison(10, filled))
    line, verdict = script.told(score, 100.0, 5, 40)
    assert verdict is good
    assert f"{int(lag > 400)} grew" in line
