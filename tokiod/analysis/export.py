"""Datasets of a span in the forms that other programs read: Parquet, Zarr, CSV, JSON. At most a day of cells is in memory.

A row is a time step, named by its left edge in UTC; a missing cell is null, NaN or empty. `progress` is called with numbers of rows that
are done.
"""

from __future__ import annotations

import datetime as dt
import math
import shutil
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokiod.reader.errors import NotInstalled
from tokiod.reader.span import Span
from tokiod.times import iso
from tokiod.tts.parquet import part_path, write_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.reader.archive import Archive
    from tokiod.reader.part import OpenParts
    from tokiod.reader.stitched import Stitched

ROWS_AT_ONCE = 720
DAY_SECONDS, LONGEST_DAY_SECONDS = 86400, 90000
CHUNK = (720, 32)
"""Rows and columns, as in a sealed file."""
ZARR_FORMAT = 2
"""Version 3 has no specification of text yet, and columns have names."""


class ExportedDataset(msgspec.Struct, frozen=True):
    """A dataset: times are UTC epoch seconds of the rows' left edges; values [rows, columns], null where missing; step: seconds."""

    units: str
    step: int
    columns: list[str]
    times: list[int]
    values: list[list[float | None]]


class Exported(msgspec.Struct, frozen=True):
    """What is exported of a system, by dataset."""

    system: str
    datasets: dict[str, ExportedDataset]


class ExportedJobs(msgspec.Struct, frozen=True):
    """What jobs of a system did between polls, job by job: columns by their names, and rows. Times are UTC epoch seconds."""

    system: str
    table: str
    columns: list[str]
    rows: list[list[int | str]]


def nothing(_rows: int) -> None:
    """Report no progress."""


def csv_pieces(matrix: Stitched, progress: Callable[[int], None] = nothing) -> Iterator[str]:
    """Yield pieces of a CSV file of a dataset: a line for each row, of its time (ISO 8601) and each component."""
    yield ",".join(["time", *map(quoted, matrix.columns)]) + "\n"
    for first, last in _pieces(matrix):
        values = matrix.read(first, last)
        for time, row in zip(matrix.times[first:last].tolist(), values.tolist(), strict=True):
            yield ",".join([iso(time), *(_number(value) for value in row)]) + "\n"
        progress(last - first)


def json_pieces(system: str, matrices: list[Stitched], progress: Callable[[int], None] = nothing) -> Iterator[str]:
    """Yield pieces of one JSON object on one line: system, and of each dataset units, step, columns, times (epoch seconds) and values."""
    yield f'{{"system":{json_of(system)},"datasets":{{'
    for i, matrix in enumerate(matrices):
        head = {"units": matrix.units, "step": matrix.step, "columns": matrix.columns, "times": matrix.times.tolist()}
        yield f'{"," if i else ""}{json_of(matrix.dataset)}:{json_of(head)[:-1]},"values":['
        for first, last in _pieces(matrix):
            yield f"{',' if first else ''}{json_of(matrix.read(first, last).tolist())[1:-1]}"
            progress(last - first)
        yield "]}"
    yield "}}\n"


Written = tuple["Path", int, int]
"""What was written: its path, and how many rows and columns are in it."""


def parquet_files(
    system: str, matrices: list[Stitched], directory: Path, zone: dt.tzinfo, progress: Callable[[int], None] = nothing
) -> Iterator[Written]:
    """Write a Parquet file for each dataset and each file of a day; yield each.

    The date is that of the middle of the day in a zone: noon of a site has the same date in UTC, up to twelve hours away, so that a file
    whose zone is unknown keeps its date. A file of more than a day is divided at the midnights of the zone. See tokiod.tts.parquet.
    The matrices must be of whole_days(): the file of a day replaces the one that is there. Raises NotInstalled, OSError.
    """
    need("a Parquet file", "pyarrow", "parquet")
    for matrix in matrices:
        attributes = {"system": system, "dataset": matrix.dataset, "units": matrix.units, "step": str(matrix.step)}
        for date, first, last in _days(matrix, zone):
            path = part_path(directory, system, matrix.dataset, date)
            write_part(path, matrix.times[first:last], matrix.columns, matrix.read(first, last), attributes)
            progress(last - first)
            yield path, last - first, len(matrix.columns)


