"""A short torture, as CI runs it: SIGKILL at random instants, every cell right after each; and it would notice if one were not."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from planted import plant

from tokiod.clock import SimulatedClock
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.simulator.sources import SOURCES
from tokiod.tts.layout import form_of, open_for_reading

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

TORTURE = Path(__file__).with_name("torture.py")
KILLS = 12
SEED = 20_180_129


@pytest.fixture(scope="module")
def tortured(tmp_path_factory):
    """What the torture said, and where it left its archive."""
    directory = tmp_path_factory.mktemp("t")
    line = [sys.executable, str(TORTURE), "--kills", str(KILLS), "--seed", str(SEED), "--directory", str(directory), "--equal"]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=500), directory


@pytest.fixture
def score(monkeypatch):
    """A fresh score of the torture's."""
    monkeypatch.syspath_prepend(TORTURE.parent)
    spec = importlib.util.spec_from_file_location("torture", TORTURE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module.Score()
    del sys.modules[spec.name]


def test_twelve_kills_leave_no_file_unreadable_no_cell_lost_or_different_and_sealed_files_as_if_nothing_had_been(tortured):
    done, _ = tortured
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"seed {SEED}" in done.stderr
    assert re.fullmatch(rf"kills {KILLS} unreadable 0 lost 0 different 0 seconds \d+\n", done.stdout)


def test_a_night_has_fallen_and_the_day_before_it_is_sealed(tortured):
    _, directory = tortured
    forms = {}
    for path in (directory / "tts").glob("2018-11-0[34]/*.hdf5"):
        with open_for_reading(path) as file:
            forms.setdefault(path.parent.name, set()).add(form_of(file))
    assert forms == {"2018-11-03": {"sealed"}, "2018-11-04": {"live"}}


def cut(path, _):
    os.truncate(path, 100)


def lose(path, dataset):
    plant(path, -0.0, dataset)


def change(path, dataset):
    plant(path, 12345.5, dataset)


@pytest.mark.parametrize("source", SOURCES, ids=[source.name for source in SOURCES])
@pytest.mark.parametrize(("damage", "found"), [(lose, (0, 1, 0)), (change, (0, 0, 1)), (cut, (1, 0, 0))])
def test_the_torture_counts_what_is_lost_different_or_unreadable(tortured, score, source, damage, found):
    _, directory = tortured
    scene = Scene(directory, Site.read(directory / "site.json"), SimulatedClock(0.0, 0.0, 1.0), sources=(source,))
    path = scene.files(source)[-1]
    sound = path.read_bytes()
    try:
        damage(path, source.shown)
        score.check(scene, determined=False)
    finally:
        path.write_bytes(sound)
    assert (score.unreadable, score.lost, score.different) == found
    assert len(score.notes) == 1
