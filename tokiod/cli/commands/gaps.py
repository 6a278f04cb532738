"""`tokioctl gaps`: which data is missing in the archive, and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tokiod.cli.commands.completion import source_names
from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.lookup import check_system, polled_source
from tokiod.cli.common.output import echo, echo_json
from tokiod.cli.common.tables import show, table
from tokiod.cli.common.times import moment, zone_of
from tokiod.config import load as configuration
from tokiod.ledger.ledger import Ledger
from tokiod.ledger.published_copy import readable_ledger
from tokiod.reports.gaps import clipped, gaps, outages, seconds
from tokiod.times import span
from tokiod.window import LATEST, iso

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.reports.gaps import Gap

MAX_COLUMNS = 8
"""Columns that a row of a table names at most."""
_STYLES = {"lost": "red", "rejected": "red", "failed": "yellow", "empty": "yellow"}
NOT_POLLED = "which has no expected windows; `tokioctl status` shows the files it received"


@click.command(
    "gaps",
    epilog=examples(
        "tokioctl gaps", "tokioctl gaps cscratch-lmt --json", "tokioctl gaps cscratch/datatargets/readbytes --cells --start 1h"
    ),
)
@click.argument("sources", nargs=-1, metavar="[SOURCE|SYSTEM/DATASET]...", shell_complete=source_names)
@click.option("--cells", "of_cells", is_flag=True, help="Show the missing cells of SYSTEM/DATASET, and why each is missing.")
@click.option(
    "--start", metavar="TIME|SPAN", help="Start time, such as 2018-01-28T08:00:00Z, 1h or yesterday.  [default: all gaps, cells of today]"
)
@click.option("--end", metavar="TIME|SPAN", help="End time (exclusive), formats as --start.  [default: now]")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, times in UTC epoch seconds.")
@config_option
@clock_option
def gaps_command(
    config_path: Path, clock: Clock, sources: tuple[str, ...], start: str | None, end: str | None, *, of_cells: bool, as_json: bool
) -> None:
    """Show which expected data is not stored, and why. An outage is one row.

    due: not requested yet; failed: request failed, will be retried at "next try"; rejected: the writer can't store it; lost: no longer
    available; empty: the source had no record of it, nor of anything else then, and is queried again once it returns records. --cells also
    finds cells that are missing in stored time: no sample; first sample, fell or implausible (the samples of a counter).

    It reads the ledger, with --cells the files too, and does not need the daemon. Exit 0 no gaps, 1 gaps, 2 error.
    """
    config = configuration.load(config_path)
    now, zone = clock.time(), zone_of(config.timezone)
    last = int(now) if end is None else moment("--end", end, zone, now)
    first = None if start is None else moment("--start", start, zone, now)
    if first is not None and first >= last:
        raise Failed(f"the span would start at {iso(first)} and end at {iso(last)}; see --start and --end")
    if first is not None and first >= int(now):
        raise Failed(f"--start: {iso(first)} is not before now, {iso(now)}")
    if of_cells:
        found = _missing_cells(config, sources, first, last, now)
    else:
        found = clipped(_gaps(config, sources, now), first or 0, LATEST if end is None else last)
    if as_json:
        echo_json(found)
    elif found and of_cells:
        show(_table_of_cells(found))
    elif found:
        show(_table(outages(found), now), f"{span(seconds(found))} in all")
    else:
        asked = ("" if first is None else f" from {iso(first)}") + ("" if end is None else f" until {iso(last)}")
        echo(f"no {'missing cells' if of_cells else 'gaps'} in {', '.join(sources) or 'any source'}{asked}")
    sys.exit(1 if found else 0)


def _gaps(config: Config, names: tuple[str, ...], now: float) -> list[Gap]:
    for name in names:
        if "/" in name:
            raise Failed(f"{name} is a dataset: add --cells")
        polled_source(config, name, NOT_POLLED)
    sources = [source for source in config.source if not names or source.name in names]
    if (path := readable_ledger(config.archive)) is None:
        raise Failed(f"no ledger at {config.archive.ledger}: the daemon has never run on this archive")
    with Ledger.open_readonly(path) as ledger:
        return gaps(sources, ledger, config.calendar, now)


def _missing_cells(config: Config, names: tuple[str, ...], first: int | None, last: int, now: float) -> list[Gap]:
    from tokiod.reader.span import Span  # noqa: PLC0415 - HDF5 and numpy, which gaps of the ledger do not need
    from tokiod.reports.missing_cells import missing_cells  # noqa: PLC0415 - as above

    if len(names) != 1 or "/" not in names[0]:
        raise Failed("--cells needs one SYSTEM/DATASET, such as cscratch/datatargets/readbytes; `tokioctl ls SYSTEM:today` lists them")
    system, _, dataset = names[0].partition("/")
    check_system(config, system)
    start = min(config.calendar.day(last - 1).start, last - 1) if first is None else first
    return missing_cells(config, system, dataset, Span(start, last), now)


def _table(found: list[Gap], now: float) -> Table:
    names = ("source", "start", "end", "length", "state", "attempts", "next try", "reason")
    made = table(*names, right={"length", "attempts", "next try"}, folded={"reason"}, spare=("attempts", "next try"))
    for gap in found:
        made.add_row(*_cells(gap, now), style=_STYLES.get(gap.state, ""))
    return made


def _table_of_cells(found: list[Gap]) -> Table:
    made = table("start", "end", "length", "cells", "state", "columns", "reason", right={"length", "cells"}, folded={"columns", "reason"})
    for gap in found:
        more = len(gap.columns) - MAX_COLUMNS
        columns = ", ".join(gap.columns[:MAX_COLUMNS]) + (f" and {more} more" if more > 0 else "")
        cells = str(gap.cells or "-")
        row = (iso(gap.start), iso(gap.end), span(gap.end - gap.start), cells, gap.state, columns or "all", gap.reason)
        made.add_row(*row, style=_STYLES.get(gap.state, ""))
    return made


def _cells(gap: Gap, now: float) -> tuple[str, ...]:
    next_try = "-" if gap.next_try is None else f"in {span(max(0, int(gap.next_try - now)))}"
    length, attempts = span(gap.end - gap.start), str(gap.attempts or "-")
    return gap.source, iso(gap.start), iso(gap.end), length, gap.state, attempts, next_try, gap.reason
