"""`tokioctl stages`: where the time of each window and file went."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tokiod.cli.commands.completion import source_names
from tokiod.cli.common.base import Failed, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.lookup import configured_source
from tokiod.cli.common.output import echo, echo_json
from tokiod.cli.common.tables import PIPE_WIDTH, Printer, line, show, table
from tokiod.cli.common.times import moment, zone_of
from tokiod.clock import SystemClock
from tokiod.config import load as configuration
from tokiod.reports.stages import chosen, read_stages, report
from tokiod.reports.stages_text import draw_stages, format_seconds
from tokiod.reports.stages_trace import trace

if TYPE_CHECKING:
    from rich.table import Table

    from tokiod.reports.stages import StagedWork, StageRow

FORMATS = (".png", ".svg", ".pdf")
NO_MATPLOTLIB = "a picture needs matplotlib: pip install 'tokiod[plot]'; without --figure the command draws in the terminal"


@click.command(
    "stages",
    epilog=examples("tokioctl stages", "tokioctl stages cscratch-lmt --since 10m", "tokioctl stages --since 1d --trace stages.json"),
)
@click.argument("source", required=False, shell_complete=source_names)
@click.option(
    "--since", metavar="TIME|SPAN", default="1h", show_default=True, help="Leave out what ended before: 1h, or 2018-01-28T08:00:00Z."
)
@click.option(
    "--slowest",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    metavar="COUNT",
    help="How many of the slowest are drawn and listed.",
)
@click.option(
    "--trace", "trace_path", type=click.Path(path_type=Path, dir_okay=False), help="Write all as a trace, which ui.perfetto.dev opens."
)
@click.option("--figure", type=click.Path(path_type=Path, dir_okay=False), help="Draw the chart to a picture: .svg, .png or .pdf.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, times in UTC epoch seconds.")
@config_option
def stages_command(
    config_path: Path, source: str | None, since: str, slowest: int, trace_path: Path | None, figure: Path | None, *, as_json: bool
) -> None:
    """Show where the time of windows and files went.

    The bars are the slowest windows and rewrites of files, of SOURCE or of all; the table is about all of them.

    due: settled, not asked for yet; ask: until the collector waits for the source; fetch: it waits; parse: it computes; submit: the bus has
    no room; bus: on the way to the writer; apply: into the file; sync: to the disk; ledger: its transaction; ack: on the way back. They
    add up to the age of a window at its acknowledgement. feed: its publication. make, grow, reopen, seal, convert: rewrites of files.

    It reads what the processes recorded since the boot, also after a kill, and does not need the daemon. Times of a simulation are real
    ones, but for due. Exit 0 shown, 2 error.
    """
    if figure is not None and figure.suffix not in FORMATS:
        raise Failed(f"--figure: {figure} must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    config = configuration.load(config_path)
    names = set() if source is None else {source, configured_source(config, source).system}
    now = SystemClock().time()
    works = read_stages(config.stages)
    if not works:
        raise Failed(f"no stages are recorded in {config.stages}: the daemon has not run on this machine")
    first = moment("--since", since, zone_of(config.timezone), now)
    works = chosen(works, names, first)
    found = report(works, slowest)
    if trace_path is not None:
        _write(trace_path, works)
    if figure is not None and found.slowest:
        _draw(figure, found.slowest)
    if as_json:
        echo_json(found)
    elif not found.slowest:
        echo(f"no window or file since {since}")
    else:
        width = Printer().width if sys.stdout.isatty() else PIPE_WIDTH // 2
        show(*(line(text) for text in draw_stages(found.slowest, width)), "", _table(found.stages))


def _table(rows: list[StageRow]) -> Table:
    made = table("stage", "n", "median", "p95", "max", "share", right={"n", "median", "p95", "max", "share"})
    for row in rows:
        share = "-" if row.stage == "feed" else f"{row.share:.1%}"
        made.add_row(row.stage, str(row.n), *map(format_seconds, (row.median, row.p95, row.max)), share)
    return made


def _write(path: Path, works: list[StagedWork]) -> None:
    try:
        path.write_bytes(msgspec.json.encode(trace(works)))
    except OSError as error:
        raise Failed(f"--trace: {path}: {error.strerror or error}") from error


def _draw(path: Path, works: list[StagedWork]) -> None:
    # matplotlib warns of a home directory that it can't write to, and draws all the same.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        from tokiod.reports.stages_figure import save_stages  # noqa: PLC0415 - matplotlib, an extra

        save_stages(works, path)
    except ImportError:
        raise Failed(NO_MATPLOTLIB) from None
    except OSError as error:
        raise Failed(f"--figure: {path}: {error.strerror or error}") from error
