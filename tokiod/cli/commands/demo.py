"""`tokiod demo`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click

from tokiod.cli.common.examples import examples


@click.command("demo", epilog=examples("tokiod demo", "tokiod demo --page 60"))
@click.option(
    "--directory", type=click.Path(path_type=Path, file_okay=False), help="Directory of the demo.  [default: a new temporary one]"
)
@click.option("--seconds", type=click.IntRange(10, 3600), default=45, show_default=True, help="Duration in real seconds.")
@click.option("--rate", type=click.IntRange(1, 240), default=60, show_default=True, help="Simulated seconds per second.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the simulated load.")
@click.option(
    "--page",
    type=click.IntRange(0, 3600),
    default=0,
    help="Serve the live page on this machine, also for so many seconds after everything is stored.  [default: no page]",
)
def demo_command(directory: Path | None, seconds: int, rate: int, seed: int, page: int) -> None:
    """Archive a simulated site, kill the writer, compare every cell.

    Exit 0 every cell is correct, 1 a cell differs, 2 could not run.
    """
    from tokiod.cli.commands.demonstration import demonstrate  # noqa: PLC0415 - the daemon does not import the simulator

    # What it started ends with it, also when the terminal is closed.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    sys.exit(0 if demonstrate(directory, seconds, rate, seed, page) else 1)
