"""The `tokiod` command: what it refuses before it starts anything."""

import subprocess
import sys
from importlib.metadata import version

import pytest


def tokiod(*arguments):
    line = [sys.executable, "-m", "tokiod.cli.tokiod", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=150)


BROKEN = """\
timezone = "Mars/Olympus"
[archive]
path = "/nowhere/{system}.hdf5"
colour = "red"
[[source]]
name = "a"
kind = "lnt"
system = "one"
"""


@pytest.mark.parametrize("command", ["run", "writer", "collectors", "check"])
def test_a_broken_configuration_is_told_with_every_fault_and_its_line_and_exit_2(tmp_path, command):
    path = tmp_path / "tokiod.toml"
    path.write_text(BROKEN)
    done = tokiod(command, "--config", path)
    assert (done.returncode, done.stdout) == (2, "")
    places = [line.partition(f"{path}:")[2].split(":")[0] for line in done.stderr.splitlines()]
    assert places == ["1", "3", "4", "7"]
    for word in ("Mars/Olympus", "day", "colour", "did you mean lmt?"):
        assert word in done.stderr
    assert list(tmp_path.iterdir()) == [path]


def directory(path):
    path.mkdir()


def bytes_of_no_text(path):
    path.write_bytes(b"\xff\xfe\x00")


def no_toml(path):
    path.write_text("timezone: UTC\n")


@pytest.mark.parametrize("make", [directory, bytes_of_no_text, no_toml, lambda _path: None], ids=["directory", "bytes", "yaml", "missing"])
def test_a_configuration_that_can_not_be_read_is_one_sentence_that_names_it(tmp_path, make):
    path = tmp_path / "tokiod.toml"
    make(path)
    done = tokiod("run", "--config", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert str(path) in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("text", ["now", "1@2", "1@2x", "1@2xfast"])
def test_a_clock_that_is_none_is_refused(tmp_path, text):
    done = tokiod("run", "--config", tmp_path / "x", "--clock", text)
    assert done.returncode == 2
    assert f"{text!r} is not EPOCH@ORIGINxRATE" in done.stderr


def test_it_tells_its_version():
    assert tokiod("--version").stdout.strip().endswith(version("tokiod"))
