"""What an archive holds: systems, days, datasets, and errors in one sentence."""

import json

import h5py
import lmt_database
import pytest
from click.testing import CliRunner

from tokiod.cli.tokioctl import main
from tokiod.tts.live.create import create
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

START = lmt_database.START
CONFIG = """\
timezone = "America/Los_Angeles"
[archive]
path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"
[[source]]
name = "one"
kind = "lmt"
system = "fs"
url = "sqlite://{directory}/lmt.sqlite3"
[[source]]
name = "two"
kind = "lmt"
system = "gs"
url = "sqlite://{directory}/lmt2.sqlite3"
"""
READ = "datatargets/readbytes"


@pytest.fixture
def ls(tmp_path):
    (tmp_path / "tokiod.toml").write_text(CONFIG.format(directory=tmp_path))
    (tmp_path / "tts" / "2018-01-28").mkdir(parents=True)
    spec = FileSpec(START, START + 86400, {"datatargets": GroupSpec(5, "lmt")}, {READ: MatrixSpec(("OST0000",), counter=True)})
    create(tmp_path / "tts" / "2018-01-28" / "fs.hdf5", spec, created=START)

    def run(*arguments):
        options = ["--config", str(tmp_path / "tokiod.toml"), "--clock", f"{START + 3600}@0x0"]
        done = CliRunner().invoke(main, ["ls", *arguments, *options])
        return done.exit_code, done.stdout, done.stderr

    run.directory = tmp_path
    return run


def test_without_an_argument_the_systems_are_listed_also_those_without_files(ls):
    code, out, _ = ls()
    lines = [line.split() for line in out.splitlines()]
    assert (code, lines[1][:4], lines[2]) == (0, ["fs", "2018-01-28", "2018-01-28", "1"], ["gs", "-", "-", "0", "0.0", "two"])
    systems = json.loads(ls("--json")[1])["systems"]
    assert [(one["system"], one["days"], one["first"]) for one in systems] == [("fs", 1, "2018-01-28"), ("gs", 0, None)]


def test_the_days_of_a_system_show_form_and_file_and_damaged_ones_the_reason(ls):
    (ls.directory / "tts" / "2018-01-27").mkdir()
    (ls.directory / "tts" / "2018-01-27" / "fs.hdf5").write_text("no")
    days = json.loads(ls("fs", "--json")[1])["days"]
    assert [(one["date"], one["form"], one["datasets"]) for one in days] == [("2018-01-27", "unreadable", 0), ("2018-01-28", "live", 1)]
    assert "HDF5 can't open it" in days[0]["reason"]
    assert ls("gs")[:2] == (0, "nothing to list\n")


def test_a_system_whose_source_was_removed_is_listed_with_its_days_and_without_a_source(ls):
    (ls.directory / "tts" / "2018-01-27").mkdir()
    (ls.directory / "tts" / "2018-01-28" / "fs.hdf5").rename(ls.directory / "tts" / "2018-01-27" / "old.hdf5")
    systems = json.loads(ls("--json")[1])["systems"]
    assert [(one["system"], one["days"], one["sources"]) for one in systems] == [("fs", 0, ["one"]), ("gs", 0, ["two"]), ("old", 1, [])]
    assert ls()[1].splitlines()[3].split()[::5] == ["old", "-"]
    assert [day["date"] for day in json.loads(ls("old", "--json")[1])["days"]] == ["2018-01-27"]
    assert [one["name"] for one in json.loads(ls("old:2018-01-27", "--json")[1])["datasets"]] == [READ]
    assert "unknown system 'olt', did you mean old?" in ls("olt")[2]


@pytest.mark.parametrize("what", ["fs:2018-01-28", "fs:today", "{directory}/tts/2018-01-28/fs.hdf5"])
def test_a_day_shows_its_datasets(ls, what):
    code, out, err = ls(what.format(directory=ls.directory), "--json")
    assert (code, err) == (0, "")
    (dataset,) = json.loads(out)["datasets"]
    assert dataset == {"name": READ, "units": "bytes", "step": 5, "rows": 17280, "columns": 1, "filled": 0.0}
    assert READ in ls(what.format(directory=ls.directory))[1]


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("fz", "unknown system 'fz'; known: fs, gs"),
        ("fs:2018-13-01", "'2018-13-01' is not a date; write it like 2018-01-28, or today or yesterday"),
        ("fs:yesterday", "/tts/2018-01-27/fs.hdf5 does not exist"),
        ("{directory}/none.hdf5", "/none.hdf5 does not exist"),
        ("{directory}/tokiod.toml", "tokiod.toml: HDF5 can't open it"),
    ],
)
def test_what_can_not_be_listed_is_one_sentence(ls, what, sentence):
    code, out, err = ls(what.format(directory=ls.directory))
    assert (code, out, err.count("\n"), sentence in err) == (2, "", 1, True), err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_file_of_hdf5_without_a_dataset_of_time_series_is_not_listed_as_an_empty_one(ls, tmp_path, options):
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["a/b"] = [1, 2, 3]
    code, text, err = ls(str(tmp_path / "other.hdf5"), *options)
    assert (code, text) == (2, "")
    assert "other.hdf5 has no datasets of TOKIO Time Series" in err
