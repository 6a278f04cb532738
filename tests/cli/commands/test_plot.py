"""`tokioctl plot`: which file is meant, what is drawn of it, and what can't be."""

import re
import subprocess
import sys

import numpy as np
import pytest
from commanded import configured, ran

from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.seal import seal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

START = 1_517_212_800
"""2018-01-29T00:00 in Los Angeles."""
HOUR = 3600
READ, LOAD = "datatargets/readbytes", "dataservers/cpuload"


@pytest.fixture
def path(tmp_path):
    """A day of which the first twelve hours are there: a hundred MiB an hour for one component, zero for the other."""
    configured(tmp_path, timezone="America/Los_Angeles")
    path = tmp_path / "tts" / "2018-01-29" / "fs.hdf5"
    path.parent.mkdir(parents=True)
    groups = {"datatargets": GroupSpec(HOUR, "lmt"), "dataservers": GroupSpec(HOUR, "lmt")}
    matrices = {READ: MatrixSpec(("OST0000", "OST0001"), counter=True), LOAD: MatrixSpec(("oss0",), counter=False)}
    create(path, FileSpec(START, START + 24 * HOUR, groups, matrices), created=START)
    live = LiveFile.open(path)
    live.cells[READ].write_rows(0, np.tile([100.0 * 2**20, 0.0], (12, 1)))
    live.commit()
    live.close()
    return path


def run(path, *arguments):
    return ran(path.parents[2] / "tokiod.toml", "plot", *arguments, at=START + 13 * HOUR)


WANTED = [
    "fs datatargets/readbytes",
    "2018-01-29 00:00 to 2018-01-29 13:00 PST",
    "                            mean",
    "sum     @@@@@@@@@@@@  28.4 KiB/s",
    "OST0000 @@@@@@@@@@@@  28.4 KiB/s",
    "OST0001 ............       0 B/s",
    "missing             x",
    "        00:00",
    "cells: '.' 0 B/s to '@' 28.4 KiB/s",
    "sum: '.' 0 B/s to '@' 28.4 KiB/s",
    "sum: complete rows only; 2 of 2 components report",
    "drawn: mean of rows of 3600 s; largest cell 28.4 KiB/s, largest sum 28.4 KiB/s",
    "blank: no value; missing: - some cells, x all",
]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_file_a_system_of_today_and_one_of_a_date_are_the_same_map(path, is_sealed):
    if is_sealed:
        seal(path, path, updated=START)
    for what in (str(path), "fs", "fs:2018-01-29"):
        done = run(path, what, READ)
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.splitlines()[1:] == WANTED[1:]
        assert done.stdout.splitlines()[0] == (f"fs.hdf5 {READ}" if "/" in what else WANTED[0])


def test_a_span_is_cut_out_and_a_zone_may_be_named(path):
    done = run(path, "fs", READ, "--start", "2018-01-29T06:00", "--end", "2018-01-29T14:00:00-08:00")
    assert done.stdout.splitlines()[4].split() == ["OST0000", "@" * 6, "28.4", "KiB/s"]
    assert run(path, "fs", READ, "--timezone", "UTC").stdout.splitlines()[1] == "2018-01-29 08:00 to 2018-01-29 21:00 UTC"


def test_any_span_of_days_is_drawn_with_the_days_that_are_missing(path):
    """Broken before: --start 30d drew today alone."""
    earlier = path.parents[1] / "2018-01-27" / "fs.hdf5"
    earlier.parent.mkdir()
    matrices = {READ: MatrixSpec(("OST0001",), counter=True)}
    create(earlier, FileSpec(START - 48 * HOUR, START - 24 * HOUR, {"datatargets": GroupSpec(HOUR, "lmt")}, matrices), created=START)
    live = LiveFile.open(earlier)
    live.cells[READ].write_rows(0, np.full((24, 1), 50.0 * 2**20))
    live.commit()
    live.close()
    shown = run(path, "fs", READ, "--start", "2018-01-27", "--timezone", "America/Los_Angeles").stdout.splitlines()
    assert shown[1] == "2018-01-27 00:00 to 2018-01-29 13:00 PST"
    assert shown[4] == "OST0000 " + " " * 48 + "@" * 12 + "  28.4 KiB/s"
    assert shown[5] == "OST0001 " + "+" * 24 + " " * 24 + "." * 12 + "  9.48 KiB/s"
    assert shown[6] == "missing " + " " * 24 + "x" * 24 + " " * 12 + "x"
    assert shown[7].split() == ["01-27", "01-28", "01-29"]
    month = run(path, "fs", READ, "--start", "30d").stdout.splitlines()
    assert (month[1], month[6].count("x") > 40) == ("2017-12-30 13:00 to 2018-01-29 13:00 PST", True)


