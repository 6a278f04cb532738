"""`tokioctl gaps`: which data is missing in the archive, and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tokiod.cli.commands.completion import source_names
from tokiod.cli.commands.status_view import span
from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.lookup import polled_source
from tokiod.cli.common.output import echo, echo_json
from tokiod.cli.common.tables import show, table
from tokiod.config import load as configuration
from tokiod.ledger.ledger import Ledger
from tokiod.ledger.published_copy import readable_ledger
from tokiod.reports.gaps import gaps, seconds
from tokiod.window import iso

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from tokiod.clock import Clock
    from tokiod.reports.gaps import Gap

NOT_POLLED = "which has no expected windows; `tokioctl status` shows the files it received"


@click.command("gaps", epilog=examples("tokioctl gaps", "tokioctl gaps --json"))
@click.argument("sources", nargs=-1, metavar="[SOURCE]...", shell_complete=source_names)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, times in UTC epoch seconds.")
@config_option
@clock_option
def gaps_command(sources: tuple[str, ...], config_path: Path, clock: Clock, *, as_json: bool) -> None:
    """Show which expected data is not stored, and why.

    due: not requested yet; failed: request failed, will be retried at "next try"; rejected: the writer can't store it; lost: no longer
    available; empty: the source had no record of it, nor of anything else then, and is queried again once it returns records. It reads the
    ledger and does not need the daemon. Exit 0 no gaps, 1 gaps, 2 error.
    """
    config = configuration.load(config_path)
    for name in sources:
        polled_source(config, name, NOT_POLLED)
    now = clock.time()
    if (path := readable_ledger(config.archive)) is None:
        raise Failed(f"no ledger at {config.archive.ledger}: the daemon has never run on this archive")
    with Ledger.open_readonly(path) as ledger:
        found = gaps(config, ledger, now, sources)
    if as_json:
        echo_json(found)
    elif found:
        show(_table(found, now), f"{span(seconds(found))} in all")
    else:
        echo(f"no gaps in {', '.join(sources) or 'any source'}")
    sys.exit(1 if found else 0)


def _table(found: list[Gap], now: float) -> Table:
    names = ("source", "start", "end", "length", "state", "attempts", "next try", "reason")
    made = table(*names, right={"length", "attempts", "next try"}, folded={"reason"})
    for gap in found:
        style = {"lost": "red", "rejected": "red", "failed": "yellow", "empty": "yellow"}.get(gap.state, "")
        made.add_row(*_cells(gap, now), style=style)
    return made


def _cells(gap: Gap, now: float) -> tuple[str, ...]:
    next_try = "-" if gap.next_try is None else f"in {span(max(0, int(gap.next_try - now)))}"
    length, attempts = span(gap.end - gap.start), str(gap.attempts or "-")
    return gap.source, iso(gap.start), iso(gap.end), length, gap.state, attempts, next_try, gap.reason
