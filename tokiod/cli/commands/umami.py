"""`tokioctl umami`: where one job stands among earlier jobs of the same application, as pytokio's UMAMI."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokiod.analysis.umami import umami
from tokiod.cli.commands.completion import system_names
from tokiod.cli.commands.job_inputs import DAY_SECONDS, Job, earlier_of_slurm, of_csv, of_slurm
from tokiod.cli.commands.job_summaries import summaries
from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.output import echo_json
from tokiod.cli.common.tables import line, show, table
from tokiod.cli.common.times import zone_of
from tokiod.config import load as configuration
from tokiod.config.site import SiteConfig
from tokiod.reader.errors import NotInstalled
from tokiod.reader.files import Templates

if TYPE_CHECKING:
    import datetime as dt

    from rich.table import Table

    from tokiod.analysis.umami import Umami
    from tokiod.cli.commands.job_inputs import Value
    from tokiod.clock import Clock
    from tokiod.config.schema import Config

FORMATS = (".png", ".svg", ".pdf")
ORDINALS = ("1st", "2nd", "3rd", "4th")


@click.command(
    "umami",
    epilog=examples(
        "tokioctl umami 4478544", "tokioctl umami 4478544 --days 90 --figure umami.png", "tokioctl umami --csv jobs.csv --like vasp"
    ),
)
@click.argument("jobid", required=False)
@click.option("--csv", "csv_path", metavar="FILE", help="The jobs: columns jobid, start, end, system[, name]; the last one is compared.")
@click.option("--like", metavar="NAME", help="The name of the earlier jobs.  [default: that of the job]")
@click.option("--days", type=click.IntRange(1, 3660), default=30, show_default=True, metavar="N", help="How far back earlier jobs count.")
@click.option("--system", shell_complete=system_names, help="The system.  [default: of a Slurm job, by site.mounts]")
@click.option("--figure", type=click.Path(path_type=Path, dir_okay=False), help="Also draw it: .png, .svg or .pdf.")
@click.option("--path", "templates", multiple=True, metavar="TEMPLATE", help="Template of the day files, instead of the configuration's.")
@click.option("--timezone", metavar="ZONE", help="IANA time zone of all times.  [default: the configuration's, else UTC]")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@config_option
@clock_option
def umami_command(config_path: Path, clock: Clock, jobid: str | None, templates: tuple[str, ...], **given: Any) -> None:
    """Compare a job with earlier jobs of its application.

    A job of Slurm by its JOBID: earlier jobs are those of its user and name that completed on the same system. Of a CSV file the job that
    started last is compared with those before it.

    quarter: where the job is among the earlier jobs, from the lowest to the highest value. --json is that of pytokio's Umami.to_json: the
    metrics of each job by its start, in UTC epoch seconds. Exit 0 compared, 1 no earlier job has data, 2 failed.
    """
    if (jobid is None) == (given["csv_path"] is None):
        raise Failed("give one job: JOBID, or --csv FILE")
    if given["figure"] is not None and given["figure"].suffix not in FORMATS:
        raise Failed(f"--figure: {given['figure']}: the suffix must be one of {', '.join(FORMATS)}")
    config = None if templates else configuration.load(config_path)
    zone = zone_of(given["timezone"] or (config.timezone if config else "UTC"))
    job, earlier = _jobs(jobid, given, config, zone, clock.time())
    where = Templates(templates if config is None else config.templates), None if config is None else config.calendar
    *before, own = list(summaries([*earlier, job], *where, with_health=True))
    if "reason" in own:
        raise Failed(str(own["reason"]))
    known = [row for row in before if "reason" not in row]
    found = umami([*known, own])
    names = {} if config is None else config.site.names
    title = _title(own, names.get(job.system, job.system), len(known), len(before) - len(known), given["days"])
    if given["figure"] is not None:
        _draw(found, given["figure"], title, zone)
    if given["as_json"]:
        echo_json(found.by_time())
    else:
        show(line(title, "bold"), _table(found))
    sys.exit(0 if known else 1)


def _jobs(jobid: str | None, given: dict[str, Any], config: Config | None, zone: dt.tzinfo, now: float) -> tuple[Job, list[Job]]:
    """Return the job and the earlier ones, by their start. Raises Failed, TokiodError."""
    if jobid is not None:
        site, systems = (SiteConfig(), frozenset[str]()) if config is None else (config.site, config.systems)
        chosen = of_slurm(jobid, site, given["system"], next(iter(systems)) if len(systems) == 1 else None, zone, now)
        if len(chosen) > 1:
            raise Failed(f"{jobid} is an array of {len(chosen)} tasks; give one of them, such as {chosen[0].jobid}")
        return chosen[0], list(earlier_of_slurm(chosen[0], given["like"], given["days"], site, zone, now))
    rows = [job for job in of_csv(given["csv_path"], zone, now) if given["like"] is None or job.facts.get("_job_name") == given["like"]]
    jobs = sorted((job for job in rows if job.span is not None), key=lambda job: job.span or ())
    if not jobs:
        reason = next((job.reason for job in rows if job.reason), "it has no such job")
        raise Failed(
            f"--csv: {given['csv_path']}: {reason}" + (f"; --like needs a column name with {given['like']!r}" if given["like"] else "")
        )
    return jobs[-1], [one for one in jobs[:-1] if _is_like(one, jobs[-1], given["days"])]


def _is_like(one: Job, job: Job, days: int) -> bool:
    """Return whether a job is of the same system and name, and started in the days before."""
    same = one.system == job.system and one.facts.get("_job_name") == job.facts.get("_job_name")
    return same and one.span is not None and job.span is not None and one.span.start >= job.span.start - days * DAY_SECONDS


def _title(own: dict[str, Value], system: str, count: int, without: int, days: int) -> str:
    name = f" ({own['_job_name']})" if own.get("_job_name") else ""
    left_out = f"; {without} more have no data" if without else ""
    return f"job {own.get('_jobid', '')}{name} on {system}, and {count} earlier jobs of {days} days{left_out}"


def _draw(found: Umami, path: Path, title: str, zone: dt.tzinfo) -> None:
    try:
        from tokiod.analysis.umami_figure import save_figure  # noqa: PLC0415 - matplotlib, an extra

        save_figure(found, path, title, zone)
    except ModuleNotFoundError as error:
        raise NotInstalled(
            "a picture", "matplotlib", "the command prints a table", "pip install '.[plot]' in a checkout of tokiod"
        ) from error
    except OSError as error:
        raise Failed(f"--figure: {path}: {error.strerror or error}") from error


def _table(found: Umami) -> Table:
    names = ("metric", "this job", "25 %", "median", "75 %", "quarter", "rating")
    shown = table(*names, right=names[1:-2], spare=("25 %", "75 %"))
    for metric in found.metrics.values():
        percentiles, quarter = metric.percentiles, metric.quarter
        edges = ["-"] * 3 if percentiles is None else [f"{one:.4g}" for one in percentiles[:3]]
        value = "-" if metric.value is None else f"{metric.value:.4g}"
        shown.add_row(metric.label, value, *edges, "-" if quarter is None else ORDINALS[quarter], metric.rating or "-")
    return shown
