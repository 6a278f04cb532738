"""`tokioctl health`: how full a file system is or was, and which of its targets failed over: an `lfs df` of any time in the archive."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import click

from tokiod.analysis.health import SeveralFileSystems, health, needed
from tokiod.cli.commands.completion import system_or_file_names
from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.named_files import files_at
from tokiod.cli.common.output import echo_json
from tokiod.cli.common.tables import line, show, table
from tokiod.reader.part import OpenParts
from tokiod.reports.quantities import quantity
from tokiod.times import span

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rich.console import RenderableType
    from rich.table import Table

    from tokiod.analysis.health import Health, Target
    from tokiod.cli.common.named_files import FilesAt
    from tokiod.clock import Clock

KIB = quantity("", "KiB", 1)


@click.command(
    "health",
    epilog=examples("tokioctl health cscratch", "tokioctl health cscratch --time 2026-11-20T08:00:00", "tokioctl health day.hdf5 --json"),
)
@click.argument("what", metavar="FILE|SYSTEM[:DATE]", shell_complete=system_or_file_names)
@click.option(
    "--time",
    metavar="TIME|SPAN",
    help="The time: ISO 8601, or a time span before now such as 1h or 30d.  [default: now, or the file's end]",
)
@click.option("--filesystem", metavar="NAME", help="The file system, of several in one archive.  [default: each of them]")
@click.option("--timezone", metavar="ZONE", help="IANA time zone of all times.  [default: the configuration's, else UTC]")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, of several file systems one each.")
@config_option
@clock_option
def health_command(
    config_path: Path, clock: Clock, what: str, time: str | None, filesystem: str | None, timezone: str | None, *, as_json: bool
) -> None:
    """Show how full the targets of a system are or were.

    The state is that of the last sample at or before the time, at most a day older. DATE: YYYY-MM-DD at the site, today or yesterday, at
    its end. A FILE needs no configuration.

    Targets of several file systems in one archive are shown by file system.

    `away` marks a target that another server than its home served. An OSS is overloaded if it serves more OSTs than most do. The keys of
    --json are those of pytokio's lfsstatus. Exit 0 shown, 2 failed.
    """
    files = files_at(what, time, timezone, needed, config_path, clock)
    try:
        found = _found(files, filesystem)
    except PermissionError:
        raise
    except OSError as error:
        raise Failed(f"{error.filename or files.name}: {error.strerror or error}") from error
    for one in found:
        if as_json:
            echo_json(one)
        else:
            show(*_shown(one, files.label, files.zone))


def _found(files: FilesAt, filesystem: str | None) -> list[Health]:
    """Return the state of the targets, of several file systems by file system."""
    parts = OpenParts()
    try:
        return [health(files.name, files.paths, files.time, parts, filesystem)]
    except SeveralFileSystems as several:
        return [health(files.name, files.paths, files.time, parts, name) for name in several.names]


def _shown(found: Health, label: str, zone: dt.tzinfo) -> list[RenderableType]:
    label = f"{label}, file system {found.filesystem}" if found.filesystem else label
    at = dt.datetime.fromtimestamp(found.fshealth_ost_actual_timestamp, zone)
    age = int(found.fshealth_ost_fullness_lead_secs)
    head = f"{label} at {at:%Y-%m-%d %H:%M:%S %Z}" + (f", {span(age)} before the requested time" if age else "")
    return [line(head, "bold"), _targets(found.targets), *([line(text) for text in _sentences(found)])]


def _targets(targets: list[Target]) -> Table:
    names = ("target", "size", "used", "use", "inodes", "inode use", "server")
    shown = table(*names, right=names[1:-1], spare=("inode use", "inodes", "server"))
    for one in targets:
        shown.add_row(one.name, *_figures([one]), {True: "away", False: "home", None: "-"}[one.away])
    for kind, group in (("all OSTs", [one for one in targets if one.ost]), ("all others", [one for one in targets if not one.ost])):
        if len(group) > 1:
            shown.add_row(kind, *_figures(group), "-", style="bold")
    return shown


def _figures(targets: list[Target]) -> tuple[str, ...]:
    """Return size, used space and their share, and the same of inodes."""
    total, used = _sum(one.total_kib for one in targets), _sum(one.used_kib for one in targets)
    inodes, taken = _sum(one.total_inodes for one in targets), _sum(one.used_inodes for one in targets)
    return _size(total), _size(used), _share(used, total), "-" if inodes is None else str(inodes), _share(taken, inodes)


def _sentences(found: Health) -> list[str]:
    lines = []
    if found.fshealth_ost_most_full_name is not None:
        most, least = (
            f"{name} ({_percent(share)})"
            for name, share in (
                (found.fshealth_ost_most_full_name, found.fshealth_ost_most_full_pct),
                (found.fshealth_ost_least_full_name, found.fshealth_ost_least_full_pct),
            )
        )
        lines += [f"OSTs: {found.fshealth_ost_count}, most full {most}, least full {least}"]
    if found.targets_away is not None:
        lines += [f"targets away from their home server: {found.targets_away}"]
    if found.fshealth_ost_overloaded_oss_count is not None:
        lines += [f"overloaded OSSs: {found.fshealth_ost_overloaded_oss_count}, with {found.fshealth_ost_overloaded_ost_count} OSTs"]
    return lines


def _sum(values: Iterable[int | None]) -> int | None:
    """Return the sum; None if a value is missing, because a sum without it would look like a change."""
    known = list(values)
    return None if not known or None in known else sum(value for value in known if value is not None)


def _size(kib: int | None) -> str:
    return "-" if kib is None else KIB.text(KIB.factor * kib)


def _share(part: int | None, whole: int | None) -> str:
    return "-" if part is None or not whole else _percent(100 * part / whole)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} %"
