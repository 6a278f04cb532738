"""`tokioctl verify`: what it prints, how it ends, and what it can't do."""

import asyncio
import json
import os
import sqlite3
import sys
from contextlib import closing

import lmt_database
import pytest
from commanded import configured, ledger_of, ran, source
from terminal import Terminal

from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.collector import Site, collect_window
from tokiod.config import load as configuration
from tokiod.config import plugins
from tokiod.ledger.jobs import JobRequest
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar, Window
from tokiod.window_data import WindowMeta

START = lmt_database.START


@pytest.fixture
def path(tmp_path):
    (tmp_path / "in").mkdir()
    lmt_database.save(tmp_path / "lmt.sqlite3", lmt_database.tables(121))
    return configured(
        tmp_path,
        source(url=f"sqlite://{tmp_path}/lmt.sqlite3", settle="60s", retention="1d"),
        source("two", "lustre", "now", mounts=["/mnt"]),
        source("three", system="put", watch=f"{tmp_path}/in"),
        timezone="America/Los_Angeles",
    )


@pytest.fixture
def ledger(path):
    """Minutes 2 to 8 are stored, it says, but there is no file."""
    with ledger_of(path) as ledger:
        ledger.store([StoredEntry(WindowMeta("one", "lmt", "fs", Window(START + 120, START + 480)), 600)], START + 600)
        yield ledger


def run(path, *arguments, now=START + 600):
    return ran(path, "verify", *arguments, at=now)


@pytest.fixture
def archived(path):
    """The same minutes, with their file."""
    config = configuration.load(path)
    section, calendar, clock = config.source[0], Calendar(config.timezone), FakeClock(START + 600)

    async def store(sink):
        with closing(sink), ledger_of(path) as ledger:
            for minute in range(2, 8):
                collector = plugins.load(section.kind).live(section, Site(calendar, clock, config.secret))
                collected = await collect_window(collector, section, Window(START + 60 * minute, START + 60 * minute + 60))
                await collector.close()
                ledger.store([StoredEntry(collected.meta, sink.apply(collected).cells)], START + 600)
            assert sink.commit() == []

    asyncio.run(store(TtsSink(DayFiles(daily(calendar, config.archive.file), clock))))


def change_source(path):
    with closing(sqlite3.connect(path.parent / "lmt.sqlite3")) as database, database:
        database.execute("UPDATE OSS_DATA SET PCT_CPU = 77")


@pytest.mark.usefixtures("archived")
def test_windows_that_were_stored_in_part_are_compared_as_far_as_they_were(path):
    """As after a change of the source's window."""
    path.write_text(path.read_text().replace('kind = "lmt"', 'kind = "lmt"\nwindow = "5m"', 1))
    same = run(path, "one", "2018-01-28T00:00", "2018-01-28T00:05")
    assert (same.exit_code, same.stderr) == (0, "")
    assert same.stdout.splitlines()[-1].startswith("one: 0 of 1 windows differ; ")
    change_source(path)
    other = run(path, "one", "2018-01-28T00:00", "2018-01-28T00:05")
    assert (other.exit_code, other.stderr) == (1, "")
    assert other.stdout.splitlines()[-1].startswith("one: 1 of 1 windows differ; ")


@pytest.mark.usefixtures("archived")
@pytest.mark.parametrize("step", [2, 10])
def test_a_day_with_another_step_than_the_source_is_not_compared(path, step):
    span = "2018-01-28T00:02", "2018-01-28T00:05"
    assert run(path, "one", *span).exit_code == 0
    path.write_text(path.read_text().replace('kind = "lmt"', f'kind = "lmt"\ninterval = "{step}s"', 1))
    done = run(path, "one", *span)
    assert done.exit_code == 2
    assert done.stdout.splitlines() == [
        f"[2018-01-28T08:02:00Z, 2018-01-28T08:05:00Z): not compared, the file has a step of 5 s, the source one of {step} s",
        "one: 0 of 0 windows differ; 0 cells compared",
    ]
    assert done.stderr == "main: no window of one in [2018-01-28T08:02:00Z, 2018-01-28T08:05:00Z) could be compared\n"
    (left_out,) = json.loads(run(path, "one", *span, "--json").stdout)["not_compared"]
    assert left_out == {"start": START + 120, "end": START + 300, "reason": f"the file has a step of 5 s, the source one of {step} s"}


