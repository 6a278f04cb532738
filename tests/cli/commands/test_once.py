"""`tokioctl once`: what a window holds, from a real database, and that nothing is touched."""

import json
import sqlite3
from contextlib import closing

import lmt_database
import numpy as np
import pytest
from commanded import configured, ran, source

from tokiod.cli.commands.once import summary
from tokiod.dropped import Why
from tokiod.reports.one_window import Filled, Once

START = lmt_database.START


@pytest.fixture
def path(tmp_path):
    lmt_database.save(tmp_path / "lmt.sqlite3", lmt_database.tables(121))
    return configured(
        tmp_path,
        source(url=f"sqlite://{tmp_path}/lmt.sqlite3", settle="60s"),
        source("two", "lustre", "now", mounts=["/mnt"], lfs=["/nowhere/lfs"]),
        source("three", system="put", watch=f"{tmp_path}/in"),
        timezone="America/Los_Angeles",
    )


def run(path, *arguments, now=START + 370):
    return ran(path, "once", *arguments, at=now)


def told(path, *arguments, **more):
    done = run(path, "one", "--json", *arguments, **more)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_newest_window_that_is_closed_and_settled_is_collected_and_nothing_else_is_touched(path):
    before = sorted(path.parent.rglob("*"))
    once = told(path)
    assert (once["source"], once["system"], once["start"], once["end"]) == ("one", "fs", START + 240, START + 300)
    assert sorted(path.parent.rglob("*")) == before
    assert [told(path, now=START + seconds)["start"] - START for seconds in (359, 360, 419, 420)] == [180, 240, 240, 300]


def test_every_dataset_is_told_with_what_the_database_holds_of_it(path):
    (reads,) = [one for one in told(path)["datasets"] if one["dataset"] == "datatargets/readbytes"]
    with closing(sqlite3.connect(path.parent / "lmt.sqlite3")) as database:
        rows = database.execute(
            "SELECT OST_ID, TIMESTAMP, READ_BYTES FROM OST_DATA JOIN TIMESTAMP_INFO USING (TS_ID) ORDER BY 1, 2"
        ).fetchall()
        stamps = dict(database.execute("SELECT TIMESTAMP, TIMESTAMP FROM TIMESTAMP_INFO ORDER BY 1").fetchall())
    inside = sorted(stamps)[48:60]  # minute 4, a sample every 5 s
    grown = cells = 0
    for ost in {row[0] for row in rows}:
        values = np.array([value for one, stamp, value in rows if one == ost and stamp in inside])
        cells += len(values)
        steps = np.diff(values)
        grown += steps[steps > 0].sum()
    assert (reads["cells"], reads["sum"], reads["form"], reads["units"]) == (cells, grown, "counter", "bytes")
    assert (reads["first"], reads["last"]) == (START + 240, START + 295)


def test_a_window_is_named_by_any_time_in_it(path):
    once = told(path, "--window", "2018-01-28T00:01:30")
    assert (once["start"] - START) % 60 == 0
    assert once["start"] <= START + 90 < once["end"]


def test_for_a_person_it_is_a_table_and_a_sentence_without_escapes(path):
    done = run(path, "one")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["dataset", "form", "cells", "columns", "first", "last", "sum", "units"]
    assert "; nothing was stored" in lines[-1] or lines[-1].startswith("dropped")
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["onw"], "unknown source 'onw', did you mean one?"),
        (["three"], "three is a watched folder"),
        (["two", "--window", "2018-01-28T00:01:00"], "two: it cannot be queried about the past; omit --window"),
        (["one", "--window", "2018-01-29T00:00:00"], "is not settled yet; the newest settled window ends at "),
        (["one", "--window", "noon"], "--window: 'noon' is not a time"),
        (["two"], "two: "),
    ],
)
def test_what_can_not_be_collected_is_a_sentence_and_exit_2(path, arguments, said):
    done = run(path, *arguments)
    assert (done.exit_code, done.stdout, said in done.stderr, done.stderr.count("\n")) == (2, "", True, 1), done.output


def test_a_source_that_is_down_is_a_sentence_that_names_it(path):
    (path.parent / "lmt.sqlite3").unlink()
    done = run(path, "one")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("main: one: ") or done.stderr.startswith("tokioctl: one: "), done.stderr
    assert "lmt.sqlite3" in done.stderr
    as_json = run(path, "one", "--json")
    assert (as_json.exit_code, as_json.stderr) == (2, done.stderr)
    assert json.loads(as_json.stdout)["error"] == done.stderr.split(": one: ")[1].strip()


def test_without_a_source_all_are_queried_and_one_that_fails_does_not_hide_the_others(path):
    done = run(path)
    assert done.exit_code == 2
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["one"]
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["two:"]
    found = [json.loads(line) for line in run(path, "--json").stdout.splitlines()]
    assert {one["source"]: bool(one["error"]) for one in found} == {"one": False, "two": True}


def test_a_counter_with_one_sample_of_each_column_has_no_sum(tmp_path):
    lmt_database.save(tmp_path / "lmt.sqlite3", lmt_database.tables(121))
    path = configured(tmp_path, source(url=f"sqlite://{tmp_path}/lmt.sqlite3", settle="60s", window="5s"), timezone="America/Los_Angeles")
    sums = {one["dataset"]: one["sum"] for one in told(path)["datasets"]}
    assert sums["datatargets/readbytes"] is None
    assert sums["dataservers/cpuload"] is not None
    (line,) = [line for line in run(path, "one").stdout.splitlines() if line.startswith("datatargets/readbytes ")]
    assert line.split()[-2:] == ["-", "bytes"]


def test_a_window_whose_rows_were_deleted_says_so_before_it_asks_for_the_keys_that_select_the_data(path):
    once = told(path, "--window", "2018-01-28T00:01:30", now=START + 370)
    assert once["check"] == ""
    with closing(sqlite3.connect(path.parent / "lmt.sqlite3")) as database:
        for table in ("OST_DATA", "OSS_DATA", "MDS_DATA", "MDS_OPS_DATA"):
            database.execute(f"DELETE FROM {table}")
        database.commit()
    done = run(path, "one")
    assert done.exit_code == 0
    said = "one is up, but nothing could be read, dropped: 12 x step without a row of OST_DATA, for example"
    assert done.stdout.splitlines()[-1].startswith(said)
    with closing(sqlite3.connect(path.parent / "lmt.sqlite3")) as database:
        database.execute("DELETE FROM TIMESTAMP_INFO WHERE TIMESTAMP > '2018-01-28 00:03:59' AND TIMESTAMP < '2018-01-28 00:05:00'")
        database.commit()
    done = run(path, "one")
    assert done.stdout.splitlines()[-1] == f'one is up, but has no record for this window; check url = "sqlite://{path.parent}/lmt.sqlite3"'


@pytest.mark.parametrize("cells", [0, 5])
def test_what_is_dropped_comes_with_an_example_and_the_remedy_and_is_the_message_where_nothing_else_is_left(cells):
    datasets = [Filled("datatargets/readbytes", "counter", "bytes", cells, 1, 0, 0, None)] if cells else []
    why = {"no host": Why("{}", "set host_field")}
    once = Once("one", "fs", 0, 60, datasets, 2, {"no host": 2}, 0.1, check="host_pattern", why=why)
    assert summary(once).splitlines()[1:] == [
        'dropped 2: no host, for example "{}" (set host_field)'
        if cells
        else 'one is up, but nothing could be read: 2 x no host, for example "{}" (set host_field)'
    ]
