"""Backfill with a real ledger, sources and a writer that a test scripts, and a clock that moves hours in milliseconds."""

import asyncio
import random
import sqlite3

import numpy as np
import pytest
from structlog.testing import capture_logs

from tokiod.batch import Batch
from tokiod.collector import SourceConfig
from tokiod.errors import Fatal, NotYet, Refusal, Transient
from tokiod.ledger.database import BUSY_SECONDS, SQLITE, Sqlite
from tokiod.ledger.jobs import JobRequest
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.polling.backfill import ENDED, KEPT, LEFT_OUT, MAX_FAULTS, Backfill
from tokiod.polling.silence import EMPTY_IN_BACKFILL
from tokiod.testing.clock import FakeClock
from tokiod.window import BULK_SECONDS, Calendar, Window, iso
from tokiod.window_data import WindowData, WindowMeta
from tokiod.window_result import Stored

NOON = 1_517_126_400 + 12 * 3600
HOUR, STEP = 3600, 60
A, B = "datatargets/readbytes", "dataservers/cpuload"
SPAN = Window(NOON - 2 * HOUR, NOON - HOUR)


class Config(SourceConfig, frozen=True):
    wanted: frozenset[str] = frozenset({A, B})

    @property
    def step(self):
        return STEP

    def datasets(self):
        return self.wanted


class Source:
    """One of a job's collectors: a counter and a gauge; `site.behave(window)` may raise."""

    step, replayable, needs_sample_at_end = STEP, True, True

    def __init__(self, site):
        self.site, self.closed = site, False

    async def collect(self, window):
        assert not self.closed
        self.site.asked.append(window)
        self.site.running += 1
        self.site.most = max(self.site.most, self.site.running)
        try:
            await self.site.clock.sleep(1)
            self.site.behave(window)
            if self.site.lease.is_silent:
                return WindowData([], 0)
            time = np.arange(window.start, window.end, STEP)
            zero = np.zeros(len(time), np.uint32)
            counter = Batch(A, "counter", STEP, ("OST0000",), time, zero, time)
            gauge = Batch(B, "gauge", STEP, ("oss0",), time, zero, time.astype(float))
            return WindowData([counter, gauge], window.seconds // STEP)
        finally:
            self.site.running -= 1

    async def close(self):
        self.closed = True


class Lease:
    """The leases that live polling grants."""

    def __init__(self):
        self.due, self.is_silent, self.leased, self.acquired, self.released = False, False, set(), [], []

    def live_is_due(self):
        return self.due

    def acquire(self, window):
        if any(other.start < window.end and window.start < other.end for other in self.leased):
            return False
        self.acquired.append(window)
        return True

    def release(self, window, *, stored):
        self.released.append((window, stored))

    def doubts(self, collected):
        return collected.is_empty and self.is_silent


class Site:
    def __init__(self, directory, window=60, sqlite=SQLITE):
        self.clock = FakeClock(NOON)
        self.ledger = Ledger.open(directory / "ledger.sqlite3", sqlite=sqlite)
        self.writers = Ledger.open(self.ledger.path)
        self.jobs = self.ledger.jobs
        self.lease = Lease()
        self.asked, self.collectors, self.stored, self.running, self.most = [], [], [], 0, 0
        self.config = Config(name="one", kind="lmt", system="fs", window=window)
        self.behave = self.answer = lambda _: None

    def make(self, _config):
        self.collectors.append(Source(self))
        return self.collectors[-1]

    async def submit(self, collected):
        future = asyncio.get_running_loop().create_future()
        outcome = self.answer(collected)
        if outcome is None:
            entry = StoredEntry(WindowMeta("one", "lmt", "fs", collected.meta.window, extent=collected.meta.extent), 1)
            self.writers.store([entry], self.clock.time())
            self.stored.append(collected)
            outcome = Stored(1, {})
        future.set_result(outcome)
        return future

    def close(self):
        self.ledger.close()
        self.writers.close()

    def backfill(self):
        room, calendar, rng = asyncio.Semaphore(2), Calendar("UTC"), random.Random(1)
        return Backfill(self.config, self.make, self.lease, self.ledger, self.submit, room, calendar, self.clock, rng)

    def add(self, span=SPAN, datasets=(), **options):
        return self.jobs.add(JobRequest("one", span, datasets, **options), NOON)

    async def run(self, seconds, by=1):
        """Let the backfill run for so long, and end it."""
        task = asyncio.ensure_future(self.backfill().run())
        for _ in range(int(seconds / by)):
            await self.clock.advance(by)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def runs(self, seconds, **options):
        asyncio.run(self.run(seconds, **options))


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path)
    with capture_logs():
        yield site
    site.close()


