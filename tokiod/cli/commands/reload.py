"""`tokioctl reload`: another configuration for the running daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from tokiod.cli.common.base import Failed, config_option
from tokiod.config import load as configuration
from tokiod.errors import ConfigError
from tokiod.supervisor.child_process import RELOAD_LIMIT
from tokiod.supervisor.control_socket import Refused, Reload, Reloaded, ask
from tokiod.supervisor.supervisor import READY_LIMIT

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 2 * RELOAD_LIMIT + READY_LIMIT
KEPT = "the daemon goes on with the configuration it had"


@click.command("reload")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON: the sources by what became of them.")
@config_option
def reload_command(config_path: Path, *, as_json: bool) -> None:
    """Have the running daemon read its configuration again.

    As SIGHUP does, but it waits until the daemon works with it. Sources that did not change go on undisturbed. What concerns more than
    sources restarts the daemon's processes: nothing is lost. With any error the daemon keeps the configuration it has. Exit 0 done, 2
    refused, or no daemon.
    """
    try:
        config = configuration.load(config_path)
    except ConfigError as error:
        raise Failed("\n".join([*error.faults, KEPT])) from error
    answer = ask(config.control, Reload(), PATIENCE)
    if isinstance(answer, Refused):
        raise Failed("\n".join([*answer.faults, KEPT]))
    if as_json:
        click.echo(msgspec.json.encode(answer).decode())
    elif isinstance(answer, Reloaded):
        click.echo(_sentence(answer))


def _sentence(done: Reloaded) -> str:
    told = [
        f"{what} {', '.join(names)}"
        for what, names in (("added", done.added), ("removed", done.removed), ("changed", done.changed))
        if names
    ]
    told += ["all processes restarted"] if done.restarted else []
    return "; ".join(told) or "nothing changed"
