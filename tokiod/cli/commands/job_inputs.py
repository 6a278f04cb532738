"""Which jobs `tokioctl job` summarizes: by times, by Slurm's ID, or of a CSV file."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click

from tokiod.analysis.concurrent_jobs import RunJobs
from tokiod.analysis.darshan_job import moved, span_of, summarize_darshan
from tokiod.analysis.darshan_log import DarshanLog, logs_of, read_logs
from tokiod.analysis.slurm import completed, jobs_of, numbers_of, running
from tokiod.cli.common.base import Failed
from tokiod.errors import TokiodError
from tokiod.reader.span import Span, epoch
from tokiod.times import iso

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tokiod.analysis.slurm import SlurmJob
    from tokiod.config.site import SiteConfig

    Value = float | int | str | None

COLUMNS = ("jobid", "start", "end", "system")
DAY_SECONDS = 86400
_NODES, _SECONDS = re.compile(r"[0-9]{1,9}"), re.compile(r"[0-9]{1,12}(\.[0-9]*)?")
FACTS = ("_job_name", "_job_user", "_job_state", "_job_nodes", "_job_nodelist")
"""Keys of what the scheduler knows of a job."""
OTHER_RUNS, NO_NUMBER = "_job_other_runs", "job_reason"
"""Keys of the other runs of a job that was requeued, and of why a job has no keys of its own."""
_ID = re.compile(r"([0-9]+)([_+][0-9]+)?(\.\w+)?")


@dataclass(frozen=True, slots=True)
class Job:
    """A job: [start, end) in epoch seconds on a system. reason: why it can't be looked up, "" if it can; facts: by FACTS.

    number: in the job table, where it is not jobid: each task of an array has its own.
    """

    jobid: str
    system: str
    span: Span | None
    reason: str = ""
    facts: dict[str, Value] = field(default_factory=dict)
    number: str = ""


def of_slurm(jobid: str, site: SiteConfig, system: str | None, only: str | None, zone: dt.tzinfo, now: float) -> list[Job]:
    """Return the job, or the tasks of the array, that Slurm has by this ID.

    system: as the user gave it; only: the one system of the site, if it has one. A job that still runs ends now. Raises TokiodError.
    """
    found = [(one, _of_slurm(one, system or site.system_of(one.directory) or only, now)) for one in jobs_of(jobid, site.sacct, zone)]
    return [_with_log(job, one.raw_id.partition(".")[0], site, zone) for one, job in found]


def _with_log(job: Job, number: str, site: SiteConfig, zone: dt.tzinfo) -> Job:
    """Add what Darshan logged of a job, of several logs that of the largest one. number: Slurm's of the job or the task."""
    if not site.darshan or job.span is None:
        return job
    if not (paths := logs_of(number, site.darshan, job.span, zone)):
        return job
    log = next(iter(read_logs([max(paths, key=lambda path: path.stat().st_size)])))
    return replace(job, facts=job.facts | summarize_darshan(log)) if isinstance(log, DarshanLog) else job


def with_concurrent(jobs: list[Job], site: SiteConfig | None, zone: dt.tzinfo, now: float) -> list[Job]:
    """Add what else ran during each job: by Slurm's records, or without a site by the jobs themselves, as of a CSV. Raises TokiodError."""
    spans = [job.span for job in jobs if job.span is not None]
    if not spans:
        return jobs
    if site is None:
        ran = RunJobs.of((job.span.start, job.span.end, int(job.facts.get("_job_nodes") or 0)) for job in jobs if job.span is not None)
    else:
        found = running(Span(min(span.start for span in spans), max(span.end for span in spans)), site.sacct, zone)
        ran = RunJobs.of((one.start, int(now) if one.end is None else one.end, one.nodes or 0) for one in found if one.start is not None)
    return [job if job.span is None else replace(job, facts=job.facts | ran.during(job.span)) for job in jobs]


def earlier_of_slurm(job: Job, like: str | None, days: int, site: SiteConfig, zone: dt.tzinfo, now: float) -> Iterator[Job]:
    """Yield the jobs of the same user on the same system that started in the days before one, and completed.

    like: their name; that of the job by default. Raises TokiodError.
    """
    if job.span is None:
        return
    since, name = Span(max(0, job.span.start - days * DAY_SECONDS), job.span.start), like or str(job.facts["_job_name"])
    for one in completed(str(job.facts["_job_user"]), name, since, site.sacct, zone):
        earlier = _of_slurm(one, site.system_of(one.directory) or job.system, now)
        if earlier.span is not None and earlier.system == job.system:
            yield earlier


