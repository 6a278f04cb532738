"""`tokioctl job`: the file system during a job or during thousands, with the keys of pytokio's summarize_job."""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tokiod.analysis.job import OPERATIONS, summarize_job
from tokiod.cli.commands.completion import system_names
from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.lookup import check_system
from tokiod.cli.common.output import echo, echo_json
from tokiod.cli.common.times import moment, zone_of
from tokiod.config import load as configuration
from tokiod.errors import TokiodError
from tokiod.reader.archive import Archive
from tokiod.reader.files import Templates
from tokiod.reader.part import OpenParts
from tokiod.reader.span import Span, epoch
from tokiod.window import Calendar

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator
    from pathlib import Path

    from rich.table import Table

    from tokiod.clock import Clock

    Value = float | int | str | None

COLUMNS = ("jobid", "start", "end", "system")
_TRANSFERS = [
    f"fs_{key.format(to)}"
    for to in ("read", "written")
    for key in (
        "tot_bytes_{}", "tot_gibs_{}", *(f"{how}_{unit}_{{}}_per_sec" for how in ("ave", "max", "min") for unit in ("bytes", "gibs")),
        "frac_zero_{}",
    )
]  # fmt: skip
_OPERATIONS = [
    f"fs_{key.format(name)}"
    for name in OPERATIONS
    for key in ("tot_{}_ops", *(f"{of}{how}_{{}}_ops_per_sec" for of in ("", "sys_") for how in ("ave", "max", "min")))
]
_LOADS = ["fs_ave_oss_cpu", "fs_max_oss_cpu", "fs_ave_mds_cpu", "fs_max_mds_cpu", "fs_frac_missing"]
KEYS = ["_jobid", "_file_system", "_datetime_start", "_datetime_end", *_TRANSFERS, *_LOADS, *_OPERATIONS, "reason"]
"""The columns of a CSV, in order."""
KEPT_BYTES = 64 * 2**20
"""Of inflated chunks: ten hours of a large file system. Jobs are read by their start, so most of what one needs was read for another."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job: [start, end) in epoch seconds on a system. reason: why it can't be looked up, "" if it can."""

    jobid: str
    system: str
    span: Span | None
    reason: str = ""


@click.command(
    "job",
    epilog=examples(
        "tokioctl job --system cscratch --start 2026-11-20T08:00:00 --end 2026-11-20T09:30:00",
        "tokioctl job --csv jobs.csv > summaries.csv",
    ),
)
@click.option("--system", shell_complete=system_names, help="The system.")
@click.option("--start", metavar="TIME|SPAN", help="Start time: ISO 8601, or a time span before now such as 1h or 30d.")
@click.option("--end", metavar="TIME|SPAN", help="End time (exclusive), formats as --start.")
@click.option("--csv", "csv_path", metavar="FILE", help="Many jobs: a CSV file with the columns jobid, start, end and system; - is stdin.")
@click.option("--path", "templates", multiple=True, metavar="TEMPLATE", help="Template of the day files, instead of the configuration's.")
@click.option("--timezone", metavar="ZONE", help="IANA time zone of all times.  [default: the configuration's, else UTC]")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each job.")
@config_option
@clock_option
def job_command(config_path: Path, clock: Clock, templates: tuple[str, ...], **given: Any) -> None:
    """Summarize a system while a job ran.

    One job by --system, --start and --end, or many by --csv. The keys are those of pytokio's summarize_job; fs_sys_* are operations of
    all metadata targets together. Times are UTC epoch seconds. With --csv the output is CSV (or JSON lines), in the order of the input. A
    job without data has a reason instead. Exit 0 all jobs have data, 1 a job has none, 2 failed.
    """
    config = None if templates else configuration.load(config_path)
    zone = zone_of(given["timezone"] or (config.timezone if config else "UTC"))
    now = clock.time()
    if given["csv_path"] is not None:
        jobs = list(_jobs(given["csv_path"], zone, now))
    else:
        missing = [f"--{name}" for name in ("system", "start", "end") if given[name] is None]
        if missing:
            raise Failed(f"{', '.join(missing)}: missing; give --system, --start and --end, or --csv")
        if config is not None:
            check_system(config, given["system"])
        start, end = (moment(f"--{name}", given[name], zone, now) for name in ("start", "end"))
        jobs = [Job("", given["system"], Span(start, end))]
    where = Templates(templates) if config is None else Templates((config.archive.path,))
    found = _summaries(jobs, where, None if config is None else Calendar(config.timezone))
    sys.exit(_print(found, len(jobs), as_json=given["as_json"], many=given["csv_path"] is not None))


