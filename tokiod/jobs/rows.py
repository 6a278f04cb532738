"""Read the rows of a span from the job table: of all jobs, or of one. A reader takes no lock and waits for nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog

from tokiod.jobs.table_file import FIXED, NotAJobTable, opened
from tokiod.tts.layout import NotLive

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.jobs.table_file import Index, Source

log = structlog.get_logger()

SUFFIX = ".jobs"
ATTEMPTS = 5
"""At reading a directory, where files of it are merged meanwhile."""
_NAME = re.compile(rf"(\d+)-(\d+)(@[A-Za-z0-9_.-]+)?{re.escape(SUFFIX)}")


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of the table by its name: it holds rows of [start, end). is_window: one window of one source, else several."""

    path: Path
    start: int
    end: int
    is_window: bool


@dataclass(frozen=True, slots=True, eq=False)
class JobRows:
    """n rows of the job table, sorted by job, target and time.

    jobs, targets: S[...] sorted; job, target: i8[n] indexes into them; columns: i8[n] each: time (epoch seconds of the poll), begin, last
    (epoch nanoseconds, begin -1 if unknown), ended; counts: i8[n] each, OPERATION.samples and OPERATION.sum.
    """

    jobs: NDArray[np.bytes_]
    targets: NDArray[np.bytes_]
    job: NDArray[np.int64]
    target: NDArray[np.int64]
    columns: dict[str, NDArray[np.int64]]
    counts: dict[str, NDArray[np.int64]]

    def __len__(self) -> int:
        return len(self.job)


def directory_of(root: Path, system: str, date: dt.date) -> Path:
    """Return the directory of a system and a site day."""
    return root / system / date.isoformat()


def table_files(directory: Path) -> list[TableFile]:
    """Return the files of a directory, merged ones last. Raises OSError; a missing directory has none."""
    try:
        names = [(path, _NAME.fullmatch(path.name)) for path in directory.iterdir()]
    except FileNotFoundError:
        return []
    found = [TableFile(path, int(name[1]), int(name[2]), name[3] is not None) for path, name in names if name is not None]
    return sorted(found, key=lambda file: (not file.is_window, file.start, file.end, file.path))


def read(directories: Sequence[Path], start: int, end: int, job: str | None = None) -> JobRows:
    """Return the rows with times in [start, end), of all jobs or of those of one name. directories: of the days, oldest first.

    Raises OSError, NotLive, NotAJobTable.
    """
    name = None if job is None else job.encode("ascii", "replace")
    return _joined([part for directory in directories for part in _of_directory(directory, start, end, name)])


def stored_windows(directory: Path) -> Iterator[Source]:
    """Yield the windows that the files of a directory hold, in any order. A file that can't be read is logged and proves nothing."""
    for file in table_files(directory):
        try:
            with opened(file.path) as (_, index):
                windows = index.windows
        except (OSError, NotLive, NotAJobTable) as error:
            log.warning("jobs.file_skipped", path=str(file.path), error=str(error))
            continue
        yield from windows


# A merge puts its file in place before it removes the others: of files that vanish after a listing, the next one shows the merged file.
def _of_directory(directory: Path, start: int, end: int, job: bytes | None) -> list[_Part]:
    for attempt in range(ATTEMPTS):
        try:
            return list(_parts(directory, start, end, job))
        except FileNotFoundError:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError  # unreachable


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    index: Index
    job: NDArray[np.int64]
    values: dict[str, NDArray[Any]]


def _parts(directory: Path, start: int, end: int, job: bytes | None) -> Iterator[_Part]:
    known: set[Source] = set()
    for file in table_files(directory):
        if file.end <= start or end <= file.start:
            continue
        with opened(file.path) as (content, index):
            is_new = np.array([window not in known for window in index.windows], bool)
            known.update(index.windows)
            rows = slice(0, int(index.first[-1])) if job is None else index.rows_of(job)
            if rows.start == rows.stop or not is_new.any():
                continue
            values = {name: content[f"rows/{name}"][rows] for name in index.columns}
        kept = (values["time"] >= start) & (values["time"] < end)
        if not is_new.all():
            kept &= is_new[values["window"]]
        codes = np.searchsorted(index.first, np.arange(rows.start, rows.stop), side="right") - 1
        yield _Part(index, codes[kept], {name: column[kept] for name, column in values.items()})


def _joined(parts: Sequence[_Part]) -> JobRows:
    empty = np.empty(0, "S1")
    jobs, targets = (np.unique(np.concatenate([empty, *(getattr(part.index, name) for part in parts)])) for name in ("jobs", "targets"))
    if not parts:
        none = np.empty(0, np.int64)
        return JobRows(jobs, targets, none, none, dict.fromkeys(FIXED, none), {})
    job = np.concatenate([np.searchsorted(jobs, part.index.jobs)[part.job] for part in parts])
    target = np.concatenate([np.searchsorted(targets, part.index.targets)[part.values["target"]] for part in parts])
    names = dict.fromkeys(name for part in parts for name in (*FIXED, *part.index.counts))
    columns = {
        name: np.concatenate([part.values[name] if name in part.values else np.zeros(len(part.job), np.int64) for part in parts])
        for name in names
    }
    order = np.lexsort((columns["time"], target, job))
    ordered = {name: column[order].astype(np.int64) for name, column in columns.items()}
    fixed = {name: ordered.pop(name) for name in FIXED}
    return JobRows(jobs, targets, job[order], target[order], fixed, ordered)
