"""`tokiod demo`: says that nothing was lost when nothing was, and fails when one cell differs."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import pytest
from planted import plant
from rich.console import Console

from tokiod.cli.commands.demonstration import is_right
from tokiod.clock import SimulatedClock
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.simulator.sources import SOURCES
from tokiod.tts.schema import missing

pytestmark = pytest.mark.system


def demo(directory):
    """Run a demo; its lines are long enough not to be broken."""
    line = [sys.executable, "-m", "tokiod.cli.tokiod", "demo", "--seconds", "10", "--directory", str(directory)]
    environment = {**os.environ, "COLUMNS": "300"}
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=500, env=environment)


@pytest.fixture(scope="module")
def shown():
    """What a demo printed, and its directory: a short path, since sockets go below it."""
    with tempfile.TemporaryDirectory(prefix="demo-") as directory:
        yield demo(directory), Path(directory)


def test_a_demo_kills_the_writer_loses_nothing_and_says_how_to_look_at_the_files(shown):
    done, directory = shown
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"kill -9 \d+: the writer was killed, the daemon continues", done.stdout)
    assert re.search(r"(?m)^\d+ cells compared .* hold a number: 0 lost, 0 extra, 0 different$", done.stdout)
    for source in SOURCES:
        hints = re.findall(rf"h5dump -d /{source.shown} -s (\d+),0 -c 12,4 (\S+/{source.system}.hdf5)", done.stdout)
        assert hints
        # Lustre has no past, so there are the minutes of the demo only.
        assert sum(numbers(path, source.shown, int(row)) for row, path in hints) > (100 if source.replayable else 60)
    again = demo(directory)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr.endswith(f"{directory} already holds a demo: remove it or name another directory\n")


def numbers(path, dataset, row):
    """Count the numbers of the dataset, which begin where the demo says."""
    with h5py.File(path) as file:
        there = ~missing(file[dataset][...])
    assert there[row].any()
    assert not there[:row].any()
    return there.sum()


def test_a_demo_fails_and_names_the_cells_if_some_differ(shown, capsys):
    _, directory = shown
    scene = Scene(directory, Site.read(directory / "site.json"), SimulatedClock(0.0, 0.0, 1.0), sources=SOURCES)
    for source in scene.sources:
        plant(_newest_filled(scene.files(source), source.shown), 12345.5, source.shown)
    assert not is_right(scene, Console(width=300))
    printed = capsys.readouterr().out
    assert f"hold a number: 0 lost, 0 extra, {len(SOURCES)} different" in printed
    for source in SOURCES:
        assert re.search(rf"different: {source.shown} \S+ \S+ want \S+ got 12345.5", printed)


def _newest_filled(files, dataset):
    """The newest file with a cell: within the hour before midnight that of tomorrow exists, too."""
    for path in reversed(files):
        with h5py.File(path, "r") as file:
            if not missing(file[dataset][...]).all():
                return path
    raise AssertionError(f"no file has a cell of {dataset}")
