"""What a system did during jobs: the keys of `tokioctl job` and of the commands that compare jobs."""

from __future__ import annotations

from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tokiod.analysis.health import NoFullness, health, health_keys, needed
from tokiod.analysis.job import summarize_job
from tokiod.analysis.own_nodes import on_nodes
from tokiod.analysis.own_traffic import own_traffic
from tokiod.cli.common.base import Failed
from tokiod.errors import TokiodError
from tokiod.job_columns import is_of_nodes
from tokiod.jobs.rows import Wanted
from tokiod.jobs.span import span_rows
from tokiod.reader.archive import Archive
from tokiod.reader.cells import use_one_thread
from tokiod.reader.part import OpenParts
from tokiod.reader.span import Span
from tokiod.toolkit.worker_pool import workers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokiod.cli.commands.job_inputs import Job, Value
    from tokiod.jobs.one_file import OneFile
    from tokiod.jobs.span import Days
    from tokiod.reader.files import Templates
    from tokiod.window import Calendar

KEPT_BYTES = 64 * 2**20
"""Of inflated chunks: ten hours of a large file system. Jobs are read by their start, so most of what one needs was read for another."""
PROCESSES = 2
"""Threads are no faster: a chunk is inflated in 0.2 ms, and most of the rest holds the interpreter's lock."""
JOBS_PER_TASK = 32
"""That a process reads in turn, with the day files and chunks of the ones before."""


# Jobs of one day follow each other, so that its file is opened once; their rows are printed in the order of the input.
def summaries(
    jobs: list[Job], templates: Templates, calendar: Calendar | None, *, nodes: Sequence[str] = (), with_health: bool
) -> Iterator[dict[str, Value]]:
    """Yield the keys of each job in their order; a job without data has a reason.

    nodes: systems of compute nodes; with_health: also the keys of fullness and failovers.
    """
    by_start = sorted(range(len(jobs)), key=lambda i: (jobs[i].system, jobs[i].span or Span(0, 1)))
    tasks = [by_start[first : first + JOBS_PER_TASK] for first in range(0, len(jobs), JOBS_PER_TASK)]
    summarizer, done, printed = _Summarizer(templates, calendar, nodes, with_health=with_health), dict[int, dict[str, "Value"]](), 0
    with _rows(summarizer, [[jobs[number] for number in task] for task in tasks]) as found:
        for task, rows in zip(tasks, found, strict=True):
            done.update(zip(task, rows, strict=True))
            while printed in done:
                yield done.pop(printed)
                printed += 1


def of_table(alone: OneFile, jobid: str) -> dict[str, Value]:
    """Return what a file of the job table has of a job, from its first to its last row. Raises OSError, NotAJobTable."""
    found = span_rows(alone, alone.start, alone.end, Wanted.of_job(jobid))
    head: dict[str, Value] = {"_jobid": jobid, "_file_system": alone.system}
    if not len(found.rows):
        return {**head, "reason": f"{alone.path} has no row of job {jobid}"}
    since = found.activity.since[found.activity.is_known]
    last = int(found.rows.columns["time"].max())
    span = Span(min(int(since.min(initial=last)), last - 1), last)
    head |= {"_datetime_start": span.start, "_datetime_end": span.end}
    return {**head, **(on_nodes if is_of_nodes(found.activity.counts) else _traffic)(alone, jobid, span)}


def _traffic(days: Days, number: str, span: Span) -> dict[str, Value]:
    return dict(own_traffic(days, number, span, {}))


class _Summarizer:
    """Summarizes jobs, with the files and chunks that it read for the ones before."""

    def __init__(self, templates: Templates, calendar: Calendar | None, nodes: Sequence[str], *, with_health: bool) -> None:
        self._templates, self._calendar, self._nodes, self._with_health = templates, calendar, nodes, with_health
        self._parts = OpenParts(kept_bytes=KEPT_BYTES)

    def rows(self, jobs: list[Job]) -> list[dict[str, Value]]:
        return [self._row(job) for job in jobs]

    def _row(self, job: Job) -> dict[str, Value]:
        head: dict[str, Value] = {"_jobid": job.jobid} if job.jobid else {}
        head |= {"_file_system": job.system, **job.facts}
        if job.span is None:
            return {**head, "reason": job.reason}
        head |= {"_datetime_start": job.span.start, "_datetime_end": job.span.end}
        try:
            paths = self._templates.paths(job.system, job.span, self._calendar)
            found: dict[str, Value] = dict(summarize_job(Archive(job.system, job.span, paths, parts=self._parts)))
            if job.jobid:
                found |= self._own(job.system, job.number or job.jobid, job.span, found)
            if self._with_health:
                found |= _health(job.system, job.span.start, self._templates, self._calendar, self._parts)
        except (TokiodError, OSError) as error:
            return {**head, "reason": str(error)}
        return {**head, **found} if found else {**head, "reason": "no dataset of the system is known to summarize"}

    def _own(self, system: str, number: str, span: Span, of_system: dict[str, Value]) -> dict[str, Value]:
        """Return what a job did itself, on the file system's servers and on its nodes."""
        found: dict[str, Value] = {}
        if system not in self._nodes:
            found |= own_traffic(self._templates.jobs(system), number, span, of_system)
        for one in self._nodes if system not in self._nodes else [system]:
            if on := on_nodes(self._templates.jobs(one), number, span):
                return found | on
        return found


@contextmanager
def _rows(summarizer: _Summarizer, tasks: list[list[Job]]) -> Iterator[Iterator[list[dict[str, Value]]]]:
    """Yield the rows of each task in turn: several tasks are read in processes of their own."""
    if len(tasks) <= 1:
        yield map(summarizer.rows, tasks)
        return
    try:
        with workers(PROCESSES, _begin_process, summarizer, fork=True) as pool:
            yield pool.map(_rows_in_process, tasks)
    except BrokenProcessPool:
        raise Failed("a process that reads the jobs was killed; is there enough memory?") from None


_of_process: list[_Summarizer] = []
"""The summarizer of a process of the pool: it has no other state from one task to the next."""


def _begin_process(summarizer: _Summarizer) -> None:
    use_one_thread()
    _of_process.append(summarizer)


def _rows_in_process(jobs: list[Job]) -> list[dict[str, Value]]:
    return _of_process[-1].rows(jobs)


def _health(system: str, time: int, templates: Templates, calendar: Calendar | None, parts: OpenParts) -> dict[str, Value]:
    """Return the keys of the state when a job started; none where nothing is stored of it."""
    try:
        return health_keys(health(system, templates.paths(system, needed(time), calendar), time, parts))
    except NoFullness:
        return {}