def whole_days(parts: OpenParts, paths: Iterable[Path], span: Span, zone: dt.tzinfo, now: float) -> Span:
    """Widen a span by all rows until now of each day that parquet_files() writes of it. Raises as Part."""
    edges = [(span.start, span.end)]
    for path in paths:
        try:
            part = parts.part(path)
        except FileNotFoundError:
            continue
        if part.names and (file := part.span()).start < span.end and span.start < file.end:
            days = (file.start, file.end) if _is_day(file) else (_midnight(span.start, zone), _midnight(span.end - 1, zone, 1))
            edges.append((max(file.start, days[0]), min(file.end, days[1], int(now))))
    return Span(min(start for start, _ in edges), max(end for _, end in edges))


def zarr_stores(archive: Archive, names: list[str], directory: Path, progress: Callable[[int], None] = nothing) -> list[Written]:
    """Write a Zarr store for each dataset, a day at a time; return each. The directory has its name when all of it is written.

    Raises NotInstalled without xarray and zarr, FileExistsError for a directory that is not empty, OSError.
    """
    need("a Zarr store", "zarr", "zarr")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise FileExistsError(17, "the directory is not empty", str(directory))
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = directory.with_name(f".{directory.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        shapes = [_zarr_store(archive, name, temporary / name, progress) for name in names]
        temporary.replace(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return [(directory / name, *shape) for name, shape in zip(names, shapes, strict=True)]


def _zarr_store(archive: Archive, name: str, store: Path, progress: Callable[[int], None]) -> tuple[int, int]:
    lazy, short = archive[name], name.partition("/")[2]
    rows = max(1, DAY_SECONDS // int(lazy.attrs["step"]))
    chunks = tuple(map(min, CHUNK, lazy.shape))
    encoding = {"time": {"units": "seconds since 1970-01-01", "dtype": "int64"}, short: {"chunks": chunks}}
    for first, last in pairwise([*range(0, lazy.shape[0], rows), lazy.shape[0]]):
        piece = lazy.isel(time=slice(first, last)).load().to_dataset(name=short)
        how = {"append_dim": "time"} if first else {"mode": "w", "encoding": encoding}
        piece.to_zarr(store, zarr_format=ZARR_FORMAT, consolidated=False, **how)
        progress(last - first)
    return len(lazy), lazy.shape[1]


def need(form: str, package: str, extra: str) -> None:
    """Raise NotInstalled without a package."""
    if find_spec(package) is None:
        raise NotInstalled(form, package, "export to CSV or JSON", f"pip install '.[{extra}]' in a checkout of tokiod")


def _pieces(matrix: Stitched) -> Iterator[tuple[int, int]]:
    return pairwise([*range(0, matrix.rows, ROWS_AT_ONCE), matrix.rows])


def _days(matrix: Stitched, zone: dt.tzinfo) -> Iterator[tuple[dt.date, int, int]]:
    """Yield the date of each file that has the dataset, and its rows [first, last)."""
    for one in matrix.stretches:
        if one.path is None:
            continue
        whole, last = matrix.parts.part(one.path).span(), one.first + one.rows
        if _is_day(whole):
            yield dt.datetime.fromtimestamp((whole.start + whole.end) // 2, zone).date(), one.first, last
        else:
            yield from _dates(matrix.times[one.first : last], one.first, zone)


def _dates(times: NDArray[np.int64], row: int, zone: dt.tzinfo) -> Iterator[tuple[dt.date, int, int]]:
    """Yield each date of rows, the first of which has the number `row`."""
    first = 0
    while first < len(times):
        time = int(times[first])
        last = int(np.searchsorted(times, _midnight(time, zone, 1)))
        yield dt.datetime.fromtimestamp(time, zone).date(), row + first, row + last
        first = last


def _is_day(file: Span) -> bool:
    return file.end - file.start <= LONGEST_DAY_SECONDS


def _midnight(time: int, zone: dt.tzinfo, days: int = 0) -> int:
    """Return the midnight of a zone with which the date of a time begins, or a date some days later."""
    date = dt.datetime.fromtimestamp(time, zone).date() + dt.timedelta(days=days)
    return int(dt.datetime.combine(date, dt.time(), zone).timestamp())


def quoted(name: str) -> str:
    """Return a text as a field of CSV."""
    return '"' + name.replace('"', '""') + '"' if set(name) & set(',"\r\n') else name


def _number(value: float) -> str:
    if math.isnan(value):
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def json_of(value: object) -> str:
    """Return JSON in ASCII, null for NaN."""
    text = msgspec.json.encode(value).decode()
    return text if text.isascii() else "".join(one if one.isascii() else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
