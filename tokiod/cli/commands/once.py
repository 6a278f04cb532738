"""`tokioctl once`: collect one window of sources and print a summary. Nothing is written."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tokiod.cli.commands.completion import source_names
from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.lookup import polled_source
from tokiod.cli.common.output import echo, echo_json
from tokiod.cli.common.roles import check_collected_here, collected_here
from tokiod.cli.common.tables import show, table
from tokiod.cli.common.times import moment
from tokiod.config import load as configuration
from tokiod.dropped import lines, sentence
from tokiod.errors import TokiodError
from tokiod.reports.one_window import Once, failed, query, query_all
from tokiod.runtime.interruption import run_until_interrupted
from tokiod.window import Window, iso

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from tokiod.clock import Clock

NOT_POLLED = "which has no windows: `tokioctl archive` reads such files"


@click.command("once", epilog=examples("tokioctl once", "tokioctl once cscratch-lmt"))
@click.argument("source", required=False, shell_complete=source_names)
@click.option("--window", metavar="TIME", help="Collect the window that holds this time.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, times in UTC epoch seconds; one per source without SOURCE.")
@config_option
@clock_option
def once_command(config_path: Path, clock: Clock, source: str | None, window: str | None, *, as_json: bool) -> None:
    """Collect one window of SOURCE and print what would be stored.

    Without SOURCE, query all sources of this host at the same time, a line for each. The default is the newest settled window. The command
    reads no ledger and writes no file; the daemon may run or not. With --json, a source that did not answer has a line too, with its
    `error`. Exit 0 collected, 2 failed; without SOURCE, 2 if any failed.
    """
    config = configuration.load(config_path)
    if source is None:
        if window is not None:
            raise Failed("--window: needs SOURCE")
        sections = [section for section in collected_here(config) if section.polled]
        found = run_until_interrupted(query_all(config, clock, sections, echo_json if as_json else _print_line))
        sys.exit(2 if any(one.error for one in found) else 0)
    section = polled_source(config, source, NOT_POLLED)
    check_collected_here(config, source)
    time = None if window is None else moment("--window", window, config.calendar.zone, clock.time())
    try:
        once = run_until_interrupted(query(config, clock, section, time))
    except TokiodError as error:
        if as_json:
            echo_json(failed(section, error))
        raise Failed(str(error)) from error
    if as_json:
        echo_json(once)
    else:
        _print(once)


def _print(once: Once) -> None:
    if once.datasets:
        show(_table(once))
    if once.tables:
        show(_tables(once))
    echo(summary(once))


def _table(once: Once) -> Table:
    names = ("dataset", "form", "cells", "columns", "first", "last", "sum", "units")
    made = table(*names, right={"cells", "columns", "sum"}, spare=("last", "columns", "form", "first"))
    for one in once.datasets:
        times = ("-" if time is None else iso(time) for time in (one.first, one.last))
        total = "-" if one.sum is None else f"{one.sum:.6g}"
        made.add_row(one.dataset, one.form, str(one.cells), str(one.columns), *times, total, one.units)
    return made


def _tables(once: Once) -> Table:
    made = table("table", "rows", "jobs", "targets", "first", "last", right={"rows", "jobs", "targets"}, spare=("last", "first"))
    for one in once.tables:
        times = ("-" if time is None else iso(time) for time in (one.first, one.last))
        made.add_row(one.table, str(one.rows), str(one.jobs), str(one.targets), *times)
    return made


def _print_line(once: Once) -> None:
    echo(summary(once), err=bool(once.error))


def summary(once: Once) -> str:
    """Return a line about what a source returned, or why it did not."""
    if once.error:
        return f"{once.source}: {once.error}"
    records = "" if once.records is None else f" of {once.records} records"
    rows = [f"{once.rows} rows"] if once.tables else []
    amount = " and ".join([*([f"{once.cells} cells{records}"] if once.datasets or not rows else []), *rows])
    text = f"{once.source} {Window(once.start, once.end)}: {amount} in {once.seconds:.1f} s; nothing was stored"
    text += f"\n{once.source} is incomplete: {once.trouble}" if once.trouble else ""
    if once.dropped:
        is_empty = not once.cells and not once.rows
        found = [f"{once.source} is up, but {sentence(once.dropped, once.why, 0)}"] if is_empty else lines(once.dropped, once.why)
        return "\n".join([text, *found])
    return text + (f"\n{once.source} is up, but has no record for this window; check {once.check}" if once.check else "")