def test_the_fold_is_chosen(path):
    shown = run(path, "fs", READ, "--fold", "max").stdout.splitlines()
    assert (shown[2].strip(), shown[-2].split(";")[0]) == ("max", "drawn: max of rows of 3600 s")


@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_a_picture_is_made_and_said_to_be(path, tmp_path, form):
    pytest.importorskip("matplotlib")
    output = tmp_path / f"x.{form}"
    done = run(path, "fs", READ, "--output", str(output))
    assert (done.exit_code, done.stdout) == (0, f"{output}: 24 of 26 cells filled\n"), done.stderr
    assert output.read_bytes().startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[form])


def test_a_picture_tells_its_words_as_comments_that_svg_keeps(path, tmp_path):
    pytest.importorskip("matplotlib")
    output = tmp_path / "x.svg"
    run(path, "fs", READ, "--output", str(output))
    words = re.findall(r"<!-- (.*?) -->", output.read_text())
    assert {"OST0000", "OST0001", "KiB/s", "06:00", "fs datatargets/readbytes", "2018-01-29 00:00 to 2018-01-29 13:00 PST"} <= set(words)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fs", "datatargets/readbyte"], f"has no 'datatargets/readbyte', did you mean {READ}?"),
        (["fs:2018-01-30", READ], "no data in [2018-01-30T08:00:00Z, 2018-01-30T08:00:01Z); first missing file: "),
        (["fs:tomorrow", READ], "'tomorrow' is not a date; write it like 2018-01-28, or today or yesterday"),
        (["fss", READ], "fss is not a file, and 'fss' is an unknown system, did you mean fs?"),
        (["./none.hdf5", READ], "none.hdf5 does not exist"),
        (["fs", READ, "--output", "x.gif"], "--output: x.gif must end in .png, .svg or .pdf"),
        (["fs", READ, "--output", "/nowhere/x.png"], "--output: /nowhere/x.png: No such file or directory"),
        (["fs", READ, "--start", "soon"], "--start: 'soon' is not a time"),
        (["fs", READ, "--start", "2018-01-31"], "the span would start at 2018-01-31T08:00:00Z and end at 2018-01-29T21:00:00Z"),
        (["fs", READ, "--timezone", "Mars"], "--timezone: unknown time zone 'Mars'"),
    ],
)
def test_what_can_not_be_drawn_is_a_sentence_and_exit_2(path, arguments, said):
    done = run(path, *arguments)
    assert (done.exit_code, done.stdout, done.stderr.count("\n"), said in done.stderr) == (2, "", 1, True), done.output


def test_a_span_before_now_is_drawn(path):
    """It is 13:00; what is to come is never drawn."""
    assert run(path, "fs", READ, "--start", "3h").stdout.splitlines()[4].startswith("OST0000 @@  ")
    assert (
        run(path, "fs", READ, "--start", "4h", "--end", "2h").stdout
        == run(path, "fs", READ, "--start", "2018-01-29T09:00", "--end", "2018-01-29T11:00").stdout
    )


def test_a_file_that_is_no_tts_file_is_a_sentence_that_names_it(path):
    path.write_bytes(b"no HDF5" * 1000)
    done = run(path, "fs", READ)
    assert (done.exit_code, done.stderr.count("\n"), str(path) in done.stderr) == (2, 1, True)


def test_without_matplotlib_a_picture_is_a_sentence_with_the_way_out_and_the_terminal_draws(path, tmp_path):
    code = "import sys; sys.modules['matplotlib'] = None; from tokiod.cli.tokioctl import main; main()"
    line = [sys.executable, "-c", code, "plot", str(path), READ]
    done = subprocess.run([*line, "--output", str(tmp_path / "x.png")], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout, "pip install 'tokiod[plot]'" in done.stderr, done.stderr.count("\n")) == (2, "", True, 1)
    assert (
        subprocess.run(line, capture_output=True, text=True, check=False, timeout=300).stdout.splitlines()[4].split()[:2]
        == WANTED[4].split()[:2]
    )


def test_percentages_are_means_and_a_dataset_that_is_all_missing_is_blank(path):
    found = run(path, "fs", LOAD).stdout.splitlines()
    assert (found[4].split(), found[3].split()) == (["oss0", "-"], ["mean", "-"])
    assert found[5] == "missing " + "x" * 13


@pytest.mark.parametrize("percent", ["nan", "0", "101", "inf"])
def test_a_clip_that_is_no_percentile_is_refused(path, percent):
    done = run(path, "fs", READ, "--clip", percent)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"Invalid value for '--clip': {float(percent):g}" in done.stderr.replace(".0", "")
