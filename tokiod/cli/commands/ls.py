"""`tokioctl ls`: which systems, days and datasets an archive holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tokiod.cli.commands.completion import system_or_file_names
from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.lookup import check_name
from tokiod.cli.common.output import echo, echo_json
from tokiod.cli.common.tables import show, table
from tokiod.cli.common.times import date_of
from tokiod.config import load as configuration
from tokiod.jobs.one_file import one_file
from tokiod.path_template import systems_of
from tokiod.reader.files import DayFile, day_files
from tokiod.reader.part import DatasetEntry, Part
from tokiod.tts.layout import NotLive
from tokiod.window import Calendar, iso
from tokiod.window_data import JOB_TABLE

if TYPE_CHECKING:
    from rich.table import Table

    from tokiod.clock import Clock
    from tokiod.config.schema import Config

MIB = 2**20


class SystemEntry(msgspec.Struct, frozen=True):
    """The files of a system. first, last: dates at the site, null without files; days: number of files; bytes: on disk.

    sources: those that are configured for it; none where they were removed, and the files are left.
    """

    system: str
    first: str | None
    last: str | None
    days: int
    bytes: int
    sources: list[str] = []


class DayEntry(msgspec.Struct, frozen=True):
    """The file of a day. form: "live" while it is filled, "sealed", "foreign" for other programs' files, "unreadable" with the reason."""

    date: str
    path: str
    form: str
    bytes: int
    datasets: int
    reason: str = ""


class TableEntry(msgspec.Struct, frozen=True):
    """The table of a file. start, end: of its windows, UTC epoch seconds; jobs: how many job ids it has."""

    table: str
    system: str
    start: int
    end: int
    rows: int
    jobs: int
    targets: int


class Listing(msgspec.Struct, frozen=True):
    """The systems of the archive, the days of a system, or the datasets or tables of a file, whichever was requested."""

    systems: list[SystemEntry] = []
    days: list[DayEntry] = []
    datasets: list[DatasetEntry] = []
    tables: list[TableEntry] = []


@click.command("ls", epilog=examples("tokioctl ls", "tokioctl ls cscratch", "tokioctl ls cscratch:yesterday --json"))
@click.argument("what", metavar="[SYSTEM[:DATE]|FILE]", required=False, shell_complete=system_or_file_names)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@config_option
@clock_option
def ls_command(config_path: Path, clock: Clock, what: str | None, *, as_json: bool) -> None:
    """List what the archive holds.

    Without an argument the systems, for SYSTEM its days, for SYSTEM:DATE or FILE its datasets.

    DATE: YYYY-MM-DD at the site, or today or yesterday. "filled" is the share of cells until now that are not missing. It reads files and
    does not need the daemon. Exit 0 listed, 2 failed.
    """
    listing = _listing(config_path, clock, what)
    if as_json:
        echo_json(listing)
        return
    if listing.systems:
        show(_systems(listing.systems))
    elif listing.days:
        show(_days(listing.days))
    elif listing.datasets:
        show(_datasets(listing.datasets))
    elif listing.tables:
        show(_tables(listing.tables))
    else:
        echo("nothing to list")


def _listing(config_path: Path, clock: Clock, what: str | None) -> Listing:
    if what is not None and _is_path(what):
        if (alone := one_file(Path(what))) is not None:
            index = alone.index
            entry = TableEntry(JOB_TABLE, alone.system, alone.start, alone.end, int(index.first[-1]), len(index.jobs), len(index.targets))
            return Listing(tables=[entry])
        datasets = _part(Path(what)).datasets(clock.time())
        if not datasets:  # any other file of HDF5
            raise Failed(f"{what} has no datasets of TOKIO Time Series; `h5ls -r` lists what another file of HDF5 holds")
        return Listing(datasets=datasets)
    config = configuration.load(config_path)
    calendar = config.calendar
    if what is None:
        systems = _known(config)
        files = list(day_files(config.archive, calendar, systems, clock.time()))
        return Listing(systems=[_system(config, name, [one for one in files if one.system == name]) for name in sorted(systems)])
    system, _, date = what.partition(":")
    check_name(system, _known(config))
    if date:
        return Listing(datasets=_part(_file(config, calendar, system, date, clock)).datasets(clock.time()))
    return Listing(days=[_day(file) for file in day_files(config.archive, calendar, [system], clock.time())])


def _known(config: Config) -> set[str]:
    """Return the systems of the sources, and those that have files: their sources may be gone."""
    return {source.system for source in config.source} | systems_of(config.archive.path)


def _is_path(what: str) -> bool:
    return "/" in what or what.endswith((".hdf5", ".h5")) or Path(what).is_file()


def _file(config: Config, calendar: Calendar, system: str, date: str, clock: Clock) -> Path:
    return config.archive.file_of(date_of(date, calendar.zone, clock.time()), system)


def _part(path: Path) -> Part:
    try:
        return Part(path)
    except FileNotFoundError:
        raise Failed(f"{path} does not exist") from None
    except NotLive as error:
        raise Failed(str(error)) from error
    except OSError as error:
        raise Failed(f"{path}: {error.strerror or error}") from error


def _system(config: Config, name: str, files: list[DayFile]) -> SystemEntry:
    dates = [file.day.date.isoformat() for file in files]
    first, last = (dates[0], dates[-1]) if dates else (None, None)
    sources = sorted(source.name for source in config.source if source.system == name)
    return SystemEntry(name, first, last, len(files), sum(file.nbytes for file in files), sources)


def _day(file: DayFile) -> DayEntry:
    date, path = file.day.date.isoformat(), str(file.path)
    try:
        part = Part(file.path)
    except (NotLive, OSError) as error:
        return DayEntry(date, path, "unreadable", file.nbytes, 0, str(error))
    return DayEntry(date, path, part.form, file.nbytes, len(part.names))


def _systems(entries: list[SystemEntry]) -> Table:
    shown = table("system", "first day", "last day", "days", "MiB", "sources", right={"days", "MiB"}, folded={"sources"})
    for one in entries:
        shown.add_row(one.system, one.first or "-", one.last or "-", str(one.days), _mib(one.bytes), ", ".join(one.sources) or "-")
    return shown


def _days(entries: list[DayEntry]) -> Table:
    shown = table("day", "form", "datasets", "MiB", "file", right={"datasets", "MiB"}, folded={"file"})
    for one in entries:
        shown.add_row(one.date, one.form, str(one.datasets), _mib(one.bytes), one.reason or one.path)
    return shown


def _datasets(entries: list[DatasetEntry]) -> Table:
    shown = table("dataset", "units", "step", "columns", "filled", right={"step", "columns", "filled"})
    for one in entries:
        shown.add_row(one.name, one.units, f"{one.step} s", str(one.columns), f"{100 * one.filled:.1f} %")
    return shown


def _tables(entries: list[TableEntry]) -> Table:
    shown = table("table", "system", "start", "end", "rows", "job ids", "targets", right={"rows", "job ids", "targets"})
    for one in entries:
        shown.add_row(one.table, one.system, iso(one.start), iso(one.end), str(one.rows), str(one.jobs), str(one.targets))
    return shown


def _mib(nbytes: int) -> str:
    return f"{nbytes / MIB:.1f}"
