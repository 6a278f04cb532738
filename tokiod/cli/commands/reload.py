"""`tokioctl reload`: load a changed configuration into the running daemon."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import click
import msgspec

from tokiod.cli.common.base import Failed, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.output import echo, echo_json
from tokiod.cli.common.web_process import ask_web, listening_pid
from tokiod.config import load as configuration
from tokiod.errors import ConfigError, TokiodError
from tokiod.supervisor.child_process import RELOAD_LIMIT_SECONDS
from tokiod.supervisor.control_socket import Refused, Reload, Reloaded, ask
from tokiod.supervisor.supervisor import READY_LIMIT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

ANSWER_TIMEOUT_SECONDS = 2 * RELOAD_LIMIT_SECONDS + READY_LIMIT_SECONDS
WEB_PAUSE_SECONDS = 0.05
NOT_SIGNALLED = (
    "tokiod web keeps its configuration: this user can't signal its process; as root, run `systemctl reload tokiod-web`, or send it SIGHUP"
)
KEPT = "the daemon keeps its current configuration"


@click.command("reload", epilog=examples("tokioctl reload"))
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON: the changed sources and other keys.")
@config_option
def reload_command(config_path: Path, *, as_json: bool) -> None:
    """Load the changed configuration into the running daemon.

    SIGHUP does the same; this command waits until the configuration is in use. Unchanged sources are not interrupted. Changes outside
    of sources restart the daemon's processes; no data is lost. With any error the daemon keeps its current configuration. `tokiod web`
    reloads too where it runs and this user may signal it. Exit 0 loaded, 2 refused, or no daemon.
    """
    try:
        config = configuration.load(config_path)
    except ConfigError as error:
        raise Failed("\n".join([*error.faults, KEPT])) from error
    answer = ask(config.control, Reload(), ANSWER_TIMEOUT_SECONDS)
    if isinstance(answer, Refused):
        raise Failed("\n".join([*answer.faults, KEPT]))
    if not isinstance(answer, Reloaded):
        raise TokiodError(f"unexpected answer from the daemon: {answer}")
    if reason := _reload_web(config.web.address):
        answer = msgspec.structs.replace(answer, warnings=[*answer.warnings, reason])
    if as_json:
        echo_json(answer)
        return
    echo(_sentence(answer))
    for warning in answer.warnings:
        echo(f"warning: {warning}", err=True)


def _reload_web(address: str) -> str:
    """Have `tokiod web` reload, and wait until it has; return why it has not, "" if it has or does not run."""
    if (before := ask_web(address)) is None:
        return ""
    pid = listening_pid(address) if before.pid is None and before.health else before.pid
    if pid is None:
        return NOT_SIGNALLED
    try:
        os.kill(pid, signal.SIGHUP)
    except (PermissionError, ProcessLookupError):
        return NOT_SIGNALLED
    limit = time.monotonic() + RELOAD_LIMIT_SECONDS
    while (now := ask_web(address)) is not None and time.monotonic() < limit:
        if now.reloads.get("refused", 0) > before.reloads.get("refused", 0):
            return "tokiod web keeps its current configuration; its log has the reasons"
        if now.reloads.get("loaded", 0) > before.reloads.get("loaded", 0):
            return ""
        time.sleep(WEB_PAUSE_SECONDS)  # noqa: TID251 - there is nothing to wait for but the next answer
    return f"tokiod web has not reloaded within {RELOAD_LIMIT_SECONDS:g} s"


def _sentence(done: Reloaded) -> str:
    changes = [
        f"{what} {', '.join(names)}"
        for what, names in (("added", done.added), ("removed", done.removed), ("changed", done.changed))
        if names
    ]
    changes += [f"changed keys {', '.join(done.keys)}"] if done.keys else []
    changes += ["all processes restarted"] if done.restarted else []
    return "; ".join(changes) or "nothing changed"
