"""The status from a real ledger, lock and files."""

import fcntl
import os
from contextlib import contextmanager

import pytest
from commanded import configured, ledger_of, source

from tokiod.config import load as configuration
from tokiod.ledger.jobs import JobRequest
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.reports.days import days
from tokiod.reports.status import Gaps, JobLine, SourceLine, Today, status, troubled
from tokiod.runtime import full_disk
from tokiod.times import span
from tokiod.window import Window
from tokiod.window_data import WindowMeta

MIDNIGHT = 1_517_184_000
NOON = MIDNIGHT + 12 * 3600
SETTLE, WINDOW = 15, 60

CONFIG = """\
timezone = "UTC"
[archive]
path = "{directory}/%Y-%m-%d/{{system}}.hdf5"
[[source]]
name = "one"
kind = "lmt"
system = "fs"
url = "sqlite:///none"
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "tokiod.toml"
    path.write_text(CONFIG.format(directory=tmp_path / "tts"))
    return configuration.load(path)


@pytest.fixture
def ledger(config):
    """A ledger of a source that is expected since midnight and runs."""
    config.archive.ledger.parent.mkdir(parents=True)
    with Ledger.open(config.archive.ledger) as ledger:
        ledger.register(config.source[0], MIDNIGHT)
        ledger.set_state("one", "running", "", MIDNIGHT)
        yield ledger


def store(ledger, start, end, cells=600, dropped=None, at=None):
    meta = WindowMeta("one", "lmt", "fs", Window(start, end), dropped=dropped or {})
    ledger.store([StoredEntry(meta, cells)], end + SETTLE if at is None else at)


@contextmanager
def daemon(config):
    """Hold the archive's lock, as a writer does; yields its process."""
    config.archive.lock.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(config.archive.lock, os.O_RDWR | os.O_CREAT)
    os.write(fd, b"4711\n")
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield 4711
    finally:
        os.close(fd)


NOW = NOON + SETTLE


def test_a_source_that_a_clock_in_the_future_registered_has_no_watermark_until_it_is_registered_again(config):
    config.archive.ledger.parent.mkdir(parents=True)
    with Ledger.open(config.archive.ledger) as ledger:
        ledger.register(config.source[0], NOON + 30 * 86400)
        before = status(config, ledger, NOW).sources[0].watermark
        store(ledger, MIDNIGHT, NOON)
        ahead = status(config, ledger, NOW).sources[0].watermark
        ledger.register(config.source[0], MIDNIGHT)
        assert (before, ahead, status(config, ledger, NOW).sources[0].watermark) == (None, None, NOON)


def test_windows_without_samples_make_no_watermark_because_their_time_may_not_have_come(config):
    config.archive.ledger.parent.mkdir(parents=True)
    meta = WindowMeta("one", "lmt", "fs", Window(MIDNIGHT, NOON))
    with Ledger.open(config.archive.ledger) as ledger:
        ledger.register(config.source[0], MIDNIGHT)
        ledger.store([StoredEntry(meta, 0, is_empty=True)], NOW)
        line = status(config, ledger, NOW).sources[0]
        assert (line.watermark, line.gaps.seconds) == (None, 0)


def test_a_source_that_keeps_up_is_fine_with_a_complete_line(config, ledger):
    store(ledger, MIDNIGHT, NOON - WINDOW, cells=10_000, dropped={"not a number": 3})
    store(ledger, NOON - WINDOW, NOON, cells=600)
    with daemon(config) as pid:
        now = status(config, ledger, NOW)
    (line,) = now.sources
    assert (now.time, now.archive, now.writer, now.health) == (NOW, str(config.archive.root), pid, "fine")
    assert (line.name, line.kind, line.system, line.state, line.reason) == ("one", "lmt", "fs", "running", "")
    assert (line.watermark, line.lag, line.last_start, line.last_end) == (NOON, SETTLE, NOON - WINDOW, NOON)
    assert (line.windows, line.cells, line.cells_per_second, line.stored_at) == (2, 10_600, 10.0, NOON + SETTLE)
    assert (line.gaps, line.last_error, line.attempts, line.dropped) == (Gaps(0, 0, 0), "", 0, {"not a number": 3})


