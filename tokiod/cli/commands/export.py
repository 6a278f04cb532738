"""`tokioctl export`: datasets of a file, a day or a span as Parquet, Zarr, CSV or JSON."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokiod.analysis.export import csv_pieces, json_pieces, parquet_files, whole_days, zarr_stores
from tokiod.analysis.export_jobs import JobExport
from tokiod.cli.commands.completion import system_or_file_names
from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.named_files import Limits, configured, named_files
from tokiod.cli.common.output import echo
from tokiod.config import load as configuration
from tokiod.jobs.span import row_count
from tokiod.reader.archive import Archive
from tokiod.reader.derived import COUNT_OF, RATE_OF
from tokiod.reader.errors import NoSuchDataset
from tokiod.reader.files import Templates
from tokiod.reader.jobs import check
from tokiod.reader.part import OpenParts
from tokiod.reader.span import Span
from tokiod.tts.live.files import replacing
from tokiod.window_data import JOB_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tokiod.analysis.export import Written
    from tokiod.cli.common.named_files import NamedFiles
    from tokiod.clock import Clock

FORMS = ("parquet", "zarr", "csv", "json")
STDOUT = "-"


@click.command(
    "export",
    epilog=examples(
        "tokioctl export cscratch:2026-11-20 --parquet /data/parquet",
        "tokioctl export day.hdf5 datatargets/readbytes --rates --csv reads.csv",
        "tokioctl export cscratch fullness/bytes --start 7d --json",
        "tokioctl export cscratch jobs/operations --start 1d --parquet /data/parquet",
    ),
)
@click.argument("what", metavar="FILE|SYSTEM[:DATE]", shell_complete=system_or_file_names)
@click.argument("datasets", metavar="[DATASET]...", nargs=-1)
@click.option(
    "--start", metavar="TIME|SPAN", help="Start time: ISO 8601, or a time span before now such as 1h or 30d.  [default: the day's]"
)
@click.option("--end", metavar="TIME|SPAN", help="End time (exclusive), formats as --start.  [default: now, or the file's]")
@click.option(
    "--parquet",
    metavar="DIR",
    help="Write system=S/group=G/dataset=D/date=YYYY-MM-DD/part.parquet below a directory, of whole days until now.",
)
@click.option("--zarr", metavar="DIR", help="Write a Zarr store for each dataset, GROUP/DATASET below a new directory.")
@click.option("--csv", metavar="FILE", help="Write one dataset as CSV; - is stdout.  [default: -]")
@click.option("--rates", is_flag=True, help="Write rates instead of counts.")
@click.option("--system", metavar="NAME", help="The name of the system.  [default: that of a FILE without its suffix]")
@click.option("--timezone", metavar="ZONE", help="IANA time zone of all times and dates.  [default: the configuration's, else UTC]")
@click.option("--json", metavar="[FILE]", is_flag=False, flag_value=STDOUT, help="Write one line of JSON; - or no FILE is stdout.")
@config_option
@clock_option
def export_command(config_path: Path, clock: Clock, what: str, datasets: tuple[str, ...], **given: Any) -> None:
    """Export datasets to files that other programs read.

    DATE: YYYY-MM-DD at the site. DATASET: all by default; jobs/operations is the job table, what each job did on each target between
    polls, with users where [jobs] users_in allows it. A FILE, also one of the job table, needs no configuration. Missing cells are null,
    NaN or empty. Files are replaced when they are complete. Exit 0 exported, 2 failed.
    """
    chosen = [form for form in FORMS if given[form] is not None]
    if len(chosen) > 1:
        raise Failed(f"give one of {', '.join(f'--{form}' for form in FORMS)}, not {len(chosen)}")
    form, target = (chosen[0], given[chosen[0]]) if chosen else ("csv", STDOUT)
    if target.endswith((".hdf5", ".h5")):
        raise Failed(f"--{form}: {target} would replace a file of an archive")
    files = named_files(what, Limits(given["start"], given["end"], given["timezone"]), config_path, clock)
    if JOB_TABLE in datasets or (files.table is not None and not datasets):
        _check_jobs(what, datasets, files, form, rates=given["rates"])
        _export_jobs(files, config_path, clock.time(), form, target)
        return
    if files.table is not None:
        raise Failed(f"{what} is of the job table: it holds {JOB_TABLE} alone")
    system = given["system"] or (Path(files.name).stem if [Path(what)] == list(files.paths) else files.name)
    _check_name(system)
    parts = OpenParts()
    span = whole_days(parts, files.paths, files.span, files.zone, clock.time()) if form == "parquet" else files.span
    with Archive(system, span, files.paths, zone=files.zone, parts=parts) as archive:
        try:
            _export(archive, _names(archive, datasets, rates=given["rates"]), form, target)
        except OSError as error:
            if error.filename is None or isinstance(error, (PermissionError, BrokenPipeError)):
                raise
            raise Failed(f"{error.filename}: {error.strerror or error}") from error
        except ValueError as error:
            raise Failed(str(error)) from error


def _check_jobs(what: str, datasets: tuple[str, ...], files: NamedFiles, form: str, *, rates: bool) -> None:
    """Raise Failed where the job table can't be written so."""
    if len(datasets) > 1 or rates or form == "zarr":
        raise Failed(f"{JOB_TABLE} is a table, not a matrix: name it alone, with --csv, --json or --parquet and without --rates")
    if files.table is None and [Path(what)] == list(files.paths):
        raise Failed(f"{what}: a file of a day has no {JOB_TABLE}; name the system")
    if files.table is not None and form == "parquet":
        raise Failed("--parquet: writes days of a system; of one file write --csv or --json")


