"""`tokioctl badost`: which OSTs slow files down, by Darshan logs of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokiod.analysis.bad_ost import correlations, striped_files
from tokiod.analysis.darshan_log import DarshanLog, read_logs
from tokiod.cli.common.base import Failed
from tokiod.cli.common.examples import examples
from tokiod.cli.common.output import echo, echo_json
from tokiod.cli.common.tables import show, table

if TYPE_CHECKING:
    from rich.table import Table

    from tokiod.analysis.bad_ost import Correlation


@click.command(
    "badost", epilog=examples("tokioctl badost vpicio.darshan", "tokioctl badost --p-threshold 0.001 --json one.darshan two.darshan")
)
@click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--p-threshold", type=float, default=0.05, show_default=True, metavar="P", help="Only correlations less likely by chance.")
@click.option("--c-threshold", type=float, default=0.0, show_default=True, metavar="C", help="Only coefficients above C or below -C.")
@click.option("--c-warning", type=float, default=0.5, show_default=True, metavar="C", help="Mark coefficients above C or below -C.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def badost_command(logs: tuple[Path, ...], **given: Any) -> None:
    """Find OSTs that slow files down, by Darshan logs.

    Of each file in the logs, its rate by POSIX is compared with the share of its stripes on each OST: a coefficient of -1 means the more of
    the OST the slower. The logs need the modules POSIX and LUSTRE, and files on different OSTs; more logs make it more certain. Logs that
    can't be read are reported and left out. The keys of --json are those of pytokio's darshan_bad_ost.
    Exit 0 no OST is suspect, 1 an OST has a coefficient below -C of --c-warning, 2 failed.
    """
    read = read_logs(logs)
    found = [log for log in read if isinstance(log, DarshanLog)]
    for path, log in zip(logs, read, strict=True):
        if not isinstance(log, DarshanLog):
            echo(f"tokioctl: {log}", err=True)
        elif log.note:
            echo(f"tokioctl: {path}: {log.note}", err=True)
    if not found:
        raise Failed("no log can be read")
    files = striped_files(found)
    likely = [one for one in correlations(files) if one.p_value < given["p_threshold"] and abs(one.coefficient) > given["c_threshold"]]
    if given["as_json"]:
        echo_json(likely)
    elif likely:
        show(_table(likely, given["c_warning"]))
    else:
        echo(_nothing(len(files), len(found)))
    raise SystemExit(int(any(one.coefficient < -given["c_warning"] for one in likely)))


def _table(found: list[Correlation], warning: float) -> Table:
    shown = table("OST", "correlation", "p-value", "state", right={"correlation", "p-value"})
    for one in found:
        state = "slow" if one.coefficient < -warning else "fast" if one.coefficient > warning else "-"
        shown.add_row(one.ost_name, f"{one.coefficient:.3f}", f"{one.p_value:.4g}", state)
    return shown


def _nothing(files: int, logs: int) -> str:
    if files < 2:  # noqa: PLR2004 - one file has nothing to be compared with
        return f"{files} files of {logs} logs have both POSIX and LUSTRE records; a correlation needs two or more"
    return f"no OST stands out: {files} files of {logs} logs, no correlation below the threshold"
