"""`tokiod agent`: what the sensors of this node measure."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import click

from tokiod.agent.report import MAX_SECONDS, MIN_SECONDS, as_json, as_text, node_report
from tokiod.agent.sensors import SENSORS, sensors_of
from tokiod.agent.service import run_agent
from tokiod.agent.settings import DEFAULT_CONFIG, SettingsError, read_settings, settings_of_node
from tokiod.agent.tree import Tree
from tokiod.cli.common.base import Finite, clock_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.output import echo
from tokiod.errors import ConfigError

if TYPE_CHECKING:
    from tokiod.clock import Clock


@click.command(
    "agent", epilog=examples("tokiod agent", "tokiod agent --once", "tokiod agent --once --seconds 10", "tokiod agent --once --json")
)
@click.option("--config", "config_path", type=click.Path(), default=DEFAULT_CONFIG, show_default=True, help="The agent's configuration.")
@click.option("--once", "is_once", is_flag=True, help="Print what this node would report, and end.")
@click.option(
    "--seconds",
    type=Finite(MIN_SECONDS, MAX_SECONDS),
    help="Measure for so long: increases of counters, means of gauges and the jobs that end.",
)
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False),
    default="/",
    show_default=True,
    help="The directory below which /proc, /sys and /dev are read.",
)
@click.option("--json", "is_json", is_flag=True, help="Print one line of JSON.")
@clock_option
def agent_command(config_path: str, root: str, seconds: float | None, clock: Clock, *, is_once: bool, is_json: bool) -> None:
    """Report what this node measures to the hub.

    It runs until SIGTERM (docs/nodes.md); with --once it prints what it would report, and ends. That needs no configuration; where
    there is one, its sensors and perf events count.

    Sensors that find nothing to read are listed with the reason (docs/sensors.md). `python -m tokiod.agent` does the same without any
    package but pyzmq. Exit 0 printed or stopped, 2 for errors in the configuration.
    """
    names = frozenset(sensor.name for sensor in SENSORS)
    if not is_once and (is_json or seconds):
        raise click.UsageError("--json and --seconds need --once")
    try:
        if not is_once:
            run_agent(read_settings(config_path, platform.node(), names), root, clock.time, clock.monotonic)
            return
        settings = settings_of_node(config_path, platform.node(), names)
    except SettingsError as error:
        raise ConfigError(str(error).splitlines()) from None
    report = node_report(platform.node(), clock.time, clock.monotonic, sensors_of(Tree(root), settings), seconds or 0.0)
    echo(as_json(report) if is_json else as_text(report))