def test_a_source_whose_last_window_is_not_over_yet_has_no_lag(config, ledger):
    store(ledger, MIDNIGHT, NOON)
    with daemon(config):
        assert status(config, ledger, NOON - WINDOW / 2).sources[0].lag == 0


@pytest.mark.parametrize(
    ("until", "health"),
    [(NOON, "fine"), (NOON - 3 * WINDOW, "fine"), (NOON - 4 * WINDOW, "degraded"), (MIDNIGHT + 60, "degraded")],
)
def test_a_source_is_late_once_more_than_three_windows_are_due(config, ledger, until, health):
    store(ledger, MIDNIGHT, until)
    with daemon(config):
        now = status(config, ledger, NOW)
    late = f"its newest stored window ended {span(NOW - until)} ago" if health == "degraded" else ""
    assert (now.health, now.sources[0].trouble, now.sources[0].reason) == (health, "late" if late else "", late)


def test_gaps_are_counted_and_make_an_archive_degraded_though_the_newest_window_is_stored(config, ledger):
    store(ledger, MIDNIGHT, NOON - 7200)
    store(ledger, NOON - 3600, NOON - 1800)
    store(ledger, NOON - 1200, NOON)
    with daemon(config):
        now = status(config, ledger, NOW)
    assert (now.health, now.sources[0].trouble, now.sources[0].reason) == ("degraded", "late", "1h10m are due and not stored")
    assert (now.sources[0].gaps, now.sources[0].watermark, now.sources[0].lag) == (Gaps(2, 4200, 0), NOON - 7200, SETTLE)


def test_a_late_source_of_an_archive_whose_disk_is_full_says_so(config, ledger, monkeypatch):
    """A full disk may hold the ledger too: then nobody could write down why nothing is stored."""
    store(ledger, MIDNIGHT, NOON - 3600)
    monkeypatch.setattr(full_disk, "SPARE_BYTES", 1 << 62)
    with daemon(config):
        (line,) = status(config, ledger, NOW).sources
    assert line.reason.startswith(
        f"its newest stored window ended {span(NOW - NOON + 3600)} ago: the disk of {config.archive.root} is full: "
    )


def test_a_past_that_is_not_collected_yet_is_progress_and_no_trouble(config, ledger):
    """A first start registers a source from its retention on, and collects the newest windows first: healthy for hours, it was late."""
    store(ledger, NOON - 900, NOON)
    with daemon(config):
        first = status(config, ledger, NOW)
        for n in range(20):
            store(ledger, NOON - 900 - (n + 1) * WINDOW, NOON - 900 - n * WINDOW, at=NOW + 2 * n)
        later = status(config, ledger, NOW + 40)
        ledger.failed("one", Window(MIDNIGHT, MIDNIGHT + 3600), "Malformed", "no number", 3, NOW + 99, NOW + 40)
        failed = status(config, ledger, NOW + 40)
    past = NOON - 900 - MIDNIGHT
    assert (first.health, first.sources[0].trouble, first.sources[0].gaps) == ("fine", "", Gaps(1, past, 0, past=past))
    assert first.sources[0].past_left is None
    left = past - 20 * WINDOW
    assert (later.health, later.sources[0].gaps.past) == ("fine", left)
    assert later.sources[0].past_left == pytest.approx(left / ((900 + 20 * WINDOW) / 40 - 1), abs=1)
    assert (failed.health, failed.sources[0].reason) == ("degraded", "1h00m are due and not stored")


def test_lost_spans_are_counted_separately_and_are_no_gaps(config, ledger):
    store(ledger, MIDNIGHT, NOON - 7200)
    ledger.lost("one", Window(NOON - 7200, NOON - 3600), "Expired", "older than the retention", NOON)
    store(ledger, NOON - 3600, NOON)
    with daemon(config):
        now = status(config, ledger, NOW)
    assert (now.health, now.sources[0].gaps, now.sources[0].watermark) == ("fine", Gaps(0, 0, 3600), NOON)


