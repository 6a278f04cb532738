"""`tokioctl job`: the file system during a job or during thousands, with the keys of pytokio's summarize_job."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from tokiod.analysis.concurrent_jobs import KEYS as CONCURRENT_KEYS
from tokiod.analysis.health import KEYS as HEALTH_KEYS
from tokiod.analysis.job import OPERATIONS
from tokiod.analysis.own_nodes import KEYS as NODE_KEYS
from tokiod.analysis.own_traffic import KEYS as TRAFFIC_KEYS
from tokiod.cli.commands.completion import system_or_file_names
from tokiod.cli.commands.job_inputs import FACTS, NO_NUMBER, Job, of_csv, of_darshan, of_slurm, with_concurrent, with_numbers
from tokiod.cli.commands.job_summaries import of_table, summaries
from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.lookup import instead
from tokiod.cli.common.output import echo, echo_json
from tokiod.cli.common.tables import show, table
from tokiod.cli.common.times import moment, zone_of
from tokiod.config import load as configuration
from tokiod.config.site import SiteConfig
from tokiod.job_columns import NODES_SUFFIX
from tokiod.jobs.one_file import one_file
from tokiod.reader.files import Templates
from tokiod.reader.span import Span

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Mapping, Sequence

    from rich.table import Table

    from tokiod.cli.commands.job_inputs import Value
    from tokiod.clock import Clock
    from tokiod.config.schema import Config

    Form = Literal["json", "csv", "table"]

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
OWN_KEYS = (*TRAFFIC_KEYS, *NODE_KEYS)
"""Of the job itself."""
_LOADS = ["fs_ave_oss_cpu", "fs_max_oss_cpu", "fs_ave_mds_cpu", "fs_max_mds_cpu", "fs_frac_missing"]
KEYS = ["_jobid", "_file_system", "_datetime_start", "_datetime_end", *FACTS, *_TRANSFERS, *_LOADS, *_OPERATIONS, "reason"]
"""The columns of a CSV, in order; with --concurrent and --ost their keys follow."""


@click.command(
    "job",
    epilog=examples(
        "tokioctl job 4478544",
        "tokioctl job --system cscratch --start 2026-11-20T08:00:00 --end 2026-11-20T09:30:00",
        "tokioctl job --csv jobs.csv > summaries.csv",
        "tokioctl job --darshan vpicio.darshan --json",
        "tokioctl job 4478544 --system day.jobs",
    ),
)
@click.argument("jobid", required=False)
@click.option(
    "--system",
    shell_complete=system_or_file_names,
    help="The system, or a FILE of the job table.  [default: of a Slurm job, by site.mounts]",
)
@click.option("--start", metavar="TIME|SPAN", help="Start time: ISO 8601, or a time span before now such as 1h or 30d.")
@click.option("--end", metavar="TIME|SPAN", help="End time (exclusive), formats as --start.")
@click.option(
    "--csv",
    "csv_path",
    metavar="FILE",
    help="Many jobs: a CSV file with the columns jobid, start, end, system[, nodes][, jobidraw]; - is stdin.",
)
@click.option(
    "--darshan", "logs", multiple=True, metavar="LOG", type=click.Path(path_type=Path), help="A job by its Darshan log; may be repeated."
)
@click.option("--ost", is_flag=True, help="Also how full the OSTs were when the job started, and which failed over: keys fshealth_*.")
@click.option(
    "--concurrent", is_flag=True, help="Also what else ran: keys jobsdb_concurrent_*, by sacct, or with --csv by the file's jobs and nodes."
)
@click.option("--path", "templates", multiple=True, metavar="TEMPLATE", help="Template of the day files, instead of the configuration's.")
@click.option("--timezone", metavar="ZONE", help="IANA time zone of all times.  [default: the configuration's, else UTC]")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each job.")
@config_option
@clock_option
def job_command(config_path: Path, clock: Clock, jobid: str | None, templates: tuple[str, ...], **given: Any) -> None:
    """Summarize a system while a job ran.

    A job of Slurm by its JOBID (12, 12_3 of an array, 12.0 a step; sacct is run), any by --system, --start and --end, many by --csv, or by
    --darshan, which adds keys darshan_* and has a row for each system that the job has files on, by site.mounts. In a FILE of the job
    table, as `tokioctl archive` writes it, any job that it has, without sacct and with keys job_* alone. The keys are those of pytokio's
    summarize_job; fs_sys_* are operations of all metadata targets together; job_* are what the job itself read, wrote and did on the
    servers, and used on its nodes, where the job tables have it. Times are UTC epoch seconds.

    With --csv the output is CSV (or JSON lines), in the order of the input. Job tables have a task of an array (12_3) by its JobIDRaw: that
    of the column jobidraw, else sacct's. A job without data has a reason instead. Exit 0 all jobs have data, 1 a job has none, 2 failed.
    """
    _check_one_way(jobid, given)
    if given["system"] is not None and (alone := one_file(Path(given["system"]))) is not None:
        if jobid is None:
            raise Failed(f"JOBID: missing; --system {given['system']} is a file of the job table, which has jobs alone")
        sys.exit(_print(iter([of_table(alone, jobid)]), 1, {}, form=_form(given), more=OWN_KEYS))
    config = None if templates else configuration.load(config_path)
    zone = zone_of(given["timezone"] or (config.timezone if config else "UTC"))
    now = clock.time()
    jobs = _jobs(jobid, given, config, zone, now)
    if given["concurrent"]:
        site = SiteConfig() if config is None else config.site
        jobs = with_concurrent(jobs, None if given["csv_path"] is not None else site, zone, now)
    files = Templates(templates if config is None else config.templates)
    nodes = () if config is None else tuple(sorted(system for system in config.systems if system.endswith(NODES_SUFFIX)))
    has_own = any(files.jobs(system).dates() for system in {job.system for job in jobs}.difference(nodes) if system)
    on_nodes = any(files.jobs(system).dates() for system in nodes)
    if given["csv_path"] is not None and (has_own or on_nodes):
        jobs = with_numbers(jobs, (SiteConfig() if config is None else config.site).sacct, zone)
    found = summaries(jobs, files, None if config is None else config.calendar, nodes=nodes, with_health=given["ost"])
    no_number = [NO_NUMBER] * any(NO_NUMBER in job.facts for job in jobs)
    own = (*(TRAFFIC_KEYS if has_own else ()), *(NODE_KEYS if on_nodes else ()), *no_number)
    more = (*own, *(CONCURRENT_KEYS if given["concurrent"] else ()), *(HEALTH_KEYS if given["ost"] else ()))
    sys.exit(_print(found, len(jobs), {} if config is None else config.site.names, form=_form(given), more=more))


def _jobs(jobid: str | None, given: dict[str, Any], config: Config | None, zone: dt.tzinfo, now: float) -> list[Job]:
    """Return the jobs that the options name in one of these ways. Raises Failed, TokiodError."""
    if config is not None and given["system"] is not None and given["system"] not in config.systems:
        raise Failed(f"unknown system {given['system']!r}{instead(given['system'], config.systems)}")
    site, systems = (SiteConfig(), frozenset[str]()) if config is None else (config.site, config.systems)
    only = next(iter(systems)) if len(systems) == 1 else None
    if jobid is not None:
        return of_slurm(jobid, site, given["system"], only, zone, now)
    if given["logs"]:
        return list(of_darshan(given["logs"], site, given["system"], only))
    if given["csv_path"] is not None:
        return list(of_csv(given["csv_path"], zone, now))
    missing = [f"--{name}" for name in ("system", "start", "end") if given[name] is None]
    if missing:
        raise Failed(f"{', '.join(missing)}: missing; give JOBID, or --system, --start and --end, or --csv, or --darshan")
    start, end = (moment(f"--{name}", given[name], zone, now) for name in ("start", "end"))
    return [Job("", given["system"], Span(start, end))]


def _check_one_way(jobid: str | None, given: dict[str, Any]) -> None:
    ways = ["JOBID"] * (jobid is not None) + ["--csv"] * (given["csv_path"] is not None)
    ways += ["--darshan"] * bool(given["logs"])
    ways += ["--start and --end"] * (given["start"] is not None or given["end"] is not None)
    if len(ways) > 1:
        raise Failed(f"{' and '.join(ways)} name jobs in different ways; give one of them")


def _form(given: dict[str, Any]) -> Form:
    return "json" if given["as_json"] else "table" if given["csv_path"] is None else "csv"


def _print(found: Iterator[dict[str, Value]], count: int, names: Mapping[str, str], *, form: Form, more: Sequence[str]) -> int:
    """Print each job; return the exit code. names: of systems in tables; more: columns of a CSV."""
    status = 0
    # With the end of a line, which csv knows then: it quotes texts that have one.
    writer = csv.DictWriter(_Lines(), [*KEYS, *more], restval="", lineterminator="\n")
    if form == "csv":
        writer.writeheader()
    with click.progressbar(found, length=count, label="jobs", file=sys.stderr, hidden=not (sys.stderr.isatty() and count > 1)) as rows:
        for row in rows:
            status |= "reason" in row
            if form == "json":
                echo_json(row)
            elif form == "csv":
                writer.writerow(row)
            elif "reason" in row and count == 1:
                raise Failed(str(row["reason"]))
            else:
                show(_table(row, names))
    return int(status)


class _Lines:
    """A file of csv that prints lines."""

    def write(self, text: str) -> None:
        """Print one line with its end."""
        echo(text, newline=False)


def _table(row: dict[str, Value], names: Mapping[str, str]) -> Table:
    has_own = any(key in row for key in OWN_KEYS)
    shown = table("key", "value", *(["of the job"] if has_own else []), right={"value", "of the job"})
    for key, value in row.items():
        own = key.replace("fs_", "job_", 1) if key.startswith("fs_") else ""
        if key in OWN_KEYS and key.replace("job_", "fs_", 1) in row:
            continue  # next to that of the system
        texts = [names.get(str(value), str(value)) if key == "_file_system" else _text(value)]
        if has_own:
            texts = ["", texts[0]] if key in OWN_KEYS else [*texts, _text(row[own]) if own in row else ""]
        shown.add_row(key, *texts)
    return shown


def _text(value: Value) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
