"""Output of `tokioctl backfill`: the list of jobs, the progress of one, its result."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Self

import click
import msgspec

from tokiod.archive.lock import lock_owner
from tokiod.cli.common.base import Failed
from tokiod.cli.common.lookup import configured_source
from tokiod.cli.common.output import echo, echo_json
from tokiod.cli.common.tables import show, table
from tokiod.ledger.jobs import JobState  # noqa: TC001 - a field's type
from tokiod.ledger.ledger import Ledger
from tokiod.ledger.published_copy import readable_ledger
from tokiod.times import iso, span

if TYPE_CHECKING:
    from rich.table import Table

    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.ledger.jobs import Job, Jobs

REFRESH_SECONDS = 0.5
"""Time between two updates of a job's progress."""
LINE_SECONDS = 10.0
"""Time between two lines about it where stderr is no terminal."""


class Backfill(msgspec.Struct, frozen=True):
    """One backfill of [start, end). Times are UTC epoch seconds.

    datasets: empty for all; force: stored windows are collected again; parallel: windows collected at the same time; windows, records:
    collected so far, records if the source reports them; error: the latest one, or what a done job left as it was; seconds_left: of the
    time span, not yet collected; all of it where a job with force or datasets ended early, because the same request begins anew.
    """

    id: int
    source: str
    start: int
    end: int
    datasets: list[str]
    force: bool
    parallel: int
    created: float
    state: JobState
    error: str
    windows: int
    records: int
    updated: float
    seconds_left: int


def opened_ledger(config: Config, *, to_write: bool = True) -> Ledger:
    """Open the ledger, or its copy if the user may only read. Raises Failed if it does not exist, or must be written and can't be."""
    if (path := readable_ledger(config.archive)) is None:
        raise Failed(f"no ledger at {config.archive.ledger}: the daemon has never run on this archive")
    if not to_write:
        return Ledger.open_readonly(path)
    if not os.access(config.archive.ledger, os.W_OK):
        raise Failed(f"no permission to write to {config.archive.ledger}: run the command as the daemon's user")
    return Ledger.open_existing(config.archive.ledger)


def tell_jobs(config: Config, clock: Clock, source: str | None, cancel: int | None, *, as_json: bool) -> None:
    """Show all jobs, or those of a source, or cancel one and show it.

    Raises Failed for an unknown source and for a job that can't be cancelled.
    """
    with opened_ledger(config, to_write=cancel is not None) as ledger:
        jobs = ledger.jobs
        if cancel is not None:
            job = jobs.get(cancel)
            if job is None:
                raise Failed(f"--cancel: there is no job {cancel}; --list shows those there are")
            if job.finished:
                raise Failed(f"--cancel: job {cancel} is {job.state} already")
            jobs.set_state(job, "cancelled", clock.time())
        shown = [job for job in jobs.all() if cancel in (None, job.id) and source in (None, job.source)]
        if source is not None and not shown:
            configured_source(config, source)
        if as_json:
            echo_json([_json_of(job, jobs) for job in shown])
        elif shown:
            show(_table(shown, jobs))
            _show_waiting(config, [job for job in shown if not job.finished])
        else:
            echo("no backfills")


def _show_waiting(config: Config, unfinished: list[Job]) -> None:
    """Say what the jobs that are not finished wait for."""
    known = {section.name for section in config.source}
    for job in unfinished:
        if job.source not in known:
            echo(f"{job.source} is not configured: `tokioctl backfill --cancel {job.id}` ends its job")
    is_down = lock_owner(config.archive.lock, config.archive.owner) is None
    if is_down and any(job.source in known for job in unfinished):
        echo("not running: start the daemon or repeat the command")


def _table(shown: list[Job], jobs: Jobs) -> Table:
    names = ("job", "source", "start", "end", "state", "done", "windows", "records", "error")
    made = table(*names, right={"job", "done", "windows", "records"}, folded={"error"}, spare=("records", "windows"))
    for job in shown:
        is_unknown = job.finished and job.state != "done" and job.begins_anew
        done = "-" if is_unknown else f"{100 * (1 - _left(job, jobs) / job.span.seconds):.0f} %"
        figures = (done, str(job.windows), str(job.records))
        made.add_row(str(job.id), job.source, iso(job.start), iso(job.end), job.state, *figures, job.error)
    return made


def _json_of(job: Job, jobs: Jobs) -> Backfill:
    return Backfill(**{**msgspec.to_builtins(job), "seconds_left": _left(job, jobs)})


def _left(job: Job, jobs: Jobs) -> int:
    return sum(window.seconds for window in jobs.remaining(job))


class Bar:
    """The progress of a job on a terminal: the share of its time span, windows, records per second, time left."""

    def __init__(self, job: Job, jobs: Jobs) -> None:
        self._job, self._jobs = job, jobs
        self._left = _left(job, jobs)
        self._began, self._records = time.monotonic(), job.records
        self._total, self._next_line = self._left, self._began + LINE_SECONDS
        self._bar: Any = click.progressbar(
            length=self._left,
            label=f"job {job.id}",
            file=sys.stderr,
            hidden=not sys.stderr.isatty(),
            item_show_func=lambda _: self._progress(),
        )

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.__exit__(*error)

    def show(self) -> Job:
        """Read the job again and show its progress."""
        self._job = self._jobs.get(self._job.id) or self._job
        left = _left(self._job, self._jobs)
        self._bar.update(max(0, self._left - left), self._job)
        self._left = left
        if not sys.stderr.isatty() and time.monotonic() >= self._next_line:
            self._next_line += LINE_SECONDS
            done = 100 * (1 - left / max(1, self._total))
            echo(f"job {self._job.id}: {done:.0f} %, {self._progress()}", err=True)
        return self._job

    def _progress(self) -> str:
        rate = (self._job.records - self._records) / max(time.monotonic() - self._began, 0.001)
        records = f", {rate:,.0f} records/s" if self._job.records else ""  # not all kinds count them
        return f"{self._job.windows} windows{records}" + (f"; {self._job.error}" if self._job.error else "")


def report(job: Job, ledger: Ledger, seconds: float, *, as_json: bool) -> None:
    """Print the result of a job after so many seconds. Exits with 1 if it failed or was cancelled."""
    if as_json:
        echo_json(_json_of(job, ledger.jobs))
    else:
        echo(f"job {job.id}: {job.state}, {_result(job, ledger)}" + (f" after {seconds:.1f} s" if seconds else ""))
    if job.error:
        echo(f"job {job.id}: {job.error}", err=True)
    if job.finished and job.state != "done":
        sys.exit(1)


def _result(job: Job, ledger: Ledger) -> str:
    """Return what a job has collected."""
    left = _left(job, ledger.jobs)
    if job.state == "done" and not job.windows and not job.error:
        return "0 windows: all of it was stored already, --force queries it again"
    text = f"{job.windows} windows" + (f", {job.records} records" if job.records else "")
    if job.state != "done":
        return f"{text}, {span(left)} left" if not job.finished or not job.begins_anew else f"{text}; the same request begins anew"
    if ledger.counts(job.source).records(job.span) == 0:
        return f"{text}; the source has no record of it"
    return text + (f"; the source has no record of {span(left)} of it" if left else "")