def _of_slurm(one: SlurmJob, system: str | None, now: float) -> Job:
    values: tuple[Value, ...] = (one.name, one.user, one.state, one.nodes, one.nodelist)
    facts = dict(zip(FACTS, values, strict=True))
    if one.others:
        facts[OTHER_RUNS] = "; ".join(f"{_shown(run.start)} to {_shown(run.end)} {run.state}" for run in one.others)
    if one.start is None:
        reason = f"job {one.jobid} has not started; its state is {one.state}"
    elif system is None and not one.directory:
        reason = f"sacct has no directory of job {one.jobid}, so its system is unknown; give --system"
    elif system is None:
        reason = f"job {one.jobid} ran in {one.directory}, which no pattern of site.mounts matches; give --system"
    elif (end := int(now) if one.end is None else one.end) <= one.start:
        reason = f"job {one.jobid} ended in the second in which it started"
    else:
        return Job(one.jobid, system, Span(one.start, end), facts=facts, number=one.raw_id.partition(".")[0])
    return Job(one.jobid, system or "", None, reason, facts)


def _shown(time: int | None) -> str:
    return "?" if time is None else iso(time)


def of_darshan(paths: Iterable[Path], site: SiteConfig, system: str | None, only: str | None) -> Iterator[Job]:
    """Yield a job for each system that each log has files on, the one with the most bytes first.

    system: as the user gave it; only: the one system of the site, if it has one. Raises NotInstalled.
    """
    for log, path in zip(read_logs(paths := list(paths)), paths, strict=True):
        if not isinstance(log, DarshanLog):
            yield Job("", system or "", None, str(log))
            continue
        jobid, facts = str(log.jobid), summarize_darshan(log)
        matched = [name for one in moved(log) if (name := site.system_of(one.name))]
        systems = [system] if system else list(dict.fromkeys(matched)) or ([only] if only else [])
        for name in systems:
            yield Job(jobid, name, Span(*span_of(log)), facts=facts)
        if not systems:
            yield Job(jobid, "", None, f"{path}: no pattern of site.mounts matches a file of it; give --system", facts)


def of_csv(path: str, zone: dt.tzinfo, now: float) -> Iterator[Job]:
    """Yield the jobs of a CSV file with a line of names. zone: of times without one. Raises Failed."""
    try:
        with click.open_file(path, encoding="utf-8-sig", errors="replace") as file:
            rows = csv.DictReader(file)
            absent = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
            if absent:
                raise Failed(f"--csv: {path}: its first line has no {', '.join(absent)}; it must name {', '.join(COLUMNS)}")
            for row in rows:
                yield _of_row(row, zone, now)
    except OSError as error:
        raise Failed(f"--csv: {path}: {error.strerror or error}") from error
    except csv.Error as error:
        raise Failed(f"--csv: {path}: {error}") from error


# Job tables have the number that Slurm gave to a task: its processes know it, and so does Lustre's job id.
def with_numbers(jobs: list[Job], sacct: Sequence[str], zone: dt.tzinfo) -> list[Job]:
    """Return jobs of a CSV with the numbers of tasks of arrays and of steps; where sacct does not know one, with the reason."""
    ids = {job.jobid: match for job in jobs if not job.number and (match := _ID.fullmatch(job.jobid)) and (match[2] or match[3])}
    tasks, known, why = {match[1] + match[2] for match in ids.values() if match[2]}, dict[str, str](), "sacct has no record of it"
    try:
        known = numbers_of(tasks, sacct, zone) if tasks else {}
    except TokiodError as error:
        why = str(error)
    return [job if job.number or job.jobid not in ids else _with_number(job, ids[job.jobid], known, why) for job in jobs]


def _with_number(job: Job, match: re.Match[str], known: Mapping[str, str], why: str) -> Job:
    number = known.get(match[1] + match[2]) if match[2] else match[1]
    if number is not None:
        return replace(job, number=number)
    reason = f"job tables have a task of an array by its JobIDRaw, not by {job.jobid}: add a column jobidraw ({why})"
    return replace(job, facts=job.facts | {NO_NUMBER: reason})


def _of_row(row: dict[str, Any], zone: dt.tzinfo, now: float) -> Job:
    jobid, system = (row[name] or "" for name in ("jobid", "system"))
    nodes = row.get("nodes") or ""
    facts: dict[str, Value] = {"_job_name": row["name"]} if row.get("name") else {}
    facts |= {"_job_nodes": int(nodes)} if _NODES.fullmatch(nodes) else {}
    try:
        start, end = (_time(row[name] or "", zone, now) for name in ("start", "end"))
        return Job(jobid, system, Span(start, end), facts=facts, number=row.get("jobidraw") or "")
    except TokiodError as error:
        return Job(jobid, system, None, str(error), facts)


def _time(text: str, zone: dt.tzinfo, now: float) -> int:
    return epoch(float(text) if _SECONDS.fullmatch(text) else text, zone, now=now)
