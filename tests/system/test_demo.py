"""`tokiod demo`: says that nothing was lost when nothing was, and fails when one cell differs."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import pytest
from click.testing import CliRunner
from planted import plant

from tokiod.cli.tokiod import main
from tokiod.simulator.scene import Scene
from tokiod.simulator.sources import SOURCES
from tokiod.tts.schema import missing

pytestmark = pytest.mark.system


@pytest.fixture
def directory(monkeypatch):
    """A short path, since sockets go below it; and lines that are long enough not to be broken."""
    monkeypatch.setenv("COLUMNS", "300")
    with tempfile.TemporaryDirectory(prefix="demo-") as made:
        yield Path(made)


def test_a_demo_kills_the_writer_loses_nothing_and_says_how_to_look_at_the_files(directory):
    line = [sys.executable, "-m", "tokiod.cli.tokiod", "demo", "--seconds", "10", "--directory", str(directory)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=500)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"kill -9 \d+: the writer was killed, the daemon continues", done.stdout)
    assert re.search(r"(?m)^\d+ cells compared .* hold a number: 0 lost, 0 extra, 0 different$", done.stdout)
    for source in SOURCES:
        hints = re.findall(rf"h5dump -d /{source.shown} -s (\d+),0 -c 12,4 (\S+/{source.system}.hdf5)", done.stdout)
        assert hints
        # Lustre has no past, so there are the minutes of the demo only.
        assert sum(numbers(path, source.shown, int(row)) for row, path in hints) > (100 if source.replayable else 60)
    again = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr.endswith(f"{directory} already holds a demo: remove it or name another directory\n")


def numbers(path, dataset, row):
    """Count the numbers of the dataset, which begin where the demo says."""
    with h5py.File(path) as file:
        there = ~missing(file[dataset][...])
    assert there[row].any()
    assert not there[:row].any()
    return there.sum()


def test_a_demo_fails_and_names_the_cells_if_some_differ(directory, monkeypatch):
    compare = Scene.compare

    def compare_after_damage(scene):
        for source in scene.sources:
            plant(_newest_filled(scene.files(source), source.shown), 12345.5, source.shown)
        return compare(scene)

    monkeypatch.setattr(Scene, "compare", compare_after_damage)
    done = CliRunner().invoke(main, ["demo", "--seconds", "10", "--directory", str(directory)])
    assert done.exit_code == 1
    assert f"hold a number: 0 lost, 0 extra, {len(SOURCES)} different" in done.stdout
    for source in SOURCES:
        assert re.search(rf"different: {source.shown} \S+ \S+ want \S+ got 12345.5", done.stdout)


def _newest_filled(files, dataset):
    """The newest file with a cell: within the hour before midnight that of tomorrow exists, too."""
    for path in reversed(files):
        with h5py.File(path, "r") as file:
            if not missing(file[dataset][...]).all():
                return path
    raise AssertionError(f"no file has a cell of {dataset}")
