"""`tokioctl report`: one file with what others need to help."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.output import echo, echo_json
from tokiod.reports.support_report import Inputs, members, pack
from tokiod.window import iso

if TYPE_CHECKING:
    from tokiod.clock import Clock


class Report(msgspec.Struct, frozen=True):
    """The written report: its path, its size in bytes, and the bytes of each file in it, by name."""

    path: str
    size: int
    files: dict[str, int]


@click.command("report", epilog=examples("tokioctl report", "tokioctl report --output /tmp/report.tar.gz --lines 500"))
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="The file.  [default: tokiod-report-TIME.tar.gz]")
@click.option("--lines", type=click.IntRange(0, 1_000_000), default=2000, show_default=True, help="Lines of the log.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@config_option
@clock_option
def report_command(config_path: Path, clock: Clock, output: Path | None, lines: int, *, as_json: bool) -> None:
    """Write one file that helps others to find a fault.

    It lists its contents first: versions, the configuration without secrets, status, gaps, files, unit states and the last log lines. It
    has no measured data; names of hosts, users and paths are in it: read it before you pass it on. A part that this user may not read says
    so; run it as root or the daemon's user for all of them. Exit 0 written, 2 not written.
    """
    now = clock.time()
    target = output or Path(f"tokiod-report-{iso(int(now)).replace(':', '')}.tar.gz")
    chosen = members(Inputs(config_path, now, lines))
    if not as_json:
        echo(f"{target} will hold:")
        width = max(len(member.name) for member in chosen)
        for member in chosen:
            echo(f"  {member.name:<{width}}  {member.about}")
    packed, sizes = pack(chosen, now)
    _write(target, packed)
    if as_json:
        echo_json(Report(str(target), len(packed), sizes))
    else:
        echo(f"{len(packed)} bytes are written; `tar -xzf {target}` unpacks them")


def _write(path: Path, content: bytes) -> None:
    """Write a file that only this user can read. It replaces none: its path may be a mistake."""
    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
    except FileExistsError:
        raise Failed(f"{path} exists already: name another file with --output") from None
    except OSError as error:
        raise Failed(f"cannot write {path}: {error.strerror}; name another file with --output") from error
    try:
        with file:
            file.write(content)
    except OSError as error:
        path.unlink()
        raise Failed(f"cannot write {path}: {error.strerror}; name another file with --output") from error
