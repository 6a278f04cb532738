"""`tokioctl backfill`: its span, and what a user learns who may not ask for it; tests/system/test_backfill.py has the work."""

import os
import socket

import pytest
from commanded import configured, ledger_of, ran, source
from users import READERS, SERVICE, USERS, need_users, open_directory, python

from tokiod.cli.commands.backfill_view import report
from tokiod.ledger.jobs import JobRequest
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.window import Window
from tokiod.window_data import WindowMeta

NOON = 1_517_227_200
"""2018-01-29T12:00:00Z."""


@pytest.fixture
def path(tmp_path):
    return configured(tmp_path, source(window="5m", settle="90s"))


def asked(path, start, end, at):
    """Ask for a span at an epoch second, of a daemon that does not run; return the lines but the last one, which says so."""
    done = ran(path, "backfill", "one", start, end, "--detach", at=at)
    *lines, last = done.stderr.splitlines()
    assert done.exit_code == 2
    return lines, last.removeprefix("main: ")


NO_DAEMON = "--detach: no daemon runs on this archive; start it, or omit --detach"


@pytest.mark.parametrize("end", ["now", "2018-01-29T12:04:00", "2018-01-29T12:00:01", "2018-01-30"])
@pytest.mark.parametrize("at", [NOON + 90, NOON + 300, NOON + 389])
def test_an_end_that_is_newer_than_the_newest_settled_window_means_that_window(path, end, at):
    only = "one: only [2018-01-29T11:30:00Z, 2018-01-29T12:00:00Z) can be collected now: polling collects newer data"
    assert asked(path, "2018-01-29T11:30:00", end, at) == ([only], NO_DAEMON)


def test_a_span_of_settled_windows_is_collected_whole(path):
    assert asked(path, "2018-01-29T11:30:00", "2018-01-29T11:56:00", NOON + 90) == ([], NO_DAEMON)


@pytest.mark.parametrize("start", ["1m", "2018-01-29T11:55:00"])
def test_a_span_without_a_settled_window_is_refused(path, start):
    lines, last = asked(path, start, "now", NOON + 89)
    assert (lines, last) == ([], f"START {start} must be before 2018-01-29T11:55:00Z: polling collects newer data")


@pytest.mark.parametrize("user", ["reader", "outsider"])
def test_a_user_who_may_not_ask_the_daemon_is_told_so_and_not_that_none_runs(user):
    need_users()
    with open_directory() as directory:
        config = configured(directory)
        private = directory / "run" / "private"
        config.write_text(config.read_text().replace("[[source]]", f'[bus]\nendpoint = "ipc://{private}/bus"\n[[source]]', 1))
        for place, mode in (
            (directory / "tts", 0o750),
            (directory / "tts" / ".tokiod", 0o700),
            (directory / "run", 0o750),
            (private, 0o700),
        ):
            place.mkdir()
            os.chown(place, SERVICE, READERS)
            place.chmod(mode)
        with socket.socket(socket.AF_UNIX) as control:
            control.bind(str(private / "control"))
            words = ["backfill", "one", "2018-01-29", "2018-01-30", "--config", config]
            done = USERS[user].run(python(), "-P", "-m", "tokiod.cli.tokioctl", *words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith(f": no permission to connect to {private}/control: only root and the daemon's user have it")


@pytest.mark.parametrize(
    ("options", "stored", "records", "wanted"),
    [
        ({}, 2, 7, "2 windows, 14 records"),
        ({}, 2, None, "2 windows"),
        ({}, 2, 0, "2 windows; the source has no record of it"),
        ({}, 1, 0, "2 windows; the source has no record of 5m of it"),
        ({}, 1, 7, "2 windows, 14 records; the source has no record of 5m of it"),
        ({"force": True}, 2, 7, "2 windows, 14 records"),
        ({"force": True}, 0, 0, "2 windows; the source has no record of 10m of it"),
        ({"datasets": ("a/b",)}, 0, 7, "2 windows, 14 records"),
    ],
)
def test_a_backfill_that_is_done_says_whether_the_source_had_records(tmp_path, capsys, options, stored, records, wanted):
    with Ledger.open(tmp_path / "ledger.sqlite3") as ledger:
        job = collected(ledger, options, stored, records)
        ledger.jobs.set_state(job, "done", NOON)
        report(ledger.jobs.get(job.id), ledger, 2.0, as_json=False)
    assert capsys.readouterr().out == f"job 1: done, {wanted} after 2.0 s\n"


def collected(ledger, options, stored, records, windows=2):
    """Add a job for two windows, some of which are stored."""
    jobs, both = ledger.jobs, [Window(NOON + begin, NOON + begin + 300) for begin in (0, 300)]
    job = jobs.add(JobRequest("one", Window(NOON, NOON + 600), **options), NOON)
    ledger.store([StoredEntry(WindowMeta("one", "lmt", "fs", window, records=records), 5) for window in both[:stored]], NOON)
    for window in both[:windows]:
        jobs.collected(job, window, records or 0, NOON)
    return job


@pytest.mark.parametrize(("options", "wanted"), [({}, "5m left"), ({"force": True}, ""), ({"datasets": ("a/b",)}, "")])
def test_a_backfill_that_ended_early_says_what_the_same_request_collects(path, capsys, options, wanted):
    with ledger_of(path) as ledger:
        job = collected(ledger, options, 1, 7, windows=1)
        ledger.jobs.set_state(job, "cancelled", NOON)
        with pytest.raises(SystemExit, match="1"):
            report(ledger.jobs.get(job.id), ledger, 0.0, as_json=False)
    assert capsys.readouterr().out == "job 1: cancelled, 1 windows, 7 records" + (
        f", {wanted}\n" if wanted else "; the same request begins anew\n"
    )
    (row,) = [line for line in ran(path, "backfill", "--list", at=NOON).stdout.splitlines() if "cancelled" in line]
    assert row.split()[5:7] == (["50", "%"] if wanted else ["-", "1"])


def test_the_list_may_be_that_of_a_source_and_says_that_one_is_not_configured(path):
    with ledger_of(path) as ledger:
        for name in ("one", "gone"):
            ledger.jobs.add(JobRequest(name, Window(NOON, NOON + 600)), NOON)
    every, one, gone, other = (ran(path, "backfill", *words, "--list", at=NOON) for words in ([], ["one"], ["gone"], ["uno"]))
    wait, end = "not running: start the daemon or repeat the command", "gone is not configured: `tokioctl backfill --cancel 2` ends its job"
    assert every.stdout.splitlines()[-2:] == [end, wait]
    assert (one.stdout.splitlines()[-1], "gone" in one.stdout) == (wait, False)
    assert (gone.stdout.splitlines()[-1], " one " in gone.stdout) == (end, False)
    assert (other.exit_code, other.stderr) == (2, "main: unknown source 'uno'; known: one\n")


@pytest.mark.parametrize("words", [["one", "1h", "now", "--list"], ["one", "--cancel", "1"], ["--list", "--cancel", "1"]])
def test_the_list_and_a_cancellation_take_no_span(path, words):
    done = ran(path, "backfill", *words, at=NOON)
    assert (done.exit_code, done.stderr) == (2, "main: use --list or --list SOURCE or --cancel ID, without START and END\n")
