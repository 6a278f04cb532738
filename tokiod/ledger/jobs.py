"""Backfill jobs in the ledger: what was asked for, how far it is, what became of it. Whoever asks and whoever works share nothing else.

job          one row per `tokioctl backfill`
backfilled   what a job has done, where the ledger's own ranges can't tell: jobs that ask again, or for some datasets only
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tokiod.ranges import Ranges
from tokiod.window import Window

if TYPE_CHECKING:
    from tokiod.ledger.ledger import Ledger

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
UNFINISHED = ("queued", "running")


_SAME = """SELECT id FROM job WHERE source = ? AND start = ? AND "end" = ? AND datasets = ? AND force = ?
    AND state IN ('queued', 'running')"""
_INSERT = """INSERT INTO job (source, start, "end", datasets, force, parallel, created, updated) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""


class Wanted(msgspec.Struct, frozen=True):
    """What to backfill: see Job."""

    source: str
    span: Window
    datasets: tuple[str, ...] = ()
    force: bool = False
    parallel: int = 1


class Job(msgspec.Struct, frozen=True):
    """One backfill of [start, end), UTC epoch seconds.

    datasets: none for all; force: ask also for what is stored; parallel: windows collected side by side.
    windows, records: collected so far, records where the source tells; error: the last one. created, updated: epoch seconds.
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
        """What is to be filled."""
        return Window(self.start, self.end)

    @property
    def partial(self) -> bool:
        """Whether only some datasets are asked for: then nothing is said to be stored of the source."""
        return bool(self.datasets)

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state not in UNFINISHED


class Jobs:
    """The jobs of a ledger. Any process may add and cancel; only who works on a job says how far it is. Raises sqlite3.Error."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def add(self, wanted: Wanted, now: float) -> Job:
        """Add a job, or return the unfinished one that asks for the same."""
        same = (wanted.source, wanted.span.start, wanted.span.end, msgspec.json.encode(sorted(wanted.datasets)).decode(), wanted.force)
        with self._ledger.transaction() as sql:
            row = sql.execute(_SAME, same).fetchone()
            number = int(row[0] if row else sql.execute(_INSERT, (*same, wanted.parallel, now, now)).lastrowid or 0)
            sql.execute("UPDATE job SET parallel = ? WHERE id = ?", (wanted.parallel, number))
        job = self.get(number)
        assert job is not None  # noqa: S101 - just written
        return job

    def get(self, number: int) -> Job | None:
        """Return a job by its number."""
        return next(iter(self._select("WHERE id = ?", (number,))), None)

    def all(self) -> list[Job]:
        """Return all jobs, oldest first."""
        return self._select("ORDER BY id")

    def unfinished(self, source: str) -> list[Job]:
        """Return the jobs of a source that are to be worked on, oldest first."""
        return self._select("WHERE source = ? AND state IN ('queued', 'running') ORDER BY id", (source,))

    def set_state(self, job: Job, state: JobState, now: float, error: str = "") -> None:
        """Say how an unfinished job does; one that was cancelled meanwhile stays so."""
        with self._ledger.transaction() as sql:
            sql.execute(
                "UPDATE job SET state = ?, error = ?, updated = ? WHERE id = ? AND state IN ('queued', 'running')",
                (state, error, now, job.id),
            )

    def collected(self, job: Job, window: Window, records: int, now: float) -> None:
        """Say that a window is stored for a job."""
        with self._ledger.transaction() as sql:
            sql.execute(
                "UPDATE job SET windows = windows + 1, records = records + ?, error = '', updated = ? WHERE id = ?", (records, now, job.id)
            )
            if job.force or job.partial:
                done = Ranges([*sql.execute('SELECT start, "end" FROM backfilled WHERE job = ? ORDER BY start', (job.id,))])
                done.add(window.start, window.end)
                sql.execute("DELETE FROM backfilled WHERE job = ?", (job.id,))
                sql.executemany("INSERT INTO backfilled VALUES (?, ?, ?)", [(job.id, *pair) for pair in done])

    def rest(self, job: Job) -> list[Window]:
        """Return what is still to be collected for a job, oldest first."""
        if not (job.force or job.partial):
            return self._ledger.stored(job.source).holes(job.start, job.end)
        rows = self._ledger.sql.execute('SELECT start, "end" FROM backfilled WHERE job = ? ORDER BY start', (job.id,))
        return Ranges(rows).holes(job.start, job.end)

    def _select(self, condition: str, values: tuple[Any, ...] = ()) -> list[Job]:
        try:
            cursor = self._ledger.sql.execute(f"SELECT * FROM job {condition}", values)  # noqa: S608 - our own words
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):  # an older ledger that nobody has written since; a reader can't make tables
                return []
            raise
        names = [column[0] for column in cursor.description]
        return [_job(**dict(zip(names, row, strict=True))) for row in cursor]


def _job(*, datasets: str, force: int, **rest: Any) -> Job:
    return Job(datasets=tuple(msgspec.json.decode(datasets)), force=bool(force), **rest)