def test_the_newest_failure_is_the_last_error(config, ledger):
    store(ledger, MIDNIGHT, NOON - 240)
    ledger.failed("one", Window(NOON - 240, NOON - 180), "Transient", "the server is gone", 7, NOW + 60, NOW - 30)
    ledger.failed("one", Window(NOON - 180, NOON - 120), "Transient", "the server is back but slow", 1, NOW + 10, NOW - 5)
    with daemon(config):
        (line,) = status(config, ledger, NOW).sources
    assert (line.last_error, line.attempts) == ("the server is back but slow", 1)


@pytest.mark.parametrize(
    ("state", "trouble", "health"),
    [("running", "partial", "degraded"), ("stopped", "", "fine"), ("waiting", "waiting", "degraded"), ("fatal", "fatal", "degraded")],
)
def test_a_source_that_is_waiting_or_fatal_or_answers_in_part_makes_an_archive_degraded(config, ledger, state, trouble, health):
    store(ledger, MIDNIGHT, NOON)
    ledger.set_state("one", state, "no permission", NOON)
    with daemon(config):
        now = status(config, ledger, NOW)
    assert (now.health, now.sources[0].state, now.sources[0].trouble, now.sources[0].reason) == (health, state, trouble, "no permission")


def test_without_a_daemon_the_health_is_down(config, ledger):
    store(ledger, MIDNIGHT, NOON)
    now = status(config, ledger, NOW)
    assert (now.writer, now.health, now.sources[0].watermark) == (None, "down", NOON)


def test_without_a_ledger_every_source_is_new(config):
    now = status(config, None, NOW)
    assert (now.health, [(line.name, line.state, line.lag) for line in now.sources], now.files) == ("down", [("one", "new", None)], [])


def test_files_of_yesterday_today_and_tomorrow_are_listed_with_their_filled_share(config, ledger):
    store(ledger, MIDNIGHT - 86400, NOON)
    days = ["2018-01-27", "2018-01-28", "2018-01-29", "2018-01-30", "2018-01-31"]
    for day in days:
        path = config.archive.root / day / "fs.hdf5"
        path.parent.mkdir(parents=True)
        path.touch()
    shown = [(file.path.removeprefix(f"{config.archive.root}/"), file.system, file.filled) for file in status(config, ledger, NOW).files]
    assert shown == [("2018-01-28/fs.hdf5", "fs", 1.0), ("2018-01-29/fs.hdf5", "fs", 0.5), ("2018-01-30/fs.hdf5", "fs", 0.0)]


def test_a_backfill_is_shown_until_it_is_finished(config, ledger):
    jobs = ledger.jobs
    job = jobs.add(JobRequest("one", Window(NOON - 7200, NOON - 3600), force=True), NOON)
    jobs.collected(job, Window(NOON - 7200, NOON - 7000), 30, NOON)
    jobs.set_state(job, "running", NOON, "connection refused")
    assert status(config, ledger, NOW).jobs == [JobLine(1, "one", NOON - 7200, NOON - 3600, "running", 1, 30, 3400, "connection refused")]
    jobs.set_state(job, "done", NOON)
    assert status(config, ledger, NOW).jobs == []


def test_a_source_that_answers_without_records_is_empty_and_degraded_but_not_late(config, ledger):
    store(ledger, MIDNIGHT, NOON - 3600)
    ledger.empty("one", Window(NOON - 3600, NOON), "the source had no record of it", NOON)
    ledger.set_state("one", "empty", "up, but no record", NOON)
    with daemon(config):
        now = status(config, ledger, NOW)
    assert (now.health, troubled(now)) == ("degraded", {"empty": ["one"]})
    (line,) = now.sources
    assert (line.gaps, line.watermark, line.empty_windows, line.last_error) == (Gaps(0, 0, 0, 3600), NOON - 3600, 60, "")


def test_empty_windows_that_are_stored_because_the_silence_is_short_are_counted_and_not_degraded(config, ledger):
    store(ledger, MIDNIGHT, NOON - 300)
    for start in range(NOON - 300, NOON, WINDOW):
        meta = WindowMeta("one", "lmt", "fs", Window(start, start + WINDOW))
        ledger.store([StoredEntry(meta, 0, is_empty=True)], start + WINDOW)
    with daemon(config):
        now = status(config, ledger, NOW)
    assert (now.health, now.sources[0].empty_windows, now.sources[0].gaps) == ("fine", 5, Gaps(0, 0, 0))


