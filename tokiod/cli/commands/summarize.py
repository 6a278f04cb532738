"""`tokioctl summarize`: what was read and written in a file, a day or a span, with pytokio's keys."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec import UNSET, UnsetType

from tokiod.analysis.summary import BINNED, READ, WRITTEN, Bytes, Sums, Total, bins, columns, summary, timesteps, total
from tokiod.cli.commands.completion import system_or_file_names
from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.named_files import Limits, named_files
from tokiod.cli.common.output import echo_json
from tokiod.cli.common.tables import show, table
from tokiod.reader.errors import NoData, NoSuchDataset
from tokiod.reader.part import OpenParts, Part
from tokiod.reader.stitched import Stitched, stitch
from tokiod.reports.quantities import quantity

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from tokiod.analysis.summary import Number
    from tokiod.cli.common.named_files import NamedFiles
    from tokiod.clock import Clock

MAX_BINS = 100_000


class Group(msgspec.Struct, frozen=True):
    """A group of a file: its datasets and the number of its columns."""

    group: str
    datasets: list[str]
    columns: int


class Summary(msgspec.Struct, frozen=True):
    """What was read and written. Keys are those of pytokio; numbers without any value are null.

    total: of all cells; timesteps: by the epoch second of a row; columns: by name; bins: by the epoch second of their first row; summary:
    of all bins; groups: instead of all others, of files without datatargets/readbytes.
    """

    total: Total | UnsetType = UNSET
    timesteps: dict[str, Bytes] | UnsetType = UNSET
    columns: dict[str, Bytes] | UnsetType = UNSET
    bins: dict[str, dict[str, float | int | None]] | UnsetType = UNSET
    summary: dict[str, float | int | None] | UnsetType = UNSET
    groups: list[Group] | UnsetType = UNSET


@click.command(
    "summarize",
    epilog=examples("tokioctl summarize cscratch", "tokioctl summarize cscratch:2026-11-20 --columns", "tokioctl summarize day.hdf5"),
)
@click.argument("what", metavar="FILE|SYSTEM[:DATE]", shell_complete=system_or_file_names)
@click.option(
    "--start", metavar="TIME|SPAN", help="Start time: ISO 8601, or a time span before now such as 1h or 30d.  [default: the day's]"
)
@click.option("--end", metavar="TIME|SPAN", help="End time (exclusive), formats as --start.  [default: now, or the file's]")
@click.option("--columns", "by_column", is_flag=True, help="Also the bytes of each OST.")
@click.option("--timesteps", "by_row", is_flag=True, help="Also the bytes of each row.")
@click.option("--bins", "bin_count", type=click.IntRange(1, MAX_BINS), metavar="N", help="Also divide the rows into N bins, with CPU load.")
@click.option("--timezone", metavar="ZONE", help="IANA time zone of all times.  [default: the configuration's, else UTC]")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@config_option
@clock_option
def summarize_command(config_path: Path, clock: Clock, what: str, **given: Any) -> None:
    """Summarize what was read and written.

    DATE: YYYY-MM-DD at the site, today or yesterday. SYSTEM without DATE, --start and --end, the current day. A FILE needs no
    configuration.

    Missing cells count as missing, not as zero. first_nonzero_idx and last_nonzero_idx are the first and the last row with a value. The
    keys of --json are those of pytokio's summarize_tts and, with --bins, summarize_h5lmt. Exit 0 summarized, 2 failed.
    """
    files = named_files(what, Limits(given["start"], given["end"], given["timezone"]), config_path, clock)
    try:
        found = _summary(files, by_column=given["by_column"], by_row=given["by_row"], bin_count=given["bin_count"])
    except PermissionError:
        raise
    except OSError as error:
        raise Failed(f"{error.filename or files.name}: {error.strerror or error}") from error
    if given["as_json"]:
        echo_json(found)
        return
    show(*_tables(found, files.zone))


def _summary(files: NamedFiles, *, by_column: bool, by_row: bool, bin_count: int | None) -> Summary:
    parts = OpenParts()
    read = _matrix(files, READ, parts)
    if read is None:
        return Summary(groups=_groups(files, parts))
    matrices = {READ: read}
    for name in BINNED:
        with suppress(NoData):  # of another step, of which no row begins in a short span
            if found := _matrix(files, name, parts):
                matrices[name] = found
    sums = {name: (matrices[name], Sums.of(matrices[name])) for name in (READ, WRITTEN) if name in matrices}
    binned = UNSET if bin_count is None else bins(matrices, bin_count)
    return Summary(
        total=total(read, sums[READ][1], sums[WRITTEN][1] if WRITTEN in sums else None),
        timesteps=timesteps(sums) if by_row else UNSET,
        columns=columns(sums) if by_column else UNSET,
        bins=binned,
        summary=UNSET if isinstance(binned, UnsetType) else summary(binned),
    )


def _matrix(files: NamedFiles, dataset: str, parts: OpenParts) -> Stitched | None:
    try:
        return stitch(files.paths, dataset, files.span, parts)
    except NoSuchDataset:
        return None


def _groups(files: NamedFiles, parts: OpenParts) -> list[Group]:
    found: dict[str, set[str]] = {}
    widths: dict[str, int] = {}
    for path in files.paths:
        try:
            part: Part = parts.part(path)
        except FileNotFoundError:
            continue
        for name in part.names:
            group, _, dataset = name.partition("/")
            found.setdefault(group, set()).add(dataset)
            widths[group] = max(widths.get(group, 0), len(part.shape(name).columns))
    return [Group(group, sorted(datasets), widths[group]) for group, datasets in found.items()]


def _tables(found: Summary, zone: dt.tzinfo) -> list[Table]:
    if not isinstance(found.groups, UnsetType):
        shown = table("group", "columns", "datasets", right={"columns"}, folded={"datasets"})
        for one in found.groups:
            shown.add_row(one.group, str(one.columns), " ".join(one.datasets))
        return [shown]
    tables = [] if isinstance(found.total, UnsetType) else [_total(found.total)]
    if not isinstance(found.bins, UnsetType):
        tables.append(_bins(found.bins, zone))
    if not isinstance(found.columns, UnsetType):
        tables.append(_rows("component", found.columns))
    if not isinstance(found.timesteps, UnsetType):
        tables.append(_rows("time", {_time(float(time), zone): row for time, row in found.timesteps.items()}))
    return tables


def _total(one: Total) -> Table:
    shown = table(
        "read",
        "written",
        "missing",
        "cells",
        "first row",
        "last row",
        right={"missing", "cells", "first row", "last row"},
        spare=("cells",),
    )
    missing = f"{one.missing_pct:.1f} %"
    shown.add_row(
        _bytes(one.read_bytes), _bytes(one.write_bytes), missing, str(one.total_pts), str(one.first_nonzero_idx), str(one.last_nonzero_idx)
    )
    return shown


def _bins(found: dict[str, dict[str, Number]], zone: dt.tzinfo) -> Table:
    names = ("from", "last row", "read", "written", "OSS mean", "OSS max", "MDS mean", "MDS max", "missing")
    shown = table(*names, right=names[2:], spare=("MDS max", "OSS max", "MDS mean", "OSS mean"))
    for one in found.values():
        points, absent = (sum(one.get(f"{name}_{key}") or 0 for key in ("ost_read", "ost_write")) for name in ("num", "missing"))
        loads = [_percent(one.get(f"{how}_{server}_cpu")) for server in ("oss", "mds") for how in ("ave", "max")]
        transfers = [_bytes(one.get(f"sum_{key}")) for key in ("ost_read", "ost_write")]
        times = [_time(float(one[name] or 0), zone) for name in ("tstart", "tend")]
        shown.add_row(*times, *transfers, *loads, _percent(100 * absent / points if points else None))
    return shown


def _rows(name: str, found: dict[str, Bytes]) -> Table:
    shown = table(name, "read", "written", right={"read", "written"})
    for key, one in found.items():
        shown.add_row(key, _bytes(one.read_bytes), _bytes(one.write_bytes))
    return shown


def _time(seconds: float, zone: dt.tzinfo) -> str:
    return dt.datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%d %H:%M:%S")


def _bytes(value: Number) -> str:
    return "-" if value is None else quantity("", "KiB", 1).text(value)


def _percent(value: Number) -> str:
    return "-" if value is None else f"{value:.1f} %"