def _jobs(path: str, zone: dt.tzinfo, now: float) -> Iterator[Job]:
    try:
        with click.open_file(path, encoding="utf-8", errors="replace") as file:
            rows = csv.DictReader(file)
            absent = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
            if absent:
                raise Failed(f"--csv: {path}: its first line has no {', '.join(absent)}; it must name {', '.join(COLUMNS)}")
            for row in rows:
                yield _job(row, zone, now)
    except OSError as error:
        raise Failed(f"--csv: {path}: {error.strerror or error}") from error
    except csv.Error as error:
        raise Failed(f"--csv: {path}: {error}") from error


def _job(row: dict[str, Any], zone: dt.tzinfo, now: float) -> Job:
    jobid, system = (row[name] or "" for name in ("jobid", "system"))
    try:
        start, end = (_time(row[name] or "", zone, now) for name in ("start", "end"))
        return Job(jobid, system, Span(start, end))
    except TokiodError as error:
        return Job(jobid, system, None, str(error))


def _time(text: str, zone: dt.tzinfo, now: float) -> int:
    return epoch(float(text) if text.replace(".", "", 1).isdigit() else text, zone, now=now)


# Jobs of one day follow each other, so that its file is opened once; their rows are printed in the order of the input.
def _summaries(jobs: list[Job], templates: Templates, calendar: Calendar | None) -> Iterator[dict[str, Value]]:
    parts, done, printed = OpenParts(kept_bytes=KEPT_BYTES), dict[int, dict[str, "Value"]](), 0
    for number in sorted(range(len(jobs)), key=lambda i: (jobs[i].system, jobs[i].span or Span(0, 1))):
        done[number] = _summary(jobs[number], templates, calendar, parts)
        while printed in done:
            yield done.pop(printed)
            printed += 1


def _summary(job: Job, templates: Templates, calendar: Calendar | None, parts: OpenParts) -> dict[str, Value]:
    head: dict[str, Value] = {"_jobid": job.jobid} if job.jobid else {}
    head["_file_system"] = job.system
    if job.span is None:
        return {**head, "reason": job.reason}
    head |= {"_datetime_start": job.span.start, "_datetime_end": job.span.end}
    try:
        found = summarize_job(Archive(job.system, job.span, templates.paths(job.system, job.span, calendar), parts=parts))
    except (TokiodError, OSError) as error:
        return {**head, "reason": str(error)}
    return {**head, **found} if found else {**head, "reason": "no dataset of the system is known to summarize"}


def _print(found: Iterator[dict[str, Value]], count: int, *, as_json: bool, many: bool) -> int:
    status = 0
    writer = csv.DictWriter(_Lines(), KEYS, restval="", lineterminator="")
    if many and not as_json:
        writer.writeheader()
    with click.progressbar(found, length=count, label="jobs", file=sys.stderr, hidden=not (sys.stderr.isatty() and many)) as rows:
        for row in rows:
            status |= "reason" in row
            if as_json:
                echo_json(row)
            elif many:
                writer.writerow(row)
            else:
                _show(row)
    return int(status)


class _Lines:
    """A file of csv that prints lines."""

    def write(self, text: str) -> None:
        """Print one line."""
        echo(text)


def _show(row: dict[str, Value]) -> None:
    if "reason" in row:
        raise Failed(str(row["reason"]))
    from tokiod.cli.common.tables import show  # noqa: PLC0415 - slow to import, and --json needs none

    show(_table(row))


def _table(row: dict[str, Value]) -> Table:
    from tokiod.cli.common.tables import table  # noqa: PLC0415 - as above

    shown = table("key", "value", right={"value"})
    for key, value in row.items():
        shown.add_row(key, "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value))
    return shown
