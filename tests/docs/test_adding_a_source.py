"""docs/adding-a-source.md: its module is a kind of source, in this tree and as a distribution that pip installs."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest
from waiting import wait_for

PAGE = (Path(__file__).parents[2] / "docs" / "adding-a-source.md").read_text("utf-8")
OUTSIDE = Path(__file__).parent / "outside_kind"
IN_TREE = "import pytest\n\nfrom collectors import ost_files\n"
BY_DISTRIBUTION = "import pytest\nimport tokiod_ost_files as ost_files\n\n"
START = 1_517_126_400
HOUR = 3600


def block(mark):
    (text,) = re.findall(rf"^```{mark}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return text


@dataclass(frozen=True)
class Place:
    """Where the kind is installed: what PYTHONPATH holds."""

    python_path: str

    def run(self, *arguments, cwd, timeout=800):
        options = {"cwd": cwd, "env": self.environment, "capture_output": True, "text": True, "timeout": timeout}
        return subprocess.run(self.command(*arguments), check=False, **options)

    def command(self, *arguments):
        return [sys.executable, "-m", *map(str, arguments)]

    @property
    def environment(self):
        return os.environ | {"PYTHONPATH": self.python_path}


@pytest.fixture(scope="module")
def in_tree(tmp_path_factory):
    """A tree in which the module of the page is a file of collectors/, as a start of Python adds it."""
    directory = tmp_path_factory.mktemp("tree")
    (directory / "ost_files.py").write_text(block("python"))
    (directory / "sitecustomize.py").write_text(f"import collectors\ncollectors.__path__.append({str(directory)!r})\n")
    return Place(str(directory))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The distribution, built and installed by pip without a download."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for path in OUTSIDE.iterdir():
        if path.is_file():
            (source / path.name).write_text(path.read_text())
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *options, "."], cwd=source, check=True, timeout=800)
    return Place(str(target))


@pytest.fixture(params=["in_tree", "installed"])
def place(request):
    return request.getfixturevalue(request.param)


def write_files(directory, start, rows, osts=2):
    for ost in range(osts):
        lines = [f"{start + 60 * row} {1000 * row} {10 * row + ost}\n" for row in range(rows)]
        (directory / f"OST000{ost}.txt").write_text("".join(lines) + "15171")


@contextmanager
def configured(own):
    """A short directory, for its sockets, with a configuration and the source's files of two hours until a minute ago."""
    with tempfile.TemporaryDirectory(prefix="ost-") as name:
        directory = Path(name)
        start = int(time.time()) // 60 * 60 - 2 * HOUR
        write_files(directory, start, 2 * 60)
        section = block("toml").replace("/srv/ost-counters", name)
        (directory / "tokiod.toml").write_text(
            f'timezone = "UTC"\n[archive]\npath = "{name}/%Y-%m-%d/{{system}}.hdf5"\n'
            f'[bus]\nendpoint = "ipc://{name}/bus"\n[feed]\nendpoint = "ipc://{name}/feed"\n{section}{own}'
        )
        yield directory, start


def test_the_files_of_the_distribution_are_those_of_the_page():
    assert (OUTSIDE / "tokiod_ost_files.py").read_text() == block("python")
    assert (OUTSIDE / "pyproject.toml").read_text() == block("toml pyproject")
    assert (OUTSIDE / "test_ost_files.py").read_text() == block("python test").replace(IN_TREE, BY_DISTRIBUTION)
    assert IN_TREE in block("python test")


@pytest.mark.parametrize(("name", "line"), [("in_tree", IN_TREE), ("installed", BY_DISTRIBUTION)])
def test_the_kind_passes_the_contract_suite(request, tmp_path, name, line):
    (tmp_path / "test_ost_files.py").write_text(block("python test").replace(IN_TREE, line))
    place = request.getfixturevalue(name)
    done = place.run("pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, "test_ost_files.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 15
    assert "skipped" not in done.stdout


def test_the_printed_command_runs_the_test_at_the_printed_path():
    words = block("sh contract").split()
    assert words[1:] == ["-m", "pytest", re.search(r"^## The test, (\S+)$", PAGE, re.MULTILINE)[1]]


def test_saved_files_become_a_tts_file(place, tmp_path):
    write_files(tmp_path, START, 61)
    program, *arguments = block("sh").replace("OST*.txt", "OST0000.txt OST0001.txt").split()
    assert program == "tokioctl"
    done = place.run("tokiod.cli.tokioctl", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "day.hdf5") as file:
        assert file["datatargets/readbytes"][...].tolist() == [[1000.0, 1000.0]] * 60
        assert file["datatargets/writebytes"].attrs["columns"].tolist() == [b"OST0000", b"OST0001"]


def test_check_and_once_know_the_kind(place):
    with configured("") as (directory, start):
        checked = place.run("tokiod.cli.tokiod", "check", "--config", "tokiod.toml", cwd=directory)
        assert checked.returncode == 0, checked.stderr
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start + HOUR))
        once = place.run("tokiod.cli.tokioctl", "once", "scratch-osts", "--window", at, "--json", "--config", "tokiod.toml", cwd=directory)
        assert once.returncode == 0, once.stderr
        found = json.loads(once.stdout)
        assert [(one["dataset"], one["cells"], one["columns"]) for one in found["datasets"]] == [
            ("datatargets/readbytes", 2, 2),
            ("datatargets/writebytes", 2, 2),
        ]


def test_check_reports_a_mistake_in_the_section(place):
    with configured('rate = 5\nwindow = "7s"\n') as (directory, _):
        done = place.run("tokiod.cli.tokiod", "check", "--config", "tokiod.toml", cwd=directory)
    assert done.returncode == 2
    assert "source scratch-osts: rate: unknown key" in done.stderr


def test_the_daemon_stores_the_source_in_tts_files(place):
    """`tokiod run` with its real processes and sockets."""
    with configured('retention = "2h"\n') as (directory, start):
        day = time.strftime("%Y-%m-%d", time.gmtime(start + HOUR))
        log = directory / "log"
        with log.open("w") as errors:
            command = place.command("tokiod.cli.tokiod", "run", "--config", "tokiod.toml")
            daemon = subprocess.Popen(command, cwd=directory, env=place.environment, stdout=errors, stderr=errors)
        try:
            wait_for(lambda: stored(directory / day / "scratch.hdf5") >= 60 or daemon.poll() is not None, 120, "nothing was stored")
        finally:
            daemon.terminate()
            code = daemon.wait(300)
        assert code == 0, log.read_text()
        with h5py.File(directory / day / "scratch.hdf5") as file:
            group, cells = file["datatargets"], file["datatargets/readbytes"][...]
            assert (group.attrs["source"], file["datatargets/readbytes"].attrs["columns"].tolist()) == (
                b"ost_files",
                [b"OST0000", b"OST0001"],
            )
            assert set(cells[~missing(cells)]) == {1000.0}


def missing(cells):
    return np.signbit(cells) & (cells == 0)


def stored(path):
    """How many cells a file holds; 0 while it is not there."""
    try:
        with h5py.File(path, "r", locking=False) as file:
            return int((~missing(file["datatargets/readbytes"][...])).sum())
    except (OSError, KeyError):
        return 0
