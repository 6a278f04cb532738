"""One file of the job table alone, as `tokioctl archive` writes it and as a day of the table has it: read like the days of a system."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokiod.jobs.rows import TableFile
from tokiod.jobs.span import Days
from tokiod.jobs.table_file import Index, NotAJobTable, opened

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class OneFile(Days):
    """A file whose windows are within [start, end), epoch seconds. index: what it holds."""

    path: Path
    start: int
    end: int
    index: Index

    def dates(self) -> dict[dt.date, Path]:
        """Return the file by the date in UTC on which it begins."""
        return {self.date_of(self.path): self.path}

    def of(self, start: int, end: int) -> list[Path]:
        """Return the file if it may have rows of a span."""
        return [self.path] if TableFile(self.path, self.start, self.end, "").may_have(start, end) else []

    def newest(self) -> int | None:
        """Return when the newest window ends."""
        return self.end

    def date_of(self, path: Path) -> dt.date:  # noqa: ARG002 - there is only one
        """Return the date in UTC on which the file begins."""
        return dt.datetime.fromtimestamp(self.start, dt.UTC).date()


def one_file(path: Path) -> OneFile | None:
    """Return a file of the job table, None for any other file and for none. Raises OSError for one that can't be read."""
    if not path.is_file():
        return None
    try:
        with opened(path) as (_, index):
            edges = [edge for _, *window in index.windows for edge in window]
    except NotAJobTable:
        return None
    # `tokioctl archive` calls the system of a file as its output.
    return OneFile((), path.stem if "/" in index.system else index.system, path, min(edges, default=0), max(edges, default=0), index)