def pieces(span, length=BULK_SECONDS):
    return [Window(start, min(start + length, span.end)) for start in range(span.start, span.end, length)]


N = len(pieces(SPAN))


def seams(span):
    return [Window(span.start - STEP, span.start), Window(span.end, span.end + STEP)]


def test_a_job_is_collected_oldest_first_in_long_windows_and_then_the_steps_at_its_seams(site):
    job = site.add()
    site.runs(60)
    assert site.asked == pieces(SPAN) + seams(SPAN)
    assert [one.meta.extent for one in site.stored] == ["whole"] * N + ["seam"] * 2
    assert [[batch.dataset for batch in one.batches] for one in site.stored[-2:]] == [[A], [A]]
    done = site.jobs.get(job.id)
    assert (done.state, done.windows, done.records, done.error) == ("done", N, HOUR // STEP, "")
    assert list(site.ledger.stored("one")) == [(SPAN.start, SPAN.end)]
    assert all(one.closed for one in site.collectors)


@pytest.mark.parametrize("options", [{}, {"force": True}, {"datasets": (A,)}])
def test_seams_without_a_sample_are_no_windows_of_the_job(site, options):
    site.lease.is_silent = True
    job = site.add(**options)
    site.runs(60)
    assert site.asked == pieces(SPAN) + seams(SPAN)
    assert (site.jobs.get(job.id).state, site.jobs.get(job.id).windows) == ("done", N)


@pytest.mark.parametrize(("known", "report"), [(HOUR, KEPT), (1, "")])
def test_a_job_reports_that_windows_stay_because_the_source_has_fewer_records(site, known, report):
    site.writers.store([StoredEntry(WindowMeta("one", "lmt", "fs", window, records=known), 1) for window in pieces(SPAN)], NOON)
    job = site.add(force=True)
    site.runs(60)
    done = site.jobs.get(job.id)
    assert (done.state, done.windows, done.error) == ("done", N, report)
    assert [one.meta.extent for one in site.stored] == ["whole"] * (0 if report else N) + ["seam"] * 2


def test_what_is_stored_is_not_asked_for_again(site):
    site.ledger.store([StoredEntry(WindowMeta("one", "lmt", "fs", Window(SPAN.start, SPAN.end - 720)), 1)], 0.0)
    site.add()
    site.runs(60)
    assert site.asked == pieces(Window(SPAN.end - 720, SPAN.end)) + seams(Window(SPAN.end - 720, SPAN.end))


def test_a_job_by_force_asks_for_all_of_it(site):
    site.ledger.store([StoredEntry(WindowMeta("one", "lmt", "fs", SPAN), 1)], 0.0)
    job = site.add(force=True)
    site.runs(60)
    assert site.asked[:N] == pieces(SPAN)
    assert site.jobs.get(job.id).state == "done"


def test_a_job_for_some_datasets_stores_these_alone_and_says_of_nothing_that_it_is_stored(site):
    job = site.add(datasets=(B,))
    site.runs(60)
    assert {batch.dataset for one in site.stored for batch in one.batches} == {B}
    assert [one.meta.extent for one in site.stored[:N]] == ["some"] * N
    assert list(site.ledger.stored("one")) == []
    assert site.jobs.get(job.id).state == "done"
    assert {stored for _, stored in site.lease.released} == {False}


@pytest.mark.parametrize("options", [{}, {"force": True}, {"datasets": (B,)}], ids=str)
@pytest.mark.parametrize("seconds", [1.5, 3.5, 7.5])
def test_ended_in_the_middle_it_is_resumed_and_no_window_is_asked_for_more_than_twice(site, options, seconds):
    site.add(**options)
    site.runs(seconds, by=0.5)
    first = list(site.asked)
    assert len(first) < N
    site.runs(80)
    assert [job.state for job in site.jobs.all()] == ["done"]
    whole = [window for window in site.asked if window.seconds > STEP]
    assert set(whole) >= set(pieces(SPAN)) - set(first)
    assert max(map(whole.count, whole)) <= 2
    assert len(whole) <= N + 1


def test_parallel_windows_are_collected_side_by_side_by_collectors_of_their_own(site):
    site.add(parallel=3)
    site.runs(60)
    assert site.most == 3
    assert len(site.collectors) == 3
    assert sorted(site.asked[:N]) == pieces(SPAN)


def test_while_live_polling_has_something_to_do_nothing_is_begun(site):
    site.lease.due = True
    site.add()
    site.runs(10)
    assert site.asked == []
    site.lease.due = False
    site.runs(60)
    assert len(site.asked) == N + 2


def test_a_window_that_live_polling_leases_is_waited_for(site):
    site.lease.leased = {Window(SPAN.start + 300, SPAN.start + 360)}
    site.add()
    site.runs(10)
    assert site.asked == pieces(SPAN)[:1]
    site.lease.leased.clear()
    site.runs(60)
    assert [window for window in site.asked if window.seconds > STEP] == pieces(SPAN)


def test_every_window_is_given_back_and_those_that_are_stored_as_stored(site):
    site.behave = lambda _: _raise(Transient("busy")) if len(site.asked) == 3 else None
    site.add()
    site.runs(120)
    assert [window for window, _ in site.lease.released] == site.lease.acquired == site.asked
    assert sorted(window for window, stored in site.lease.released if stored) == pieces(SPAN)


def _raise(error):
    raise error


def test_a_source_that_is_gone_for_a_while_is_asked_until_it_is_back_and_the_job_says_so(site):
    job = site.add()
    site.behave = lambda _: _raise(Transient("connection refused"))
    site.runs(20)
    waiting = site.jobs.get(job.id)
    assert (waiting.state, "connection refused" in waiting.error, site.stored) == ("running", True, [])
    site.behave = lambda _: None
    site.runs(2000, by=10)
    assert (site.jobs.get(job.id).state, site.jobs.get(job.id).error) == ("done", "")


def test_what_only_a_person_can_mend_ends_the_job_with_its_sentence(site):
    site.behave = lambda _: _raise(Fatal("no permission"))
    job = site.add()
    site.runs(10)
    assert (site.jobs.get(job.id).state, len(site.asked)) == ("failed", 1)
    assert "no permission" in site.jobs.get(job.id).error
    assert str(pieces(SPAN)[0]) in site.jobs.get(job.id).error


def test_a_window_that_is_too_large_is_collected_in_the_windows_of_the_source(site):
    refused = Refusal("a window of 600 MiB or more, the limit is 512 MiB", "never")
    site.answer = lambda collected: refused if collected.meta.window.seconds > STEP else None
    job = site.add()
    site.runs(300)
    assert site.jobs.get(job.id).state == "done"
    singly = [Window(start, start + STEP) for start in range(SPAN.start, SPAN.end, STEP)]
    assert [one.meta.window for one in site.stored if one.meta.is_whole] == singly
    assert [window for window, _ in site.lease.released] == site.lease.acquired


def test_a_fault_in_a_collector_ends_the_job_after_some_attempts(site):
    site.behave = lambda _: _raise(KeyError("oops"))
    job = site.add()
    site.runs(4000, by=20)
    assert (site.jobs.get(job.id).state, len(site.asked)) == ("failed", MAX_FAULTS)


@pytest.mark.parametrize(("retry", "state"), [(True, "running"), (False, "failed")])
def test_a_window_that_the_writer_refuses_is_asked_for_again_only_where_that_can_help(site, retry, state):
    site.answer = lambda _: Refusal("the disk is full", "retry" if retry else "never")
    job = site.add()
    site.runs(10)
    assert site.jobs.get(job.id).state == state
    assert "the disk is full" in site.jobs.get(job.id).error


def test_a_cancelled_job_stops_and_the_next_one_begins(site):
    first, second = site.add(parallel=2), site.add(Window(NOON - HOUR, NOON - HOUR + 600))

    async def scenario():
        task = asyncio.ensure_future(site.backfill().run())
        for _ in range(3):
            await site.clock.advance(1)
        site.jobs.set_state(first, "cancelled", NOON)
        for _ in range(30):
            await site.clock.advance(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
    assert [job.state for job in site.jobs.all()] == ["cancelled", "done"]
    assert site.jobs.get(second.id).windows == len(pieces(Window(0, 600)))
    assert not set(pieces(SPAN)[-4:]) & set(site.asked)


def test_by_force_a_window_of_which_the_source_has_lost_records_replaces_nothing(site):
    first = pieces(SPAN)[0]
    site.ledger.store([StoredEntry(WindowMeta("one", "lmt", "fs", first, records=BULK_SECONDS // STEP + 1), 1)], 0.0)
    job = site.add(force=True)
    site.runs(60)
    assert site.jobs.get(job.id).state == "done"
    assert [one.meta.window for one in site.stored if one.meta.is_whole] == pieces(SPAN)[1:]


def test_what_is_no_longer_stored_is_collected_also_where_the_source_has_lost_records(site):
    for piece in pieces(SPAN):
        site.writers.store([StoredEntry(WindowMeta("one", "lmt", "fs", piece, records=piece.seconds // STEP + 1), 1)], 0.0)
    site.writers.forget("fs", Window(SPAN.start, SPAN.end), 0.0)
    job = site.add()
    site.runs(60)
    assert (site.jobs.get(job.id).state, site.jobs.get(job.id).error) == ("done", "")
    assert [one.meta.window for one in site.stored if one.meta.is_whole] == pieces(SPAN)


def test_windows_without_records_of_a_silent_source_are_recorded_as_empty_but_those_that_are_stored(site):
    site.lease.is_silent = True
    known = pieces(SPAN)[1]
    site.ledger.store([StoredEntry(WindowMeta("one", "lmt", "fs", known), 1)], 0.0)
    job = site.add(force=True)
    site.runs(60)
    found = [(one.window, one.state, one.error) for one in site.ledger.unstored("one")]
    assert site.jobs.get(job.id).state == "done"
    assert found == [(Window(*hole), "empty", EMPTY_IN_BACKFILL) for hole in ((SPAN.start, known.start), (known.end, SPAN.end))]
    assert list(site.ledger.stored("one")) == [(known.start, known.end)]


def test_a_seam_that_is_still_to_come_is_kept_until_it_is_collected(site):
    site.behave = lambda window: _raise(NotYet("not there")) if window.seconds == STEP else None
    job = site.add()
    site.runs(60)
    waiting = site.jobs.get(job.id)
    assert (waiting.state, waiting.error) == ("running", f"{seams(SPAN)[0]}: not there")
    assert site.jobs.seams(job) == seams(SPAN)
    site.behave = lambda _: None
    site.runs(120)
    assert (site.jobs.get(job.id).state, site.jobs.get(job.id).error) == ("done", "")
    assert [one.meta.window for one in site.stored if one.meta.extent == "seam"] == seams(SPAN)


@pytest.mark.parametrize("refused", [0, 1])
def test_a_seam_that_the_writer_refuses_for_good_stops_no_other_and_is_named(site, refused):
    left_out, kept = seams(SPAN)[refused], seams(SPAN)[1 - refused]
    site.answer = lambda collected: Refusal("rows are 5 s apart", "never") if collected.meta.window == left_out else None
    job = site.add()
    site.runs(60)
    report = LEFT_OUT.format(left_out, "the writer refused it: rows are 5 s apart")
    assert (site.jobs.get(job.id).state, site.jobs.get(job.id).error) == ("done", report)
    assert [one.meta.window for one in site.stored if one.meta.extent == "seam"] == [kept]


def ends_at(end):
    return lambda window: _raise(NotYet("it has stopped", end)) if window.end > end else None


@pytest.mark.parametrize("options", [{}, {"force": True}, {"datasets": (B,)}, {"parallel": 3}], ids=str)
@pytest.mark.parametrize("end", [SPAN.start + 1000, SPAN.start + 1440, SPAN.start + STEP, SPAN.end - STEP, SPAN.start, SPAN.start - 5000])
def test_where_the_source_ends_before_the_job_all_before_is_stored_and_the_rest_is_named(site, end, options):
    site.behave = ends_at(end)
    job = site.add(**options)
    site.runs(60)
    report = ENDED.format(iso(end), Window(max(end, SPAN.start), SPAN.end), "it has stopped")
    assert (site.jobs.get(job.id).state, site.jobs.get(job.id).error) == ("done", report)
    found = sorted(one.meta.window for one in site.stored if one.meta.extent != "seam")
    assert found == (pieces(Window(SPAN.start, end)) if end > SPAN.start else [])
    before = [SPAN.start - STEP] if end >= SPAN.start else []
    assert [one.meta.window.start for one in site.stored if one.meta.extent == "seam"] == before


def test_a_job_of_a_source_that_is_down_ends_where_it_has_nothing_from_then_on(site):
    site.behave = lambda _: _raise(Transient("no agent", SPAN.start))
    job = site.add()
    site.runs(60)
    assert (site.jobs.get(job.id).state, site.jobs.get(job.id).error) == ("done", ENDED.format(iso(SPAN.start), SPAN, "no agent"))
    assert site.stored == []


def test_a_source_that_ends_within_the_step_after_the_job_closes_its_last_row(site):
    site.behave = ends_at(SPAN.end + STEP)
    job = site.add()
    site.runs(60)
    assert (site.jobs.get(job.id).state, site.jobs.get(job.id).error) == ("done", "")
    assert [one.meta.window for one in site.stored if one.meta.extent == "seam"] == seams(SPAN)


def test_what_a_source_that_lags_has_of_a_long_window_is_stored_at_once(site):
    reached = SPAN.start + BULK_SECONDS + STEP
    site.behave = lambda window: _raise(NotYet("lags")) if window.end > reached else None
    job = site.add()
    site.runs(60)
    assert site.jobs.get(job.id).state == "running"
    assert list(site.ledger.stored("one")) == [(SPAN.start, reached)]
    site.behave = lambda _: None
    site.runs(120)
    assert list(site.ledger.stored("one")) == [(SPAN.start, SPAN.end)]


def test_windows_longer_than_the_longest_are_those_of_the_source(tmp_path):
    site = Site(tmp_path, window=1800)
    site.add()
    with capture_logs():
        site.runs(60)
    assert site.asked[:2] == pieces(SPAN, 1800)
    site.close()


def test_a_ledger_that_can_not_be_read_is_said_once_in_a_while_and_asked_again(tmp_path):
    site = Site(tmp_path)
    job = site.add()
    site.ledger._database.sql.execute("ALTER TABLE job RENAME state TO hidden")
    with capture_logs() as logs:
        site.runs(20)
    assert [(log["event"], log["error"]) for log in logs] == [("ledger.failed", "no such column: state")]
    site.ledger._database.sql.execute("ALTER TABLE job RENAME hidden TO state")
    with capture_logs():
        site.runs(60)
    assert site.jobs.get(job.id).state == "done"
    site.close()


class FailingSqlite(Sqlite):
    """Connections of which one statement fails, counted from when `left` is set, as on a disk that fails once."""

    left = None

    def connect(self, uri):
        failing = self

        class Connection(sqlite3.Connection):
            def execute(self, *args):
                failing.executed(args[0])
                return super().execute(*args)

            def executemany(self, *args):
                failing.executed(args[0])
                return super().executemany(*args)

        return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, factory=Connection)

    def executed(self, statement):
        # SQLite rolls a transaction back by itself where it can't.
        if self.left is None or statement == "ROLLBACK":
            return
        self.left -= 1
        if self.left == 0:
            raise sqlite3.OperationalError("disk I/O error")


@pytest.mark.parametrize("force", [False, True])
def test_whichever_statement_of_the_ledger_fails_once_the_job_is_done_in_the_end(tmp_path, force):
    """Nothing else would collect late records again: a recount asks for them with one job."""
    number, reached = int(force), True
    while reached:
        number += 2
        sqlite = FailingSqlite()
        site = Site(tmp_path / str(number), sqlite=sqlite)
        job = site.add(force=force)
        sqlite.left = number
        with capture_logs() as logs:
            site.runs(60, by=2)
        reached, sqlite.left = sqlite.left <= 0, None
        assert site.jobs.get(job.id).state == "done", (number, logs)
        assert [*site.ledger.stored("one")] == [(SPAN.start, SPAN.end)]
        assert {log["event"] for log in logs if log["log_level"] in {"warning", "error"}} == ({"ledger.failed"} if reached else set()), logs
        site.close()
    assert number > 20


def test_an_error_of_sqlite_in_a_collector_is_one_of_the_collector(site):
    def behave(_):
        raise sqlite3.OperationalError("no such table")

    site.behave = behave
    job = site.add()
    site.runs(3000, by=20)
    assert (site.jobs.get(job.id).state, len(site.asked)) == ("failed", MAX_FAULTS)


@pytest.mark.parametrize("seconds", [6.5, 7.5, 8.5, 9.5, 10.5, 11.5, 12.5])
def test_ended_before_its_seams_it_collects_them_when_it_is_resumed(site, seconds):
    site.add()
    site.runs(seconds, by=0.5)
    site.runs(80)
    assert [job.state for job in site.jobs.all()] == ["done"]
    assert set(seams(SPAN)) <= set(site.asked)


def test_the_windows_of_years_are_not_made_at_once(site, monkeypatch):
    made = []
    real = site.backfill

    def counting():
        backfill = real()
        split = backfill._calendar.split

        def count(span, length):
            for window in split(span, length):
                made.append(window)
                yield window

        backfill._calendar.split = count
        return backfill

    monkeypatch.setattr(site, "backfill", counting)
    site.add(Window(SPAN.start - 5 * 365 * 86400, SPAN.end))
    site.runs(10)
    assert 0 < len(made) <= len(site.asked) + 1
