"""`tokioctl status`: what the archive holds and how its sources do."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec

from tokiod import config as configuration
from tokiod.cli.plain import clock_option, config_option
from tokiod.status import Status, read

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.config import Config

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
    if watch:
        (_watch_json if as_json else _watch)(config, clock)
    now = gathered(config, clock)
    if as_json:
        click.echo(msgspec.json.encode(now).decode())
    else:
        from tokiod.cli.status_tables import parts  # noqa: PLC0415 - monitoring asks for JSON, in 0.1 s without rich
        from tokiod.cli.tables import show  # noqa: PLC0415 - as above

        show(*parts(now))
    sys.exit(EXIT[now.health])


def gathered(config: Config, clock: Clock) -> Status:
    """Read the status of a configured archive. Raises TokiodError where the ledger can't be read."""
    return read(config, clock.time())


def _watch_json(config: Config, clock: Clock) -> None:
    try:
        while True:
            click.echo(msgspec.json.encode(gathered(config, clock)).decode())
            time.sleep(1)  # noqa: TID251 - as below
    except KeyboardInterrupt:
        sys.exit(0)


def _watch(config: Config, clock: Clock) -> None:
    from rich.live import Live  # noqa: PLC0415 - as above

    from tokiod.cli.status_tables import rendered  # noqa: PLC0415

    try:
        with Live(rendered(gathered(config, clock)), auto_refresh=False) as live:
            while True:
                time.sleep(1)  # noqa: TID251 - a person's second, whatever the clock
                live.update(rendered(gathered(config, clock)), refresh=True)
    except KeyboardInterrupt:
        sys.exit(0)
