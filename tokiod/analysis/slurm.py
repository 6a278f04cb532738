"""When and where a job of Slurm ran: sacct's records, by job, task of an array, or step.

sacct prints text of users (names, directories), so fields end with a character that no text of theirs should have, and a record is complete
when it has all fields: a line break in a name ends none.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from tokiod.errors import TokiodError
from tokiod.reader.errors import UnclearTime
from tokiod.runtime.interruption import run_until_interrupted
from tokiod.toolkit.commands import Commands

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tokiod.reader.span import Span

SEPARATOR = "\x1f"
FIELDS = ("JobID", "JobIDRaw", "JobName", "User", "State", "Start", "End", "NNodes", "NodeList", "WorkDir", "ElapsedRaw")
"""Those of Slurm 17.11 and later. The last one is a number, so that the end of a record is known."""
ANSWER_SECONDS = 60.0
MAX_JOBS = 5000
"""Job IDs of one command: an argument has at most 128 KiB."""
_JOB_ID = re.compile(r"[0-9]+(_[0-9]+|\+[0-9]+)?(\.[A-Za-z0-9]+)?")
_NO_TIME = frozenset({"", "Unknown", "None"})


class NoSuchJob(TokiodError, LookupError):  # noqa: N818 - a state, not a fault
    """sacct has no record of a job."""


class SacctFailed(TokiodError):  # noqa: N818 - as above
    """sacct can't be run, failed, or printed no records."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job, a task of an array or a step. jobid: as Slurm displays it, 12, 12_3, 12.0; raw_id: the number of a task, too.

    start, end: UTC epoch seconds, None where it has not started or ended. nodelist: as Slurm writes it, nid[001-004]. others: its earlier
    runs, if it was requeued.
    """

    jobid: str
    raw_id: str
    name: str
    user: str
    state: str
    start: int | None
    end: int | None
    nodes: int | None
    nodelist: str
    directory: str
    others: tuple[SlurmJob, ...] = ()

    @property
    def is_step(self) -> bool:
        """Whether it is a step of a job."""
        return "." in self.raw_id


def jobs_of(jobid: str, sacct: Sequence[str], zone: dt.tzinfo) -> list[SlurmJob]:
    """Return the job, the tasks of an array job, or the step of a job ID.

    Of a job that was requeued it is the last run, which names the others.
    sacct: the program and its first options; zone: of its times, if it prints no epoch seconds. Raises NoSuchJob, SacctFailed, UnclearTime.
    """
    if not _JOB_ID.fullmatch(jobid):
        raise NoSuchJob(f"{jobid!r} is not an ID of a Slurm job; write it like 4478544, 4478544_3 (of an array) or 4478544.0 (a step)")
    found = parsed(_printed([*sacct, f"--jobs={jobid}", "--duplicates"], zone), zone)
    chosen = [job for job in found if job.is_step == ("." in jobid)]
    if not chosen:
        raise NoSuchJob(f"{sacct[0]} has no record of job {jobid}")
    return _last_runs(chosen)


def _last_runs(found: list[SlurmJob]) -> list[SlurmJob]:
    """Return the last run of each job. Slurm may give a number twice, so the others are those of the same user and name."""
    runs: dict[tuple[str, str], list[SlurmJob]] = {}
    for job in found:
        runs.setdefault((job.jobid, job.raw_id), []).append(job)
    last = [(max(some, key=lambda job: (job.start is None, job.start)), some) for some in runs.values()]
    return [
        replace(job, others=tuple(one for one in some if one is not job and (one.user, one.name) == (job.user, job.name)))
        for job, some in last
    ]


def numbers_of(tasks: Iterable[str], sacct: Sequence[str], zone: dt.tzinfo) -> dict[str, str]:
    """Return the numbers (JobIDRaw) of tasks of arrays and parts of heterogeneous jobs, by their IDs. Raises SacctFailed, UnclearTime."""
    jobs = sorted({re.split("[_+]", task)[0] for task in tasks})
    parts = [jobs[first : first + MAX_JOBS] for first in range(0, len(jobs), MAX_JOBS)]
    found = (parsed(_printed([*sacct, f"--jobs={','.join(part)}", "--allocations"], zone), zone) for part in parts)
    return {job.jobid: job.raw_id for some in found for job in some}


def described(jobids: Iterable[str], sacct: Sequence[str], zone: dt.tzinfo, seconds: float) -> dict[str, SlurmJob]:
    """Return what sacct has of jobs and tasks of arrays, by their numbers. seconds: time limit. Raises SacctFailed, UnclearTime."""
    numbers = sorted({jobid for jobid in jobids if jobid.isascii() and jobid.isdecimal()})
    if not numbers:
        return {}
    found = parsed(_printed([*sacct, f"--jobs={','.join(numbers)}", "--allocations"], zone, seconds), zone)
    return {job.raw_id: job for job in found}


def completed(user: str, name: str, since: Span, sacct: Sequence[str], zone: dt.tzinfo) -> list[SlurmJob]:
    """Return the jobs of a user with a name that started in a span and completed, by their start. Raises SacctFailed, UnclearTime."""
    # sacct's bounds are those of any state, so it returns jobs that ran into them; a comma in --name would separate two names.
    bounds = [f"--starttime=uts{since.start}", f"--endtime=uts{since.end}", "--state=COMPLETED"]
    found = parsed(_printed([*sacct, f"--user={user}", *bounds, "--allocations"], zone), zone)
    chosen = [job for job in found if job.name == name and job.user == user and job.end is not None]
    return sorted((job for job in chosen if job.start is not None and since.start <= job.start < since.end), key=attrgetter("start"))


def running(span: Span, sacct: Sequence[str], zone: dt.tzinfo) -> list[SlurmJob]:
    """Return the jobs of all users that ran in a part of a span. Raises SacctFailed, UnclearTime."""
    bounds = [f"--starttime=uts{span.start}", f"--endtime=uts{span.end}", "--allusers", "--allocations"]
    found = parsed(_printed([*sacct, *bounds], zone), zone)
    # sacct returns jobs that waited in the span, too, and some that end minutes before it.
    return [job for job in found if job.start is not None and job.start < span.end and (job.end is None or job.end > span.start)]


def parsed(text: str, zone: dt.tzinfo) -> list[SlurmJob]:
    """Parse the output of sacct --parsable2 with its header; fields are found by their names. Raises SacctFailed, UnclearTime."""
    lines = iter(text.splitlines(keepends=True))
    names = next(lines, "").rstrip("\n").split(SEPARATOR)
    if absent := [name for name in FIELDS if name not in names]:
        raise SacctFailed(f"sacct printed no {', '.join(absent)}; its first line must name the fields that --format asks for")
    return [_job(dict(zip(names, record, strict=True)), zone) for record in _records(lines, len(names))]


def _printed(command: list[str], zone: dt.tzinfo, seconds: float = ANSWER_SECONDS) -> str:
    options = ["--parsable2", f"--delimiter={SEPARATOR}", f"--format={','.join(FIELDS)}"]
    environment = {"SLURM_TIME_FORMAT": "%s", "TZ": str(zone)}
    try:
        output = run_until_interrupted(Commands().run([*command, *options], key="sacct", seconds=seconds, environment=environment))
    except TokiodError as error:
        raise SacctFailed(f"{error}; site.sacct in the configuration holds how sacct is run") from error
    if output.code:
        raise SacctFailed(f"{command[0]} failed with exit code {output.code}: {output.complaint or 'no message'}")
    return output.stdout.decode(errors="replace")


def _records(lines: Iterator[str], count: int) -> Iterator[list[str]]:
    """Yield the fields of each record. A record with too many, of a user's text with a separator, is left out."""
    parts: list[str] = []
    separators = 0
    for line in lines:
        parts.append(line)
        separators += line.count(SEPARATOR)
        if separators >= count - 1:
            if separators == count - 1:
                yield "".join(parts).rstrip("\n").split(SEPARATOR)
            parts, separators = [], 0


