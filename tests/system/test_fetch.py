"""`tokioctl fetch` as a person runs it, on five sources: what it saves is archived to the cells that the daemon stored."""

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from waiting import wait_for

from tokiod.clock import SimulatedClock
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.simulator.sources import COLLECTD, ESNET, LMT, LUSTRE, MMPERFMON, SOURCES
from tokiod.tts.schema import missing
from tokiod.window import iso

pytestmark = pytest.mark.system

HISTORY = 1200
RATE = 20
ID = {"ids": lambda source: source.name}


@pytest.fixture(scope="module")
def scene():
    with tempfile.TemporaryDirectory(prefix="tokiod-") as directory:
        clock = SimulatedClock(1_517_184_000.0 + 12 * 3600, time.time(), RATE)
        sizes = {"osts": 4, "osss": 2, "mdts": 2, "hosts": 3, "devices": 2, "cores": 2}
        site = Site(int(clock.epoch) - HISTORY, timezone="America/Los_Angeles", failing=False, moment=60, **sizes)
        made = Scene(Path(directory), site, clock, retention=4 * 3600, sources=SOURCES)
        made.prepare()
        try:
            made.start_simulator()
            made.start_daemon()
            end = int(clock.epoch) + 120
            wait_for(lambda: made.complete_to(site.epoch, end), 120, f"not complete; see {made.log}")
            yield made
        finally:
            made.close()


def run(scene, *arguments):
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=scene.directory)


def fetch(scene, source, output, *, span=None, codes=(0,)):
    start, end = span or (iso(scene.site.epoch), iso(scene.clock.epoch))
    options = ["--output", output, "--json", "--config", scene.config_path, "--clock", scene.clock]
    done = run(scene, "fetch", source.name, start, end, *options)
    assert done.returncode in codes, done.stderr
    fetched = json.loads(done.stdout)
    assert done.returncode == bool(fetched["missing"])
    return fetched


def archived(scene, fetched, path):
    """Run the command that fetch printed, with another output; return the cells of the file."""
    command = fetched["archive"]
    command[command.index("--output") + 1] = str(path)
    done = run(scene, *command[1:])
    assert done.returncode == 0, done.stderr
    return cells([path], fetched["start"], fetched["end"])


def cells(paths, start, end):
    """Return the value of each stored cell in [start, end), by dataset, column and time."""
    found = {}
    for path in paths:
        with h5py.File(path, "r") as file:
            for group in (name for name in file if not name.startswith("_")):
                times = file[group]["timestamps"][...]
                inside = (times >= start) & (times < end)
                for name in (name for name in file[group] if "columns" in file[group][name].attrs):
                    values = file[group][name][...][inside]
                    columns = [one.decode() for one in file[group][name].attrs["columns"]]
                    for row, column in np.argwhere(~missing(values)).tolist():
                        found[f"{group}/{name}", columns[column], int(times[inside][row])] = values[row, column]
    return found


def in_windows(cells, starts):
    return {cell for cell in cells if cell[2] - cell[2] % 60 in starts}


@pytest.mark.parametrize("source", [LMT, COLLECTD, ESNET, MMPERFMON], **ID)
def test_what_is_fetched_of_the_past_is_archived_to_the_cells_of_the_daemon(scene, source, tmp_path):
    fetched = fetch(scene, source, tmp_path / "raw")
    assert (fetched["source"], fetched["start"], fetched["end"]) == (source.name, scene.site.epoch, int(scene.clock.epoch))
    assert [str(path) for path in sorted((tmp_path / "raw").iterdir())] == fetched["files"]
    live = cells(scene.files(source), fetched["start"], fetched["end"])
    assert len(live) > 200
    assert archived(scene, fetched, tmp_path / "day.hdf5") == live


def test_a_source_without_a_past_is_recorded_until_the_end(scene, tmp_path):
    """A window lasts 3 s here: a busy machine may miss some of them, in the daemon or in the command."""
    now = int(scene.clock.time())
    fetched = fetch(scene, LUSTRE, tmp_path / "raw", span=("10m", iso(now + 600)), codes=(0, 1))
    assert fetched["start"] >= now - 60
    found = archived(scene, fetched, tmp_path / "day.hdf5")
    wait_for(lambda: scene.stored(LUSTRE)[-1].end >= fetched["end"], 60, "not stored")
    live = cells(scene.files(LUSTRE), fetched["start"], fetched["end"])
    missed = {one["start"] for one in fetched["missing"]}
    assert {time - time % 60 for _, _, time in found}.isdisjoint(missed)
    stored = {time - time % 60 for _, _, time in live}
    both = stored - missed
    assert len(both) >= 3
    assert in_windows(found, both) == in_windows(live, both)
    assert {dataset for dataset, _, _ in found} == {dataset for dataset, _, _ in live}
    done = run(scene, "fetch", LUSTRE.name, "2h", "1h", "--output", tmp_path, "--config", scene.config_path, "--clock", scene.clock)
    assert (done.returncode, done.stdout) == (2, "")
    assert "demo-lustre has no past" in done.stderr


def test_what_is_there_is_not_fetched_again_and_an_interrupt_leaves_whole_files(scene, tmp_path):
    first = fetch(scene, COLLECTD, tmp_path)
    before = {path: Path(path).stat().st_mtime_ns for path in first["files"]}
    again = fetch(scene, COLLECTD, tmp_path)
    assert again["kept"] == len(first["files"])
    assert {path: Path(path).stat().st_mtime_ns for path in again["files"]} == before
    options = ["--output", tmp_path / "other", "--config", scene.config_path, "--clock", scene.clock]
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", "fetch", LUSTRE.name, "1m", iso(scene.clock.time() + 9000), *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: list((tmp_path / "other").glob(".*")), 60, "nothing is fetched")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert (process.stdout.read(), list((tmp_path / "other").iterdir())) == ("", [])
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


def test_what_can_not_be_fetched_is_a_sentence_and_no_file(scene, tmp_path):
    options = ["--config", scene.config_path, "--clock", scene.clock]
    (tmp_path / "file").touch()
    ended = scene.directory / "down.toml"
    ended.write_text(scene.config_path.read_text().replace("/snmp/west", "/snmp/nowhere"))
    cases = [
        (["demo-lnt", "1h", "now"], "did you mean demo-lmt?"),
        (["demo-lmt", "1h", "2h"], "START 1h must be before END 2h"),
        (["demo-lmt", "2029-01-01", "2030-01-01"], "older than settle"),
        (["demo-lmt", "yesterdy", "now"], "START: 'yesterdy' is not a time"),
        (["demo-lmt", "1h", "30m", "--output", tmp_path / "file"], "--output"),
        (["demo-esnet", "1h", "30m", "--config", ended], "demo-esnet: "),
    ]
    for arguments, sentence in cases:
        done = run(
            scene,
            "fetch",
            *arguments,
            *(["--output", tmp_path / "raw"] if "--output" not in arguments else []),
            *options[2 * ("--config" in arguments) :],
        )
        assert (done.returncode, done.stdout) == (2, ""), done
        assert sentence in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    assert not list((tmp_path / "raw").iterdir())
