"""The job table of a span in the forms that other programs read: what each job did on each target between one poll and the next.

Columns: time and since, the polls; target; job, user, command, node and id, users and commands only where the site shows them; figures as
tokiod.open(...).jobs() names them, null where a compute node did not report one. Rows are sorted by day, job, target and time; a million
of them are in memory at most.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.analysis.export import json_of, need, nothing, quoted
from tokiod.job_columns import absent, figure_of
from tokiod.jobs.groups import shown
from tokiod.jobs.span import count_names, pieces
from tokiod.times import iso
from tokiod.tts.live.files import replacing
from tokiod.tts.parquet import part_path
from tokiod.window_data import JOB_TABLE

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.analysis.export import Written
    from tokiod.jobs.identity import Users
    from tokiod.jobs.span import Days, SpanRows
    from tokiod.reader.span import Span

ROWS_AT_ONCE = 10_000
"""Lines of text that are written in one piece."""
ROWS_OF_GROUP = 131_072
"""Of a Parquet file."""
TIMES = ("time", "since")


@dataclass(frozen=True, slots=True)
class JobExport:
    """What is exported: the table of a system in a span. users: what is shown of them."""

    days: Days
    span: Span
    users: Users
    progress: Callable[[int], None] = nothing

    def csv_pieces(self) -> Iterator[str]:
        """Yield pieces of a CSV file; times are ISO 8601."""
        names = self._counts()
        yield ",".join(self._columns(names)) + "\n"
        for _, columns in self._parts(names):
            for rows in _lists(columns):
                lines = ([iso(row[0]), iso(row[1]), *map(_field, row[2:])] for row in rows)
                yield "".join(",".join(line) + "\n" for line in lines)

    def json_pieces(self) -> Iterator[str]:
        """Yield pieces of one JSON object on one line, an ExportedJobs."""
        names, first = self._counts(), True
        head = {"system": self.days.system, "table": JOB_TABLE, "columns": self._columns(names)}
        yield f'{json_of(head)[:-1]},"rows":['
        for _, columns in self._parts(names):
            for rows in _lists(columns):
                yield f"{'' if first else ','}{json_of(rows)[1:-1]}"
                first = False
        yield "]}\n"

    def parquet_files(self, directory: Path) -> Iterator[Written]:
        """Write system=S/group=jobs/dataset=operations/date=YYYY-MM-DD/part.parquet for each site day; yield each.

        The span must be of whole days: the file of a day replaces the one that is there. Raises NotInstalled, OSError.
        """
        need("a Parquet file", "pyarrow", "parquet")
        names = self._counts()
        for date, parts in groupby(self._parts(names), key=lambda part: part[0]):
            path = part_path(directory, self.days.system, JOB_TABLE, date)
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                rows = _write_parquet(temporary, (columns for _, columns in parts), {"system": self.days.system, "dataset": JOB_TABLE})
                with temporary.open("rb") as written:
                    os.fsync(written.fileno())
            yield path, rows, len(self._columns(names))

    def _counts(self) -> list[str]:
        return count_names(self.days, self.span.start, self.span.end)

    @property
    def _parts_of_keys(self) -> tuple[str, ...]:
        return ("job", "node", "id") if self.users == "no" else ("job", "user", "command", "node", "id")

    def _columns(self, counts: list[str]) -> list[str]:
        return [*TIMES, "target", *self._parts_of_keys, *map(figure_of, counts)]

    def _parts(self, counts: list[str]) -> Iterator[tuple[dt.date, dict[str, NDArray[Any]]]]:
        """Yield the columns of a million rows at a time, with the site day of each."""
        for date, found in pieces(self.days, self.span.start, self.span.end):
            if len(found.rows):
                yield date, self._of(found, counts)
                self.progress(len(found.rows))

    def _of(self, found: SpanRows, counts: list[str]) -> dict[str, NDArray[Any]]:
        rows, done = found.rows, found.activity.counts
        keys = shown(rows.jobs, self.users)
        targets = np.array([name.decode("ascii") for name in rows.targets.tolist()], object)
        return {
            "time": rows.columns["time"],
            "since": found.activity.since,
            "target": targets[rows.target],
            **{name: np.array([one[name] for one in keys], object)[rows.job] for name in self._parts_of_keys},
            **{figure_of(name): _nullable(done[name] if name in done else np.full(len(rows), absent(name))) for name in counts},
        }


def _nullable(values: NDArray[Any]) -> NDArray[Any]:
    """Return values in which those that a node did not report are masked: nulls."""
    return np.ma.masked_less(values, 0) if (values < 0).any() else values


def _lists(columns: dict[str, NDArray[Any]]) -> Iterator[list[list[Any]]]:
    """Yield rows, some at a time."""
    for first in range(0, len(columns["time"]), ROWS_AT_ONCE):
        yield [[*row] for row in zip(*(values[first : first + ROWS_AT_ONCE].tolist() for values in columns.values()), strict=True)]


def _field(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else "" if value is None else str(value)


def _write_parquet(path: Path, parts: Iterator[dict[str, NDArray[Any]]], attributes: dict[str, str]) -> int:
    """Write a file; return the number of its rows. Text is dictionary-encoded, as jobs and targets repeat."""
    import pyarrow as pa  # noqa: PLC0415 - optional
    import pyarrow.parquet as pq  # noqa: PLC0415 - optional

    writer, rows = None, 0
    with ExitStack() as closing:
        for columns in parts:
            arrays = {
                name: pa.array(values * 1000, pa.timestamp("ms", tz="UTC")) if name in TIMES
                else pa.array(values, pa.string()) if values.dtype == object
                else pa.array(np.ma.getdata(values), pa.int64(), mask=np.ma.getmaskarray(values))
                for name, values in columns.items()
            }  # fmt: skip
            made = pa.table(arrays).replace_schema_metadata(attributes)
            writer = writer or closing.enter_context(pq.ParquetWriter(path, made.schema, compression="zstd"))
            writer.write_table(made, row_group_size=ROWS_OF_GROUP)
            rows += made.num_rows
    return rows