@pytest.mark.usefixtures("ledger")
def test_what_differs_is_printed_window_by_window_with_exit_1(path):
    done = run(path, "one", "2018-01-28T00:01", "2018-01-28T00:05")
    assert (done.exit_code, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    windows = [line for line in lines if line.startswith("[") and " missing" in line]
    assert [line.partition(")")[0] for line in windows] == [f"[2018-01-28T08:0{m}:00Z, 2018-01-28T08:0{m + 1}:00Z" for m in (2, 3, 4)]
    assert "    missing dataservers/cpuload oss1 2018-01-28T08:02:00Z archive - source " in done.stdout
    assert lines[-2] == "[2018-01-28T08:01:00Z, 2018-01-28T08:02:00Z): not stored"
    assert lines[-1].startswith("one: 3 of 3 windows differ; ")


@pytest.mark.system
@pytest.mark.usefixtures("ledger")
def test_in_a_terminal_no_line_is_written_behind_the_bar(path):
    span = ["2018-01-28T00:01", "2018-01-28T00:05", "--config", path, "--clock", f"{START + 600}@0x0"]
    with Terminal([sys.executable, "-m", "tokiod.cli.tokioctl", "verify", "one", *span], {**os.environ, "TERM": "xterm"}, 200) as terminal:
        assert terminal.end() == 1
    lines = [line.rpartition("\x1b[K")[2].strip("\r") for line in terminal.said.split("\n")]
    assert [line.partition(":")[0] for line in lines if " missing" in line and not line.startswith(" ")] == ["[2018-01-28T08"] * 3
    assert any(line.startswith("one: 3 of 3 windows differ; ") for line in lines)


@pytest.mark.usefixtures("ledger")
def test_the_same_as_json(path):
    done = run(path, "one", "2018-01-28T00:01", "2018-01-28T00:05", "--dataset", "dataservers/cpuload", "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["source"], told["start"], told["end"]) == (1, "one", START + 60, START + 300)
    assert (told["windows"], told["cells"], told["not_compared"]) == (3, 3 * 12 * 2, [])
    assert told["not_stored"] == [{"start": START + 60, "end": START + 120}]
    first = told["differing"][0]
    assert (first["start"], first["end"], first["records"]) == (START + 120, START + 180, None)
    assert first["datasets"] == {"dataservers/cpuload": {"missing": 24}}
    cell = first["cells"][0]
    assert (cell["kind"], cell["column"], cell["time"], cell["archive"]) == ("missing", "oss1", START + 120, None)
    assert cell["source"] > 0


@pytest.mark.usefixtures("ledger")
def test_what_is_too_young_or_too_old_is_said_and_where_nothing_is_left_to_compare_it_is_not_fine(path):
    done = run(path, "one", "2018-01-28T00:08", "2018-01-28T00:11")
    assert (done.exit_code, done.stderr) == (
        2,
        "main: no window of one in [2018-01-28T08:08:00Z, 2018-01-28T08:11:00Z) could be compared\n",
    )
    assert done.stdout.splitlines() == [
        "[2018-01-28T08:08:00Z, 2018-01-28T08:09:00Z): not stored",
        "[2018-01-28T08:09:00Z, 2018-01-28T08:11:00Z): not compared, not settled yet",
        "one: 0 of 0 windows differ; 0 cells compared",
    ]
    old = run(path, "one", "2018-01-28T00:02", "2018-01-28T00:04", now=START + 3 * 86400)
    assert (old.exit_code, "not compared, older than the source's retention" in old.stdout) == (2, True)
    told = json.loads(run(path, "one", "2018-01-28T00:02", "2018-01-28T00:04", "--json", now=START + 3 * 86400).stdout)
    assert told["not_compared"] == [{"start": START + 120, "end": START + 240, "reason": "older than the source's retention"}]


@pytest.mark.usefixtures("archived")
def test_what_a_backfill_stored_before_the_retention_is_compared_with_its_last_row(path):
    """An earlier version left that row missing."""
    with Ledger.open(configuration.load(path).archive.ledger) as ledger:
        ledger.jobs.set_state(ledger.jobs.add(JobRequest("one", Window(START + 120, START + 480)), 0.0), "done", 0.0)
    found = run(path, "one", "2018-01-28T00:00", "2018-01-28T00:10", "--json", now=START + 3 * 86400)
    told = json.loads(found.stdout)
    assert (found.exit_code, told["not_compared"][0]) == (
        1,
        {"start": START, "end": START + 120, "reason": "older than the source's retention"},
    )
    (window,) = told["differing"]
    assert {(cell["kind"], cell["time"]) for cell in window["cells"]} == {("missing", START + 475)}


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("two", "2018-01-28T00:01", "2018-01-28T00:05"), "two cannot be queried about the past"),
        (("three", "2018-01-28T00:01", "2018-01-28T00:05"), "tokioctl archive"),
        (("on", "2018-01-28T00:01", "2018-01-28T00:05"), "unknown source 'on', did you mean one?"),
        (("one", "2018-01-28T00:05", "2018-01-28T00:05"), "must be before END"),
        (("one", "soon", "2018-01-28T00:05"), "'soon' is not a time"),
        (("one", "2018-01-28T00:01", "2018-01-28T00:05", "--dataset", "fullness/inode"), "does not fill 'fullness/inode'"),
    ],
)
def test_what_can_not_be_done_is_a_sentence_and_exit_2(path, arguments, sentence):
    done = run(path, *arguments)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert sentence in done.stderr


@pytest.mark.usefixtures("ledger")
def test_a_source_that_can_not_be_asked_is_a_sentence_and_exit_2(path):
    lmt_database.save(path.parent / "lmt.sqlite3", {"OST_INFO": []})
    done = run(path, "one", "2018-01-28T00:02", "2018-01-28T00:04")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "lmt.sqlite3" in done.stderr


def test_an_archive_that_never_was_is_a_sentence(path):
    done = run(path, "one", "2018-01-28T00:02", "2018-01-28T00:04")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "no ledger" in done.stderr
