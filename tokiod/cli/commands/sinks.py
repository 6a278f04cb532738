"""`tokioctl sinks`: the state of the sinks, and a request to send a span again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tokiod.cli.commands.completion import sink_names
from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.output import echo, echo_json
from tokiod.cli.common.times import moment
from tokiod.clock import SystemClock
from tokiod.config import load as configuration
from tokiod.errors import TokiodError
from tokiod.forwarding import rewind
from tokiod.reports.sinks import configured_sink, read
from tokiod.window import iso

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.config.schema import Config


@click.command("sinks", epilog=examples("tokioctl sinks", "tokioctl sinks --json", "tokioctl sinks rewind kafka --from 2026-11-01"))
@click.argument("action", required=False, type=click.Choice(["rewind"]))
@click.argument("name", required=False, shell_complete=sink_names)
@click.option(
    "--from", "start", metavar="TIME", help="With rewind: send all rows from this time on again; a date, or a time as in backfill."
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, times in UTC epoch seconds.")
@config_option
@clock_option
def sinks_command(config_path: Path, clock: Clock, action: str | None, name: str | None, start: str | None, *, as_json: bool) -> None:
    """Show every sink, or have one send rows again.

    lag: how many changes its receiver has not acknowledged, and the age of the first of them; backlog: how much of the archive it sends
    besides. `rewind NAME --from TIME` works on a sink that runs and on one that is stopped. Exit 0 fine, or requested, 1 a sink is not
    fine, 2 not possible.
    """
    config = configuration.load(config_path)
    if action is not None:
        _rewind(config, clock, name, start, as_json=as_json)
        return
    if start is not None:
        raise Failed("--from: it is an option of `tokioctl sinks rewind NAME`")
    found = read(config, clock.time(), SystemClock().time())
    if found and all(one.trouble == "unknown" for one in found):
        raise TokiodError(found[0].reason)
    if as_json:
        echo_json(found)
    elif not found:
        echo("no [[sink]] is configured", err=True)
    else:
        from tokiod.cli.commands.sinks_view import print_sinks  # noqa: PLC0415 - without rich the JSON for monitoring takes 0.1 s

        print_sinks(found)
    sys.exit(int(any(one.trouble for one in found)))


def _rewind(config: Config, clock: Clock, name: str | None, start: str | None, *, as_json: bool) -> None:
    if name is None or start is None:
        raise Failed("write `tokioctl sinks rewind NAME --from TIME`")
    configured_sink(config, name)
    since = moment("--from", start, config.calendar.zone, clock.time())
    if since > clock.time():
        raise Failed(f"--from: {iso(since)} is after now, {iso(clock.time())}")
    rewind.request(config.sink_state / name, since)
    if as_json:
        echo_json([one for one in read(config, clock.time(), SystemClock().time()) if one.name == name])
        return
    echo(f"{name} sends all rows from {iso(since)} on again; tokioctl sinks shows its backlog")