def _export_jobs(files: NamedFiles, config_path: Path, now: float, form: str, target: str) -> None:
    """Write the job table. Raises TokiodError."""
    config = configuration.load(config_path) if files.table is None else configured(config_path)
    days, span = files.table or Templates(config.templates if config else ()).jobs(files.name), files.span
    check(days, span)
    if config is not None and form == "parquet":
        calendar = config.calendar
        span = Span(calendar.day(span.start).start, max(span.end, min(calendar.day(span.end - 1).end, int(now))))
    rows = row_count(days, span.start, span.end)
    with _progress(rows, hidden=target == STDOUT and sys.stdout.isatty()) as progress:
        exported = JobExport(days, span, "names" if config is None else config.jobs.users_of("export"), progress)
        if form != "parquet":
            _write(target, exported.csv_pieces() if form == "csv" else exported.json_pieces())
            return
        written = list(exported.parquet_files(Path(target)))
    _report(written)


def _check_name(system: str) -> None:
    if not system or "/" in system or system.startswith("."):
        raise Failed(f"--system: {system!r} can't be part of a path")


def _names(archive: Archive, datasets: tuple[str, ...], *, rates: bool) -> list[str]:
    """Return the datasets that are written: with `rates`, the rate of each count. Raises NoSuchDataset, NoData."""
    known = archive.datasets()
    for name in datasets:
        if name not in known:
            raise NoSuchDataset(name, known, f"{archive.system} has no")
    stored = [name for name in known if archive.is_stored(name)]
    names = datasets or archive.with_rows(stored) or stored
    return list(dict.fromkeys(RATE_OF.get(name, name) if rates and name not in COUNT_OF else name for name in names))


def _export(archive: Archive, names: list[str], form: str, target: str) -> None:
    if form == "csv" and len(names) != 1:
        raise Failed(f"--csv holds one dataset; name one of: {', '.join(names)}")
    matrices = [archive.array(name) for name in names]
    with _progress(sum(matrix.rows for matrix in matrices), hidden=target == STDOUT and sys.stdout.isatty()) as progress:
        if form == "csv":
            _write(target, csv_pieces(matrices[0], progress))
        elif form == "json":
            _write(target, json_pieces(archive.system, matrices, progress))
        elif form == "parquet":
            written = list(parquet_files(archive.system, matrices, Path(target), archive.zone, progress))
        else:
            written = zarr_stores(archive, names, Path(target), progress)
    if form in {"parquet", "zarr"}:
        _report(written)


@contextmanager
def _progress(rows: int, *, hidden: bool) -> Iterator[Callable[[int], None]]:
    with click.progressbar(length=rows, label="export", file=sys.stderr, hidden=hidden or not sys.stderr.isatty()) as bar:
        yield bar.update


def _write(target: str, pieces: Iterable[str]) -> None:
    """Write pieces to stdout, to what is no plain file, or to a file that is replaced when it is complete."""
    if target == STDOUT:
        for piece in pieces:
            echo(piece, newline=False)
        return
    path = Path(os.path.realpath(target))
    if not path.parent.is_dir():
        raise Failed(f"{target}: directory {path.parent} does not exist")
    if path.exists() and not path.is_file():  # /dev/stdout, a named pipe
        with path.open("w", encoding="utf-8") as file:
            file.writelines(pieces)
        return
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())


def _report(written: Iterable[Written]) -> None:
    for path, rows, columns in written:
        echo(f"{path}: {rows} rows, {columns} columns")
