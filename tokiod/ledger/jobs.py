"""Backfill jobs in the ledger: what was requested, its progress, its outcome. Commands and the collectors share nothing else.

job          one row per `tokioctl backfill`
backfilled   what a job has collected, for jobs that collect again or only some datasets: the stored spans don't show their progress
seam         the steps at the edges of what a job was to fill when it began, until they are collected
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tokiod.ledger import spans
from tokiod.ranges import Ranges
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokiod.ledger.database import Database

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
UNFINISHED = ("queued", "running")
MAX_FINISHED = 200
"""Finished jobs of a source that are kept: recounts add up to one a minute."""


_SAME = """SELECT id FROM job WHERE source = ? AND start = ? AND "end" = ? AND datasets = ? AND force = ?
    AND state IN ('queued', 'running')"""
# What a job with force has collected may have been corrected since.
_NOT_BEGUN = "AND (force = 0 OR (state = 'queued' AND id NOT IN (SELECT job FROM backfilled)))"
_INSERT = """INSERT INTO job (source, start, "end", datasets, force, parallel, created, updated) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""


class JobRequest(msgspec.Struct, frozen=True):
    """What to backfill: see Job."""

    source: str
    span: Window
    datasets: tuple[str, ...] = ()
    force: bool = False
    parallel: int = 1


class Job(msgspec.Struct, frozen=True):
    """One backfill of [start, end), UTC epoch seconds.

    datasets: empty for all; force: collect stored windows too; parallel: windows collected at the same time.
    windows, records: collected so far, records where the source counts them; error: the last one. created, updated: epoch seconds.
    """

    id: int
    source: str
    start: int
    end: int
    datasets: tuple[str, ...]
    force: bool
    parallel: int
    created: float
    state: JobState
    error: str
    windows: int
    records: int
    updated: float

    @property
    def span(self) -> Window:
        """The span to fill."""
        return Window(self.start, self.end)

    @property
    def partial(self) -> bool:
        """Whether the job is for some datasets only: then its windows do not count as stored."""
        return bool(self.datasets)

    @property
    def begins_anew(self) -> bool:
        """Whether the same request, after the job failed or was cancelled, collects all of its windows again."""
        return self.force or self.partial

    @property
    def finished(self) -> bool:
        """Whether the job is done, failed or cancelled."""
        return self.state not in UNFINISHED


