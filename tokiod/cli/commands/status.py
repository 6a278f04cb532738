"""`tokioctl status`: what the archive holds and how its sources do."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import click
import msgspec

from tokiod.cli.common.base import clock_option, config_option
from tokiod.config import load as configuration
from tokiod.reports.status import Status, read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.config.load import Config

EXIT = {"fine": 0, "degraded": 1, "down": 2}


@click.command("status")
@click.option("--watch", is_flag=True, help="Refresh every second until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, times in UTC epoch seconds; one a second with --watch.")
@config_option
@clock_option
def status_command(config_path: Path, clock: Clock, *, as_json: bool, watch: bool) -> None:
    """Show every source and the files being filled.

    Works from the ledger when the daemon is down. Exit 0 fine, or watched until Ctrl-C, 1 degraded, 2 the daemon is down.
    """
    config = configuration.load(config_path)
    tell = _told if as_json else _shown
    if watch:
        (_live if sys.stdout.isatty() and not as_json else partial(_every_second, tell))(config, clock)
    sys.exit(EXIT[tell(config, clock).health])


def gathered(config: Config, clock: Clock) -> Status:
    """Read the status of a configured archive. Raises TokiodError where the ledger can't be read."""
    return read(config, clock.time())


def _told(config: Config, clock: Clock) -> Status:
    now = gathered(config, clock)
    click.echo(msgspec.json.encode(now).decode())
    return now


def _shown(config: Config, clock: Clock) -> Status:
    from tokiod.cli.commands.status_view import parts  # noqa: PLC0415 - monitoring asks for JSON, in 0.1 s without rich
    from tokiod.cli.common.tables import show  # noqa: PLC0415 - as above

    now = gathered(config, clock)
    show(*parts(now))
    return now


def _every_second(tell: Callable[[Config, Clock], Status], config: Config, clock: Clock) -> NoReturn:
    """Tell it again and again until Ctrl-C."""
    try:
        while True:
            tell(config, clock)
            time.sleep(1)  # noqa: TID251 - a person's second, whatever the clock
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