def _job(record: dict[str, str], zone: dt.tzinfo) -> SlurmJob:
    jobid, elapsed = record["JobID"], record["ElapsedRaw"]
    start, end = _times(jobid, record["Start"], record["End"], int(elapsed) if elapsed.isdecimal() else None, zone)
    return SlurmJob(
        jobid,
        record["JobIDRaw"],
        record["JobName"],
        record["User"],
        record["State"],
        start,
        end,
        int(record["NNodes"]) if record["NNodes"].isdecimal() else None,
        record["NodeList"],
        record["WorkDir"],
    )


def _times(jobid: str, start: str, end: str, elapsed: int | None, zone: dt.tzinfo) -> tuple[int | None, int | None]:
    """Return start and end. Local times that occur twice in autumn are distinguished by the elapsed seconds. Raises UnclearTime."""
    starts, ends = _instants(jobid, start, zone), _instants(jobid, end, zone)
    pairs = [(one, two) for one in starts for two in ends]
    if len(pairs) > 1:
        pairs = [(one, two) for one, two in pairs if one is not None and two is not None and two - one == elapsed]
    if len(pairs) != 1:
        raise UnclearTime(
            f"job {jobid}: {start} to {end} occurs twice in {zone}; let sacct print epoch seconds (SLURM_TIME_FORMAT=%s, see site.sacct)"
        )
    return pairs[0]


def _instants(jobid: str, text: str, zone: dt.tzinfo) -> list[int | None]:
    if text in _NO_TIME:
        return [None]
    if text.isdecimal():
        return [int(text)]
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        raise SacctFailed(f"job {jobid}: sacct printed the time {text!r}, which is neither epoch seconds nor ISO 8601") from None
    times = [time] if time.tzinfo else [time.replace(tzinfo=zone, fold=fold) for fold in (0, 1)]
    return [*dict.fromkeys(int(one.timestamp()) for one in times)]
