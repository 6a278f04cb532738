"""Backfill jobs in a real ledger: no request is forgotten, and what remains follows from what is recorded."""

import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.ledger.jobs import MAX_FINISHED, JobRequest
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.window import Window
from tokiod.window_data import WindowMeta

SPAN = Window(1000, 2000)


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "ledger.sqlite3") as ledger:
        yield ledger


def stored(ledger, start, end, *, partial=False):
    ledger.store([StoredEntry(WindowMeta("one", "lmt", "fs", Window(start, end), extent="some" if partial else "whole"), 5)], 0.0)


def test_every_process_reads_a_job_that_was_added(ledger):
    job = ledger.jobs.add(JobRequest("one", SPAN, ("a/b", "c/d"), force=True, parallel=3), 7.0)
    with Ledger.open_readonly(ledger.path) as other:
        assert other.jobs.all() == [job]
    assert (job.span, job.datasets, job.force, job.partial, job.parallel, job.state) == (SPAN, ("a/b", "c/d"), True, True, 3, "queued")
    assert (job.windows, job.records, job.created, job.updated, job.error, job.finished) == (0, 0, 7.0, 7.0, "", False)


def test_the_same_request_joins_the_unfinished_job_and_may_change_how_many_windows_are_parallel(ledger):
    jobs = ledger.jobs
    first = jobs.add(JobRequest("one", SPAN, ("a/b", "c/d")), 0.0)
    assert jobs.add(JobRequest("one", SPAN, ("c/d", "a/b"), parallel=4), 1.0).id == first.id
    assert [job.parallel for job in jobs.all()] == [4]
    others = [JobRequest("two", SPAN, ("a/b", "c/d")), JobRequest("one", SPAN), JobRequest("one", SPAN, ("a/b", "c/d"), force=True)]
    assert len({jobs.add(other, 1.0).id for other in others} | {first.id}) == 4
    jobs.set_state(first, "done", 2.0)
    assert jobs.add(JobRequest("one", SPAN, ("a/b", "c/d")), 3.0).id > first.id


@pytest.mark.parametrize("begun", ["running", "partly collected"])
def test_a_request_with_force_joins_no_job_that_has_begun(ledger, begun):
    """Found by the simulation, seed 310024671: what the unfinished job had collected was corrected, and not collected again."""
    jobs, request = ledger.jobs, JobRequest("one", SPAN, force=True)
    first = jobs.add(request, 0.0)
    assert jobs.add(request, 1.0).id == first.id
    if begun == "running":
        jobs.start(first, [], 2.0)
    else:
        jobs.collected(first, Window(1000, 1500), 1, 2.0)
    second = jobs.add(request, 3.0)
    assert second.id > first.id
    assert jobs.remaining(second) == [SPAN]
    assert jobs.add(request, 4.0).id == second.id
    assert jobs.resumable(request).id == first.id
    jobs.set_state(first, "done", 5.0)
    assert jobs.resumable(request).id == second.id


def test_a_request_without_force_joins_a_job_that_has_begun(ledger):
    jobs, request = ledger.jobs, JobRequest("one", SPAN, ("a/b",))
    assert jobs.resumable(request) is None
    first = jobs.add(request, 0.0)
    jobs.start(first, [], 1.0)
    jobs.collected(first, Window(1000, 1500), 1, 2.0)
    assert jobs.add(request, 3.0).id == jobs.resumable(request).id == first.id


def test_the_unfinished_jobs_of_a_source_come_in_their_order_and_a_cancelled_one_stays_cancelled(ledger):
    jobs = ledger.jobs
    ids = [jobs.add(JobRequest("one", Window(start, start + 10)), 0.0).id for start in (500, 100, 300)]
    jobs.add(JobRequest("two", SPAN), 0.0)
    jobs.set_state(jobs.get(ids[0]), "running", 1.0)
    jobs.set_state(jobs.get(ids[1]), "cancelled", 1.0)
    jobs.set_state(jobs.get(ids[1]), "done", 2.0)
    assert [job.id for job in jobs.unfinished("one")] == [ids[0], ids[2]]
    assert jobs.get(ids[1]).state == "cancelled"
    assert jobs.get(99) is None


def test_what_is_not_stored_remains_of_a_plain_job(ledger):
    jobs = ledger.jobs
    job = jobs.add(JobRequest("one", SPAN), 0.0)
    stored(ledger, 900, 1100)
    stored(ledger, 1500, 1600)
    stored(ledger, 1700, 1800, partial=True)
    assert jobs.remaining(job) == [Window(1100, 1500), Window(1600, 2000)]