def test_what_is_empty_and_older_than_the_retention_is_lost(config, ledger):
    store(ledger, MIDNIGHT, NOON)
    ledger.empty("one", Window(NOON, NOON + 7200), "the source had no record of it", NOON)
    line = status(config, ledger, NOON + 90 * 86400 + 3600 + SETTLE).sources[0]
    due = 90 * 86400 + 3600 - 3660
    assert (line.gaps, line.watermark) == (Gaps(1, due - 3540, 3660, 3540), NOON + 3660)


def touched(config, *names):
    for name in names:
        path = config.archive.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_of_a_source_that_was_registered_today_no_more_is_due_than_since_then(config, ledger):
    ledger.register(config.source[0], NOON - 3600)
    store(ledger, NOON - 1800, NOON)
    assert status(config, ledger, NOW).sources[0].today == Today(1800, 3600, 86400)
    # What a backfill stored of the time before it hides no gap.
    store(ledger, MIDNIGHT, MIDNIGHT + 7200)
    assert status(config, ledger, NOW).sources[0].today == Today(9000, 10800, 86400)


@pytest.fixture
def mixed(tmp_path):
    """Three systems: filled by two sources and a table, by a folder, and by a table alone."""
    jobs = {"kind": "lustre_jobstats", "servers": ["oss1"], "lctl": ["true"]}
    return configuration.load(
        configured(
            tmp_path,
            source("one", "collectd_es", url="http://127.0.0.1:9", index="i"),
            source("two", "lustre", mounts=["/mnt"]),
            source("jobs", **jobs),
            source("folder", "mmperfmon", "hs", watch="/nowhere"),
            source("other", system="js", **jobs),
        )
    )


def test_a_file_is_filled_by_the_polled_sources_that_have_datasets_in_it_and_otherwise_it_is_unknown(tmp_path, mixed):
    touched(mixed, "2018-01-29/fs.hdf5", "2018-01-29/hs.hdf5", "2018-01-29/js.hdf5")
    with ledger_of(tmp_path / "tokiod.toml") as ledger:
        for one, end in (("one", NOON), ("folder", NOON), ("jobs", NOON)):
            ledger.store([StoredEntry(WindowMeta(one, "lmt", "fs", Window(MIDNIGHT, end)), 1)], NOON)
        shown = {file.system: file.filled for file in status(mixed, ledger, NOW).files}
        assert shown == {"fs": 0.25, "hs": None, "js": None}
        # Of one source, its file is measured over all sources of the system.
        one = status(mixed, ledger, NOW, only="one")
        assert ([line.name for line in one.sources], [(file.system, file.filled) for file in one.files]) == (["one"], [("fs", 0.25)])


def test_of_one_source_its_own_jobs_are_shown_and_without_a_choice_those_of_removed_sources_too(config, ledger):
    for name in ("one", "gone"):
        ledger.jobs.add(JobRequest(name, Window(NOON - 7200, NOON - 3600)), NOON)
    assert [job.source for job in status(config, ledger, NOW).jobs] == ["one", "gone"]
    assert [job.source for job in status(config, ledger, NOW, only="one").jobs] == ["one"]


def test_what_a_source_stored_for_another_system_is_not_shown_of_its_present_one(tmp_path):
    with ledger_of(configured(tmp_path, source())) as ledger:
        ledger.register(configuration.load(tmp_path / "tokiod.toml").source[0], MIDNIGHT)
        store(ledger, MIDNIGHT, NOON)
        ledger.lost("one", Window(MIDNIGHT - 60, MIDNIGHT), "Retention", "gone", NOON)
        config = configuration.load(configured(tmp_path, source(system="gs")))
        touched(config, "2018-01-29/gs.hdf5")
        now = status(config, ledger, NOW)
        assert (now.sources, [file.filled for file in now.files]) == ([SourceLine("one", "lmt", "gs")], [0.0])
        (day,) = days(config.source, ledger, config.calendar, Window(MIDNIGHT, NOON), NOW)
        assert (day.system, day.stored, day.due, day.lost) == ("gs", 0, 0, 0)
