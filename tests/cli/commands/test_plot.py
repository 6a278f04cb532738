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
    "fs.hdf5: datatargets/readbytes",
    "    sum " + "@" * 12 + " " * 2 + "     sum",
    "OST0000 " + "@" * 12 + " " * 2 + "1.17 GiB",
    "OST0001 " + "." * 12 + " " * 2 + "     0 B",
    "        00:00 06:00 12:00 PST",
    "'.' 0 B to '@' 100 MiB in 3600 s, blank: missing",
]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_file_a_system_of_today_and_one_of_a_date_are_the_same_map(path, is_sealed):
    if is_sealed:
        seal(path, path, updated=START)
    for what in (str(path), "fs", "fs:2018-01-29"):
        done = run(path, what, READ)
        assert (done.exit_code, done.stderr) == (0, "")
        found = done.stdout.splitlines()
        assert found[:4] == WANTED[:4]
        assert found[5] == WANTED[5]
        assert found[4].split()[-1] == "PST"


def test_a_span_is_cut_out_and_a_zone_may_be_named(path):
    done = run(path, "fs", READ, "--start", "2018-01-29T06:00", "--end", "2018-01-29T14:00:00-08:00")
    assert done.stdout.splitlines()[2].split() == ["OST0000", "@" * 6, "600", "MiB"]
    assert run(path, "fs", READ, "--timezone", "UTC").stdout.splitlines()[4].split()[-1] == "UTC"


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
    assert {"OST0000", "OST0001", "2018-01-29 PST", "06:00", "bytes in 3600 s", "fs.hdf5: datatargets/readbytes"} <= set(words)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fs", "datatargets/readbyte"], f"has no 'datatargets/readbyte', did you mean {READ}?"),
        (["fs:2018-01-30", READ], "does not exist"),
        (["fs:yesterday", READ], "'yesterday' is not a date; write it like 2018-01-28"),
        (["fss", READ], "fss is not a file, and 'fss' is an unknown system, did you mean fs?"),
        (["./none.hdf5", READ], "none.hdf5 does not exist"),
        (["fs", READ, "--output", "x.gif"], "--output: x.gif must end in .png, .svg or .pdf"),
        (["fs", READ, "--output", "/nowhere/x.png"], "--output: /nowhere/x.png: No such file or directory"),
        (["fs", READ, "--start", "soon"], "--start: 'soon' is not an ISO 8601 time"),
        (["fs", READ, "--start", "2018-01-31"], "has no rows of datatargets/readbytes between --start and --end"),
        (["fs", READ, "--timezone", "Mars"], "--timezone: unknown time zone 'Mars'"),
    ],
)
def test_what_can_not_be_drawn_is_a_sentence_and_exit_2(path, arguments, said):
    done = run(path, *arguments)
    assert (done.exit_code, done.stdout, done.stderr.count("\n"), said in done.stderr) == (2, "", 1, True), done.output


def test_a_span_before_now_is_drawn(path):
    """It is 13:00; what is to come is never drawn."""
    assert run(path, "fs", READ, "--start", "3h").stdout.splitlines()[2].startswith("OST0000 @@  200 MiB")
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
    done = subprocess.run([*line, "--output", str(tmp_path / "x.png")], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, "pip install 'tokiod[plot]'" in done.stderr, done.stderr.count("\n")) == (2, "", True, 1)
    assert subprocess.run(line, capture_output=True, text=True, check=False, timeout=60).stdout.splitlines()[2].split() == WANTED[2].split()


def test_percentages_are_told_as_means_and_a_dataset_that_is_all_missing_as_blanks(path):
    found = run(path, "fs", LOAD).stdout.splitlines()
    assert found[2].split() == ["oss0", "-"]
    assert found[1].split() == ["mean", "mean"]
