"""`tokioctl status` on an archive whose daemon is down, and how it writes what it finds."""

import json
import signal
import subprocess
import sys

import pytest
from commanded import configured, ledger_of, ran, source

from tokiod.cli.commands.status_view import Rates, watched
from tokiod.ledger.jobs import JobRequest
from tokiod.ledger.ledger import StoredEntry
from tokiod.reports.status import SourceLine, Status
from tokiod.times import span
from tokiod.window import Window
from tokiod.window_data import WindowMeta

NOON = 1_517_184_000 + 12 * 3600


@pytest.fixture
def path(tmp_path):
    return configured(tmp_path)


@pytest.fixture
def ledger(path):
    with ledger_of(path) as ledger:
        yield ledger


def run(path, *options):
    return ran(path, "status", *options, at=NOON + 30)


def test_an_archive_that_never_was_is_down_with_exit_2_and_every_source_new(path):
    done = run(path, "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["health"], told["writer"], told["files"]) == (2, "down", None, [])
    assert [(line["name"], line["state"]) for line in told["sources"]] == [("one", "new")]
    assert told["has_ledger"] is False


def test_before_the_first_start_it_reports_that_there_is_no_ledger_and_how_to_start(path):
    done = run(path)
    assert done.exit_code == 2
    wanted = "the daemon is down and there is no ledger: start it by systemctl start tokiod, or tokiod run"
    assert wanted in " ".join(done.stdout.split())


def test_with_the_daemon_down_the_ledger_is_told_and_that_it_is_the_ledger(path, ledger):
    ledger.store([StoredEntry(WindowMeta("one", "lmt", "fs", Window(NOON - 60, NOON)), 600)], NOON)
    done = run(path)
    assert done.exit_code == 2
    lines = done.stdout.splitlines()
    assert lines[0].split() == f"2018-01-29T12:00:30Z {path.parent}/tts the daemon is down; from the ledger".split()
    (row,) = [line for line in lines if line.startswith("one")]
    assert row.split()[2:8] == ["2018-01-29T12:00:00Z", "30s", "11:59:00Z", "+1m", "10", "0.1"]


def test_of_one_source_everything_is_shown_with_how_much_of_today_is_stored(path, ledger):
    ledger.store([StoredEntry(WindowMeta("one", "lmt", "fs", Window(NOON - 6 * 3600, NOON), dropped={"malformed line": 3}), 600)], NOON)
    done = run(path, "one")
    lines = [line.strip().split(None, 1) for line in done.stdout.splitlines()]
    assert lines[1] == ["source", "one"]
    assert ["today", "50.0 % of what is due is stored, 25.0 % of the day"] in lines
    assert ["dropped", "3 malformed line"] in lines
    assert json.loads(run(path, "one", "--json").stdout)["sources"][0]["today"] == {"stored": 21600, "due": 43200, "whole": 86400}


def test_of_one_source_the_file_is_as_full_as_among_all_and_only_its_own_jobs_are_shown(tmp_path):
    one, two = source("one", "collectd_es", url="http://127.0.0.1:9", index="i"), source("two", "lustre", mounts=["/mnt"])
    path = configured(tmp_path, one, two, source("folder", "mmperfmon", "hs", watch="/nowhere"))
    with ledger_of(path) as ledger:
        ledger.store([StoredEntry(WindowMeta("one", "lmt", "fs", Window(NOON - 43200, NOON)), 600)], NOON)
        for name in ("one", "gone"):
            ledger.jobs.add(JobRequest(name, Window(NOON - 7200, NOON - 3600)), NOON)
    for system in ("fs", "hs"):
        file = tmp_path / "tts" / "2018-01-29" / f"{system}.hdf5"
        file.parent.mkdir(exist_ok=True)
        file.touch()
    everything, one = (json.loads(run(path, *options, "--json").stdout) for options in ((), ("one",)))
    assert [(file["system"], file["filled"]) for file in everything["files"]] == [("fs", 0.25), ("hs", None)]
    assert [(file["system"], file["filled"]) for file in one["files"]] == [("fs", 0.25)]
    assert ([job["source"] for job in everything["jobs"]], [job["source"] for job in one["jobs"]]) == (["one", "gone"], ["one"])
    rows = [line.split() for line in run(path).stdout.splitlines()]
    assert ["2018-01-29/fs.hdf5", "25.0", "%"] in rows
    assert ["2018-01-29/hs.hdf5", "-"] in rows


def test_a_job_of_a_removed_source_is_shown_where_one_source_is_left(path, ledger):
    ledger.jobs.add(JobRequest("gone", Window(NOON - 7200, NOON - 3600)), NOON)
    assert "backfill 1 of gone: " in run(path).stdout
    assert "backfill 1 of gone: " not in run(path, "one").stdout


def test_a_source_that_is_unknown_is_a_sentence_with_the_nearest_known_one(path):
    done = run(path, "onee")
    assert (done.exit_code, done.stderr) == (2, "main: unknown source 'onee', did you mean one?\n")


def line(name, cells, rate):
    return SourceLine(name, "lmt", "fs", "running", cells=cells, cells_per_second=rate)


def test_watched_it_shows_the_rates_of_the_last_minute_the_highest_first():
    rates = Rates()
    found = [
        rates.of(Status(NOON + second, "/tts", 1, "fine", [line("slow", 0, 99.0), line("fast", 100 * second, 1.0)], []))
        for second in (0, 30, 60, 120, 121)
    ]
    assert found == [{"slow": 99.0, "fast": 1.0}, *[{"slow": 0.0, "fast": 100.0}] * 4]
    _, sources, *_ = watched(Status(NOON, "/tts", 1, "fine", [line("slow", 0, 9.0), line("fast", 0, 9.0)], []), found[-1])
    assert [list(column.cells) for column in sources.columns if column.header in {"source", "cells/s"}] == [["fast", "slow"], ["100", "0"]]


def test_a_ledger_that_is_none_is_a_sentence(path, tmp_path):
    place = tmp_path / "tts" / ".tokiod" / "ledger.sqlite3"
    place.parent.mkdir(parents=True)
    place.write_text("not a database" * 1000)
    done = run(path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert str(place) in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_ledger_that_turns_out_to_be_corrupt_while_it_is_read_is_the_same_sentence(path, ledger):
    for hour in range(500):
        window = Window(NOON + hour * 3600, NOON + hour * 3600 + 60)
        ledger.store([StoredEntry(WindowMeta("one", "lmt", "fs", window), 600)], NOON)
    ledger.close()
    data = bytearray(ledger.path.read_bytes())
    data[4096:] = b"junk" * ((len(data) - 4096) // 4)
    ledger.path.write_bytes(data)
    done = run(path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f": the ledger {ledger.path} is corrupt (" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_broken_configuration_is_told_like_everywhere(path):
    path.write_text("timezone = 7\n")
    done = run(path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{path}:1: timezone: " in done.stderr


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (61, "1m01s"),
        (3599, "59m59s"),
        (3600, "1h00m"),
        (86399, "23h59m"),
        (86400, "1d00h"),
        (90 * 86400, "90d00h"),
    ],
)
def test_a_span_is_written_shortly(seconds, text):
    assert span(seconds) == text


def test_watched_by_what_is_no_terminal_it_is_printed_every_second_until_ctrl_c(path):
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", "status", "--watch", "--config", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        heads = (line for line in watching.stdout if "the daemon is down" in line)
        first, second = next(heads), next(heads)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(150) == 0
    assert first < second


def test_watched_as_json_it_is_a_line_a_second_until_ctrl_c(path):
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", "status", "--json", "--watch", "--config", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as watching:
        lines = [json.loads(watching.stdout.readline()) for _ in range(2)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(150) == 0
    assert lines[0]["time"] + 1 <= lines[1]["time"]
    assert lines[0]["health"] == lines[1]["health"] == "down"