@pytest.mark.parametrize("options", [{"force": True}, {"datasets": ("a/b",)}])
def test_what_it_has_not_collected_itself_remains_of_a_job_that_collects_again(ledger, options):
    jobs = ledger.jobs
    job = jobs.add(JobRequest("one", SPAN, **options), 0.0)
    stored(ledger, 900, 2100)
    assert jobs.remaining(job) == [SPAN]
    for window in (Window(1000, 1100), Window(1200, 1300), Window(1100, 1200)):
        jobs.collected(job, window, 10, 5.0)
    assert jobs.remaining(job) == [Window(1300, 2000)]
    assert (jobs.get(job.id).windows, jobs.get(job.id).records, jobs.get(job.id).updated) == (3, 30, 5.0)
    jobs.set_state(job, "done", 6.0)
    assert jobs.remaining(jobs.get(job.id)) == []


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(1, 5)), max_size=12))
def test_what_no_window_covers_remains(pieces):
    with tempfile.TemporaryDirectory() as directory, Ledger.open(Path(directory) / "ledger.sqlite3") as ledger:
        jobs = ledger.jobs
        job = jobs.add(JobRequest("one", Window(0, 20), force=True), 0.0)
        covered = set()
        for start, length in pieces:
            jobs.collected(job, Window(start, start + length), 0, 0.0)
            covered |= set(range(start, start + length))
        assert {s for window in jobs.remaining(job) for s in range(window.start, window.end)} == set(range(20)) - covered


def test_an_older_ledger_gets_the_tables_that_it_lacks_and_keeps_what_it_holds(tmp_path):
    path = tmp_path / "ledger.sqlite3"
    with Ledger.open(path) as ledger:
        stored(ledger, 1000, 2000)
    with sqlite3.connect(path) as old:
        old.executescript("DROP TABLE job; DROP TABLE backfilled; PRAGMA user_version = 8;")
    old.close()
    with Ledger.open_readonly(path) as ledger:
        assert (list(ledger.stored("one")), ledger.jobs.all()) == ([(1000, 2000)], [])
    with Ledger.open(path) as ledger:
        assert list(ledger.stored("one")) == [(1000, 2000)]
        assert ledger.jobs.remaining(ledger.jobs.add(JobRequest("one", Window(500, 2000)), 0.0)) == [Window(500, 1000)]


def test_finished_jobs_are_pruned_and_unfinished_ones_and_those_of_other_sources_kept(ledger):
    jobs = ledger.jobs
    other = jobs.add(JobRequest("two", SPAN), 0.0)
    jobs.set_state(other, "done", 0.0)
    first = jobs.add(JobRequest("one", SPAN, force=True), 0.0)
    for start in range(MAX_FINISHED + 5):
        job = jobs.add(JobRequest("one", Window(start, start + 1), force=True), 0.0)
        jobs.start(job, [Window(start + 1, start + 2)], 0.0)
        jobs.collected(job, Window(start, start + 1), 1, 0.0)
        jobs.set_state(job, "done", 0.0)
    assert len(jobs.all()) == MAX_FINISHED + 2
    assert {other.id, first.id} < {job.id for job in jobs.all()}
    sql = ledger._database.sql
    assert [sql.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("backfilled", "seam")] == [0, 0]


def test_a_job_cancelled_while_a_window_of_it_is_collected_leaves_no_rows(ledger):
    """Found by the simulation: seed 2078100187."""
    jobs = ledger.jobs
    job = jobs.add(JobRequest("one", SPAN, force=True), 0.0)
    jobs.set_state(job, "cancelled", 1.0)
    jobs.start(job, [Window(990, 1000)], 2.0)
    jobs.collected(job, Window(1000, 1100), 1, 3.0)
    sql = ledger._database.sql
    assert [sql.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("backfilled", "seam")] == [0, 0]
    assert jobs.get(job.id).windows == 1


def test_unfinished_jobs_are_found_by_an_index(ledger):
    query = "EXPLAIN QUERY PLAN SELECT * FROM job WHERE source = ? AND state IN ('queued', 'running') ORDER BY id"
    (plan,) = [row[3] for row in ledger._database.sql.execute(query, ("one",)) if "job" in row[3]]
    assert "job_unfinished" in plan


def test_the_seams_of_the_first_start_stay_until_they_are_collected(ledger):
    jobs = ledger.jobs
    job = jobs.add(JobRequest("one", SPAN), 0.0)
    jobs.start(job, [Window(990, 1000), Window(2000, 2010)], 1.0)
    jobs.start(job, [Window(1490, 1500), Window(2000, 2010)], 2.0)
    assert jobs.seams(job) == [Window(990, 1000), Window(1490, 1500), Window(2000, 2010)]
    jobs.seam_collected(job, Window(990, 1000))
    assert jobs.seams(job) == [Window(1490, 1500), Window(2000, 2010)]
    assert jobs.get(job.id).state == "running"
