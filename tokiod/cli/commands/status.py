"""`tokioctl status`: the state of the sources and of the files being filled."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import click
import msgspec

from tokiod.cli.commands.completion import source_names
from tokiod.cli.common.base import clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.lookup import configured_source
from tokiod.cli.common.output import echo_json
from tokiod.cli.common.web_process import ask_web
from tokiod.clock import SystemClock
from tokiod.config import load as configuration
from tokiod.reports.hosts import read as read_hosts
from tokiod.reports.sinks import read as read_sinks
from tokiod.reports.status import Status, read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.config.schema import Config

EXIT = {"fine": 0, "degraded": 1, "down": 2}


@click.command("status", epilog=examples("tokioctl status", "tokioctl status cscratch-lmt", "tokioctl status --watch"))
@click.argument("source", required=False, shell_complete=source_names)
@click.option("--watch", is_flag=True, help="Refresh every second until Ctrl-C, the source with the most cells per second first.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, times in UTC epoch seconds; one a second with --watch.")
@config_option
@clock_option
def status_command(config_path: Path, clock: Clock, source: str | None, *, as_json: bool, watch: bool) -> None:
    """Show every source and the files being filled, or one source.

    With hosts, also each host: its last contact, and how far its clock is ahead where that is known.

    today: how much of what is due today is stored. With --watch, cells/s are those of the last minute. It reads the ledger and does not
    need the daemon. Exit 0 healthy, or watched until Ctrl-C, 1 degraded, 2 the daemon is down.
    """
    config = configuration.load(config_path)
    if source is not None:
        configured_source(config, source)
    gather = partial(gathered, config, clock, source)
    if as_json:
        _print(echo_json, gather, is_watched=watch)
    from tokiod.cli.commands.status_view import display  # noqa: PLC0415 - without rich the JSON for monitoring takes 0.1 s

    with display(is_single=source is not None, is_watched=watch) as output:
        _print(output, gather, is_watched=watch)


def gathered(config: Config, clock: Clock, only: str | None = None) -> Status:
    """Read the status of a configured archive, or of one source of it. Raises TokiodError if the ledger can't be read."""
    now, web, real_now = read(config, clock.time(), only), ask_web(config.web.address), SystemClock().time()
    sinks, hosts = read_sinks(config, clock.time(), real_now), read_hosts(config, real_now)
    return msgspec.structs.replace(now, web="" if web is None else web.sentence, sinks=sinks, hosts=hosts)


def _print(output: Callable[[Status], None], gather: Callable[[], Status], *, is_watched: bool) -> NoReturn:
    """Print the status once, or every second until Ctrl-C."""
    try:
        while is_watched:
            output(gather())
            time.sleep(1)  # noqa: TID251 - a real second, also with a simulated clock
    except KeyboardInterrupt:
        sys.exit(0)
    now = gather()
    output(now)
    sys.exit(EXIT[now.health])
