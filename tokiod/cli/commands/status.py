"""`tokioctl status`: the state of the sources and of the files being filled."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import click

from tokiod.cli.common.base import clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.output import echo_json
from tokiod.config import load as configuration
from tokiod.reports.status import Status, read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.config.load import Config

EXIT = {"fine": 0, "degraded": 1, "down": 2}


@click.command("status", epilog=examples("tokioctl status", "tokioctl status --watch"))
@click.option("--watch", is_flag=True, help="Refresh every second until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, times in UTC epoch seconds; one a second with --watch.")
@config_option
@clock_option
def status_command(config_path: Path, clock: Clock, *, as_json: bool, watch: bool) -> None:
    """Show every source and the files being filled.

    It reads the ledger and does not need the daemon. Exit 0 healthy, or watched until Ctrl-C, 1 degraded, 2 the daemon is down.
    """
    config = configuration.load(config_path)
    output = _as_json if as_json else _as_tables
    if watch:
        (_live if sys.stdout.isatty() and not as_json else partial(_every_second, output))(config, clock)
    sys.exit(EXIT[output(config, clock).health])


def gathered(config: Config, clock: Clock) -> Status:
    """Read the status of a configured archive. Raises TokiodError if the ledger can't be read."""
    return read(config, clock.time())


def _as_json(config: Config, clock: Clock) -> Status:
    now = gathered(config, clock)
    echo_json(now)
    return now


def _as_tables(config: Config, clock: Clock) -> Status:
    from tokiod.cli.commands.status_view import parts  # noqa: PLC0415 - without rich the JSON for monitoring takes 0.1 s
    from tokiod.cli.common.tables import show  # noqa: PLC0415 - as above

    now = gathered(config, clock)
    show(*parts(now))
    return now


def _every_second(output: Callable[[Config, Clock], Status], config: Config, clock: Clock) -> NoReturn:
    """Print the status every second until Ctrl-C."""
    try:
        while True:
            output(config, clock)
            time.sleep(1)  # noqa: TID251 - a real second, also with a simulated clock
    except KeyboardInterrupt:
        sys.exit(0)


def _live(config: Config, clock: Clock) -> NoReturn:
    """Refresh a terminal until Ctrl-C."""
    from rich.live import Live  # noqa: PLC0415 - as above

    from tokiod.cli.commands.status_view import rendered  # noqa: PLC0415

    def refresh(config: Config, clock: Clock) -> Status:
        now = gathered(config, clock)
        live.update(rendered(now), refresh=True)
        return now

    with Live(auto_refresh=False) as live:
        _every_second(refresh, config, clock)
