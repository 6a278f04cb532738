"""A soak of a minute, as CI runs it: it looks at a real daemon, its slopes tell growth from noise, and it would not let growth pass."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.system

SCRIPT = Path(__file__).with_name("soak.py")
WITHIN = ["timeout", "800"]
"""Ends the script by SIGTERM: killed, it would leave its daemon running."""
QUANTITIES = ["memory MB", "writer MB", "collectors MB", "descriptors", "sockets", "ledger KB"]


@pytest.fixture
def script():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("soak", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_it_looks_at_a_running_daemon_and_every_cell_of_its_archive_is_right(tmp_path):
    line = [*WITHIN, sys.executable, str(SCRIPT), "--minutes", "0.3", "--days", "0.05", "--seed", "1", "--directory", str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    *lines, last = done.stdout.splitlines()
    assert [one.partition(":")[0] for one in lines] == QUANTITIES, done.stderr
    # In so short a time a daemon still fills its caches: that nothing grows is for longer runs.
    assert last.endswith(" numbers, 0 lost, 0 extra, 0 different")
    assert not any("mean 0.0" in one for one in lines)


def seen_with(name, values):
    return [dict.fromkeys(QUANTITIES, 100.0) | {name: value} for value in values]


@pytest.mark.parametrize("name", QUANTITIES)
def test_what_grows_is_not_let_pass_and_what_is_noisy_is(script, name):
    rng, seconds = np.random.default_rng(1), list(range(300))
    noise = 100 + rng.normal(0, 5, 300)
    assert script.verdict(seconds, seen_with(name, noise))[1]
    lines, flat = script.verdict(seconds, seen_with(name, noise + np.linspace(0, 60, 300)))
    assert not flat
    assert [one.partition(":")[0] for one in lines if one.endswith("GROWS")] == [name]


def test_what_a_start_takes_is_no_growth(script):
    values = [min(100.0, 20.0 + i) for i in range(300)]
    assert script.verdict(list(range(300)), seen_with("memory MB", values))[1]


def test_a_slope_is_that_of_least_squares_over_the_last_two_thirds(script):
    seconds = list(range(31))
    slope = script.Slope.of(seconds, [0.0] * 10 + [5.0 + 2 * i for i in range(21)])
    assert (slope.mean, round(slope.rise, 9), round(slope.error, 9)) == (25.0, 40.0, 0.0)
    with pytest.raises(ValueError, match="needs three points"):
        script.Slope.of([1.0, 2.0], [1.0, 2.0])
