"""What a system did during jobs: the keys of `tokioctl job` and of the commands that compare jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.analysis.health import NoFullness, health, health_keys, needed
from tokiod.analysis.job import summarize_job
from tokiod.errors import TokiodError
from tokiod.reader.archive import Archive
from tokiod.reader.part import OpenParts
from tokiod.reader.span import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.cli.commands.job_inputs import Job, Value
    from tokiod.reader.files import Templates
    from tokiod.window import Calendar

KEPT_BYTES = 64 * 2**20
"""Of inflated chunks: ten hours of a large file system. Jobs are read by their start, so most of what one needs was read for another."""


# Jobs of one day follow each other, so that its file is opened once; their rows are printed in the order of the input.
def summaries(jobs: list[Job], templates: Templates, calendar: Calendar | None, *, with_health: bool) -> Iterator[dict[str, Value]]:
    """Yield the keys of each job in their order; a job without data has a reason. with_health: also those of fullness and failovers."""
    parts, done, printed = OpenParts(kept_bytes=KEPT_BYTES), dict[int, dict[str, "Value"]](), 0
    for number in sorted(range(len(jobs)), key=lambda i: (jobs[i].system, jobs[i].span or Span(0, 1))):
        done[number] = _summary(jobs[number], templates, calendar, parts, with_health=with_health)
        while printed in done:
            yield done.pop(printed)
            printed += 1


def _summary(job: Job, templates: Templates, calendar: Calendar | None, parts: OpenParts, *, with_health: bool) -> dict[str, Value]:
    head: dict[str, Value] = {"_jobid": job.jobid} if job.jobid else {}
    head |= {"_file_system": job.system, **job.facts}
    if job.span is None:
        return {**head, "reason": job.reason}
    head |= {"_datetime_start": job.span.start, "_datetime_end": job.span.end}
    try:
        found: dict[str, Value] = dict(
            summarize_job(Archive(job.system, job.span, templates.paths(job.system, job.span, calendar), parts=parts))
        )
        if with_health:
            found |= _health(job.system, job.span.start, templates, calendar, parts)
    except (TokiodError, OSError) as error:
        return {**head, "reason": str(error)}
    return {**head, **found} if found else {**head, "reason": "no dataset of the system is known to summarize"}


def _health(system: str, time: int, templates: Templates, calendar: Calendar | None, parts: OpenParts) -> dict[str, Value]:
    """Return the keys of the state when a job started; none where nothing is stored of it."""
    try:
        return health_keys(health(system, templates.paths(system, needed(time), calendar), time, parts))
    except NoFullness:
        return {}
