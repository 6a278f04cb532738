"""`tokioctl backfill`: collect a past time span of a source, in the running daemon or without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tokiod.cli.commands.backfill_in_daemon import check_may_ask, follow, is_down
from tokiod.cli.commands.backfill_view import tell_jobs
from tokiod.cli.commands.completion import dataset_names, source_names
from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.lookup import filled_datasets, polled_source
from tokiod.cli.common.output import echo
from tokiod.cli.common.roles import check_collected_here
from tokiod.cli.common.times import moment
from tokiod.collector import Site
from tokiod.config import load as configuration
from tokiod.config import plugins
from tokiod.ledger.jobs import JobRequest
from tokiod.window import Window, iso

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.collector import SourceConfig
    from tokiod.config.schema import Config

NOT_POLLED = "which is not queried: put the files of that time into the folder"


@click.command("backfill", epilog=examples("tokioctl backfill cscratch-lmt 2026-11-01 2026-11-02", "tokioctl backfill --list"))
@click.argument("source", required=False, shell_complete=source_names)
@click.argument("start", required=False)
@click.argument("end", required=False)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    shell_complete=dataset_names,
    help="Only this dataset, e.g. dataservers/cpuload; may be repeated.",
)
@click.option("--force", is_flag=True, help="Collect stored windows again, too.")
@click.option("--parallel", type=click.IntRange(1, 16), default=1, show_default=True, help="Number of windows collected at the same time.")
@click.option("--detach", is_flag=True, help="Start the work in the daemon and do not wait.")
@click.option("--list", "listed", is_flag=True, help="Show all jobs, or those of SOURCE.")
@click.option("--cancel", type=int, metavar="ID", help="Cancel a job. Data that it stored is kept.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, times in UTC epoch seconds.")
@config_option
@clock_option
def backfill_command(
    config_path: Path, clock: Clock, source: str | None, start: str | None, end: str | None, datasets: tuple[str, ...], parallel: int,
    cancel: int | None, *, force: bool, detach: bool, listed: bool, as_json: bool,
) -> None:  # fmt: skip
    """Collect what is not stored of SOURCE from START to END.

    START, END: 2018-01-28, 2018-01-28T00:00:00 (local to the site), 2018-01-28T08:00:00Z, 1h (before now), now, today or yesterday. Windows
    that are not settled yet are left to polling. The daemon collects the rest, after live data; without a daemon, this command does. An
    interrupted backfill is resumed by the daemon, or without a daemon by the same command. With --force, the same command in a daemon
    collects all of the span again, also what an unfinished job has collected. Exit 0 done, 1 failed or cancelled, 2 not possible.
    """
    config = configuration.load(config_path)
    if listed or cancel is not None:
        if start is not None or (listed and cancel is not None) or (source is not None and not listed):
            raise Failed("use --list or --list SOURCE or --cancel ID, without START and END")
        tell_jobs(config, clock, source, cancel, as_json=as_json)
        return
    if source is None or start is None or end is None:
        raise Failed("backfill needs SOURCE START END, or --list, or --cancel ID")
    section = polled_source(config, source, NOT_POLLED)
    span, chosen = _span(config, section, clock, start, end), filled_datasets(section, datasets)
    wanted = JobRequest(source, span, tuple(sorted(chosen)) if datasets else (), force, parallel)
    _check_replayable(config, section, clock)
    if is_down(config):
        check_may_ask(config)
        if detach:
            raise Failed("--detach: no daemon runs on this archive; start it, or omit --detach")
        check_collected_here(config, source)
        from tokiod.cli.commands.backfill_here import DaemonStarted, run_alone  # noqa: PLC0415 - only needed without a daemon

        try:
            run_alone(config, config_path, clock, section, wanted, as_json=as_json)
        except DaemonStarted:
            echo("a daemon has started at the same time and writes to this archive", err=True)
        else:
            return
    follow(config, clock, wanted, detach=detach, as_json=as_json)


def _span(config: Config, section: SourceConfig, clock: Clock, start: str, end: str) -> Window:
    """Return the time span, widened to the edges of the source's windows, up to the newest one that is settled."""
    calendar = config.calendar
    now = clock.time()
    first, last = moment("START", start, calendar.zone, now), moment("END", end, calendar.zone, now)
    if first >= last:
        raise Failed(f"START {start} must be before END {end}")
    settled = calendar.window(int(now - section.settle), section.window).start
    first, last = calendar.window(first, section.window).start, calendar.window(last - 1, section.window).end
    if first >= settled:
        raise Failed(f"START {start} must be before {iso(settled)}: polling collects newer data")
    span = Window(first, min(last, settled))
    if last > settled:
        echo(f"{section.name}: only {span} can be collected now: polling collects newer data", err=True)
    return span


def _check_replayable(config: Config, section: SourceConfig, clock: Clock) -> None:
    collector = plugins.load(section.kind).live(section, Site(config.calendar, clock, config.secret, hub=config.hub_inner))
    if not collector.replayable:
        raise Failed(f"{section.name} cannot be queried about the past")
