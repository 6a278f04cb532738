"""`tokiod agent`: what the sensors of this node measure."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import click

from tokiod.agent.report import MAX_SECONDS, MIN_SECONDS, as_json, as_text, node_report
from tokiod.cli.common.base import clock_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.output import echo

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.clock import Clock


@click.command("agent", epilog=examples("tokiod agent --once", "tokiod agent --once --seconds 10", "tokiod agent --once --json"))
@click.option(
    "--once", "is_once", is_flag=True, help="Print what this node would report, and end. Required: a lasting agent is still to come."
)
@click.option(
    "--seconds",
    type=click.FloatRange(MIN_SECONDS, MAX_SECONDS),
    help="Measure for so long: increases of counters, means of gauges and the jobs that end.",
)
@click.option("--root", type=click.Path(), default="/", show_default=True, help="The directory below which /proc, /sys and /dev are read.")
@click.option("--json", "is_json", is_flag=True, help="Print one line of JSON.")
@clock_option
def agent_command(root: Path, seconds: float | None, clock: Clock, *, is_once: bool, is_json: bool) -> None:
    """Print what the sensors of this node measure.

    Sensors that find nothing to read are listed with the reason (docs/sensors.md). `python -m tokiod.agent` does the same without any
    package. Exit 0 printed, 2 without --once.
    """
    if not is_once:
        raise click.UsageError("add --once: a lasting agent is still to come")
    report = node_report(platform.node(), clock.time, clock.monotonic, str(root), seconds or 0.0)
    echo(as_json(report) if is_json else as_text(report))
