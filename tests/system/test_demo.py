"""`tokiod demo`: says that nothing was lost when nothing was, and fails when one cell differs."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.request import urlopen

import h5py
import pytest
from planted import plant
from rich.console import Console
from waiting import wait_for

from tokiod.cli.commands.demonstration import is_right
from tokiod.clock import SimulatedClock
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.simulator.sources import JOBS, LMT, NODES, SOURCES
from tokiod.tts.schema import missing

pytestmark = pytest.mark.system


def demo(directory, *options):
    """Start a demo; its lines are long enough not to be broken."""
    line = [sys.executable, "-m", "tokiod.cli.tokiod", "demo", "--seconds", "10", "--directory", str(directory), *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(line, env={**os.environ, "COLUMNS": "300"}, **pipes)


@pytest.fixture(scope="module")
def shown():
    """What a demo printed, and its directory: a short path, since sockets go below it. Its page was read while it stayed."""
    with tempfile.TemporaryDirectory(prefix="demo-") as directory, demo(directory, "--page", "3") as process:
        printed = []
        for line in process.stdout:
            printed.append(line)
            if (found := re.match(r"(http://\S+/) stays for 3 s", line)) is not None:
                with urlopen(found[1]) as page, urlopen(f"{found[1]}api/v1/systems") as systems:
                    printed.append(page.read().decode())
                    assert {one["name"] for one in json.load(systems)["systems"]} == {source.system for source in (*SOURCES, NODES)}
        errors = process.stderr.read()
        yield subprocess.CompletedProcess([], process.wait(500), "".join(printed), errors), Path(directory)


def test_a_demo_kills_the_writer_loses_nothing_and_says_how_to_look_at_the_files(shown):
    done, directory = shown
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"kill -9 \d+: the writer was killed on purpose, the daemon continues", done.stdout)
    assert re.search(r"(?m)^\d+ cells compared .* hold a number: 0 lost, 0 extra, 0 different$", done.stdout)
    (sums,) = re.findall(
        r"(?m)^[\d.]+ GB that jobs read and wrote by the job table compared with what LMT counted: (\d+) sums .*, 0 differ$", done.stdout
    )
    assert int(sums) > 20
    assert "On purpose, the writer was killed once" in done.stdout
    for source in (*SOURCES, NODES):
        hints = re.findall(rf"h5dump -d /{source.shown} -s (\d+),0 -c 12,4 (\S+/{source.system}.hdf5)", done.stdout)
        assert hints
        # Lustre has no past, so there are the minutes of the demo only.
        assert sum(numbers(path, source.shown, int(row)) for row, path in hints) > (100 if source.replayable else 60)
    with demo(directory) as again:
        printed, error = again.communicate(timeout=100)
    assert (again.returncode, printed) == (2, "")
    assert error.endswith(f"{directory} already holds a demo: remove it or name another directory\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=str)
def test_a_demo_that_is_ended_by_a_signal_leaves_no_process(number):
    with tempfile.TemporaryDirectory(prefix="demo-") as directory, demo(directory, "--page", "60") as process:
        wait_for(lambda: any(b"writer" in one for one in processes(directory)), 100, "the daemon does not start")
        process.send_signal(number)
        assert process.wait(100) == (-number if number == signal.SIGKILL else 128 + number)
        assert "Traceback" not in process.stderr.read()
        wait_for(lambda: not processes(directory), 100, "processes of the demo run on")


def processes(directory):
    """Return the command lines of the processes that name a directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return [line for line in found if directory.encode() in line]


@pytest.mark.parametrize("system", ["demo", "demo.nodes"])
def test_the_list_of_jobs_that_a_demo_names_has_jobs_with_rates(shown, system):
    done, _ = shown
    (command,) = re.findall(rf"(?m)^  (\S+/tokioctl top {re.escape(system)} .*)$", done.stdout)
    listed = subprocess.run([*command.split(), "--json"], capture_output=True, text=True, check=True, timeout=100)
    found = json.loads(listed.stdout)
    assert found["lines"][0]["rate"] > 0
    assert found["total"] == pytest.approx(sum(one["rate"] for one in found["lines"]), rel=0.5)


def test_on_request_a_demo_shows_the_address_of_its_page_and_keeps_it(shown):
    done, _ = shown
    (address,) = re.findall(r"(?m)^the live page, for users of this machine: (http://127.0.0.1:\d+/)$", done.stdout)
    assert f"{address} stays for 3 s" in done.stdout
    assert "<!doctype html>" in done.stdout.lower()


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
    planted = {source: _newest_filled(scene.files(source), source.shown) for source in scene.sources}
    sound = {path: path.read_bytes() for path in planted.values()}
    for source, path in planted.items():
        plant(path, 12345.5, source.shown)
    assert not is_right(scene, Console(width=300))
    # The tests that follow compare these files.
    for path, content in sound.items():
        path.write_bytes(content)
    printed = capsys.readouterr().out
    assert f"hold a number: 0 lost, 0 extra, {len(SOURCES)} different" in printed
    for source in SOURCES:
        assert re.search(rf"different: {source.shown} \S+ \S+ want \S+ got 12345.5", printed)


def test_a_demo_fails_and_names_the_sum_if_jobs_did_not_do_what_lmt_counted(shown, capsys):
    _, directory = shown
    scene = Scene(directory, Site.read(directory / "site.json"), SimulatedClock(0.0, 0.0, 1.0), sources=(LMT, JOBS))
    right = scene.compare_load()
    assert (right.different, right.sums > 20) == ([], True)
    for path in (directory / "tts" / "jobs" / JOBS.system).rglob("*.jobs"):
        with h5py.File(path, "r+") as file:
            # A window of MDTs alone has no bytes.
            if (written := file["rows"].get("write_bytes.sum")) is not None:
                written[...] = written[...] * 2
    assert not is_right(scene, Console(width=300))
    assert re.search(r"datatargets/writebytes snx1-OST\d+ \[\S+, \S+\): \d+ by jobs, \d+ by LMT", capsys.readouterr().out)


def _newest_filled(files, dataset):
    """The newest file with a cell: within the hour before midnight that of tomorrow exists, too."""
    for path in reversed(files):
        with h5py.File(path, "r") as file:
            if not missing(file[dataset][...]).all():
                return path
    raise AssertionError(f"no file has a cell of {dataset}")
