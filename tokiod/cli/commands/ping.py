"""`tokioctl ping`: check whether the daemon runs and makes progress."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from tokiod.cli.common.base import config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.output import echo, echo_json
from tokiod.cli.common.roles import host_line
from tokiod.cli.common.web_process import ask_web
from tokiod.clock import SystemClock
from tokiod.config import load as configuration
from tokiod.errors import TokiodError
from tokiod.reports.hosts import read
from tokiod.supervisor.control_socket import Ping, Pong, Process, ask

if TYPE_CHECKING:
    from pathlib import Path

ANSWER_TIMEOUT_SECONDS = 5.0


@click.command("ping", epilog=examples("tokioctl ping", "tokioctl ping --json"))
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@config_option
def ping_command(config_path: Path, *, as_json: bool) -> None:
    """Show the state of the daemon and of its processes.

    For each process: whether it makes progress, its latest status line, and how often it was restarted. `tokiod web` is among them where
    it runs, and this user may ask it. Other hosts are listed too; the daemon is ready without them. Exit 0 ready, 1 not ready yet or a
    process hangs, 2 no daemon answers.
    """
    config = configuration.load(config_path)
    pong = ask(config.control, Ping(), ANSWER_TIMEOUT_SECONDS)
    if not isinstance(pong, Pong):
        raise TokiodError(f"unexpected answer from the daemon: {pong}")
    if (web := ask_web(config.web.address)) is not None:
        answers = bool(web.health)
        line = Process("web", web.pid, answers, answers, 0.0, 0, web.sentence)
        pong = msgspec.structs.replace(pong, processes=[*pong.processes, line], alive=pong.alive and answers)
    pong = msgspec.structs.replace(pong, hosts=read(config, SystemClock().time()))
    if as_json:
        echo_json(pong)
    else:
        state = "a process makes no progress" if not pong.alive else "ready" if pong.ready else "not ready yet"
        echo(f"tokiod {pong.version}, process {pong.pid}, up {pong.seconds:.0f} s: {state}")
        for process in pong.processes:
            echo(f"  {_line(process)}")
        for host in pong.hosts:
            echo(f"  host {host_line(host)}")
    sys.exit(0 if pong.alive and pong.ready else 1)


def _line(process: Process) -> str:
    place = f"process {process.pid}" if process.pid is not None else "running" if process.name == "web" else "not running"
    restarts = f", restarted {process.restarts} time{'' if process.restarts == 1 else 's'}" if process.restarts else ""
    silent = "" if process.alive or process.name == "web" else f", silent for {process.silent_for:.0f} s"
    return f"{process.name}: {place}{restarts}{silent}" + (f": {process.status}" if process.status else "")