class Jobs:
    """The jobs of a ledger. Any process may add and cancel; the process that works on a job sets its progress. Raises LedgerError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, request: JobRequest, now: float) -> Job:
        """Add a job, or return the unfinished one for the same request; with force only one that has not begun."""
        same = _columns(request)
        with self._database.transaction() as sql:
            row = sql.execute(f"{_SAME} {_NOT_BEGUN}", same).fetchone()
            number = int(row[0] if row else sql.execute(_INSERT, (*same, request.parallel, now, now)).lastrowid or 0)
            sql.execute("UPDATE job SET parallel = ? WHERE id = ?", (request.parallel, number))
        job = self.get(number)
        assert job is not None  # noqa: S101 - just written
        return job

    def resumable(self, request: JobRequest) -> Job | None:
        """Return the oldest unfinished job for the same request, begun or not."""
        row = self._database.sql.execute(f"{_SAME} ORDER BY id", _columns(request)).fetchone()
        return self.get(int(row[0])) if row else None

    def get(self, number: int) -> Job | None:
        """Return a job by its number."""
        return next(iter(self._select("WHERE id = ?", (number,))), None)

    def all(self) -> list[Job]:
        """Return all jobs, oldest first."""
        return self._select("ORDER BY id")

    def unfinished(self, source: str) -> list[Job]:
        """Return the queued and running jobs of a source, oldest first."""
        return self._select("WHERE source = ? AND state IN ('queued', 'running') ORDER BY id", (source,))

    def set_state(self, job: Job, state: JobState, now: float, error: str = "") -> None:
        """Set the state of an unfinished job; one that was cancelled meanwhile stays cancelled."""
        with self._database.transaction() as sql:
            sql.execute(
                "UPDATE job SET state = ?, error = ?, updated = ? WHERE id = ? AND state IN ('queued', 'running')",
                (state, error, now, job.id),
            )
            if state not in UNFINISHED:
                _prune(sql, job)

    def start(self, job: Job, seams: Iterable[Window], now: float) -> None:
        """Set an unfinished job running, and record seams that it is to collect in addition to those of its earlier starts."""
        with self._database.transaction() as sql:
            if _is_unfinished(sql, job):
                sql.executemany("INSERT OR REPLACE INTO seam VALUES (?, ?, ?)", [(job.id, seam.start, seam.end) for seam in seams])
            sql.execute(
                "UPDATE job SET state = 'running', error = '', updated = ? WHERE id = ? AND state IN ('queued', 'running')", (now, job.id)
            )

    def seams(self, job: Job) -> list[Window]:
        """Return the seams of a job that are still to be collected, oldest first."""
        query = 'SELECT start, "end" FROM seam WHERE job = ? ORDER BY start'
        return [Window(*edges) for edges in self._database.sql.execute(query, (job.id,))]

    def seam_collected(self, job: Job, seam: Window) -> None:
        """Record that a seam needs no other attempt."""
        with self._database.transaction() as sql:
            sql.execute("DELETE FROM seam WHERE job = ? AND start = ?", (job.id, seam.start))

    def collected(self, job: Job, window: Window, records: int, now: float) -> None:
        """Record that a window is stored for a job."""
        with self._database.transaction() as sql:
            sql.execute(
                "UPDATE job SET windows = windows + 1, records = records + ?, error = '', updated = ? WHERE id = ?", (records, now, job.id)
            )
            # The rows of a job that was cancelled meanwhile are deleted, and nothing would delete another one.
            if job.begins_anew and _is_unfinished(sql, job):
                done = self._backfilled(job)
                done.add(window.start, window.end)
                sql.execute("DELETE FROM backfilled WHERE job = ?", (job.id,))
                sql.executemany("INSERT INTO backfilled VALUES (?, ?, ?)", [(job.id, *pair) for pair in done])

    def remaining(self, job: Job) -> list[Window]:
        """Return what is still to be collected for a job, oldest first."""
        if not job.begins_anew or (job.state == "done" and not job.partial):
            return spans.stored(self._database.sql, job.source).holes(job.start, job.end)
        # What a finished job has collected is deleted.
        return [] if job.state == "done" else self._backfilled(job).holes(job.start, job.end)

    def _backfilled(self, job: Job) -> Ranges:
        return Ranges(self._database.sql.execute('SELECT start, "end" FROM backfilled WHERE job = ? ORDER BY start', (job.id,)))

    def _select(self, condition: str, values: tuple[Any, ...] = ()) -> list[Job]:
        try:
            cursor = self._database.sql.execute(f"SELECT * FROM job {condition}", values)  # noqa: S608 - our own words
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):  # an older ledger, to which a reader can't add tables
                return []
            raise
        names = [column[0] for column in cursor.description]
        return [_job(**dict(zip(names, row, strict=True))) for row in cursor]


def _columns(request: JobRequest) -> tuple[str, int, int, str, bool]:
    """Return what makes two requests the same."""
    datasets = msgspec.json.encode(sorted(request.datasets)).decode()
    return request.source, request.span.start, request.span.end, datasets, request.force


def _is_unfinished(sql: sqlite3.Connection, job: Job) -> bool:
    return sql.execute("SELECT 1 FROM job WHERE id = ? AND state IN ('queued', 'running')", (job.id,)).fetchone() is not None


def _prune(sql: sqlite3.Connection, job: Job) -> None:
    """Delete what a finished job no longer needs, and the oldest finished jobs of its source."""
    finished = "SELECT id FROM job WHERE source = ? AND state NOT IN ('queued', 'running') ORDER BY id DESC LIMIT -1 OFFSET ?"
    sql.execute(f"DELETE FROM job WHERE id IN ({finished})", (job.source, MAX_FINISHED))  # noqa: S608 - our own words
    for table in ("backfilled", "seam"):
        sql.execute(f"DELETE FROM {table} WHERE job = ?", (job.id,))  # noqa: S608


def _job(*, datasets: str, force: int, **rest: Any) -> Job:
    return Job(datasets=tuple(msgspec.json.decode(datasets)), force=bool(force), **rest)
