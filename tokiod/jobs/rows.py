"""Read rows of the job table: of a span, all of them or those of some jobs. A reader takes no lock and waits for nothing."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tokiod.job_columns import absent, is_state
from tokiod.jobs import table_file
from tokiod.jobs.table_file import FIXED, NotAJobTable, earliest, opened
from tokiod.runtime.logger import get_logger
from tokiod.tts.layout import unreadable
from tokiod.window_data import JOB_LOOKBACK_SECONDS

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.jobs.table_file import Index, Source

log = get_logger()

T = TypeVar("T")

SUFFIX = ".jobs"
SEPARATOR = b"\x1f"
"""Of the parts of a key, the last of which is the hash of the job's id."""
ATTEMPTS = 300
"""At reading a directory. A merge removes up to MAX_FILES files one after the other, and each may end an attempt."""
MAX_SLICES = 64
"""Of a column that are read one by one: from so many on, all between the first and the last is read at once, and divided then."""
_NAME = re.compile(rf"(\d+)-(\d+)(?:@([A-Za-z0-9_.-]+))?{re.escape(SUFFIX)}")


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of the table by its name: it holds windows of [start, end). source: of the one window that it holds, "" of several windows."""

    path: Path
    start: int
    end: int
    source: str

    @property
    def is_window(self) -> bool:
        """Whether the file holds one window of one source, else several."""
        return bool(self.source)

    @property
    def window(self) -> Source:
        """Return the one window that the file holds."""
        return self.source, self.start, self.end

    def may_have(self, start: int, end: int) -> bool:
        """Return whether the file may have rows of a span: those of polls before a window may stand in it."""
        return start < self.end and self.start - JOB_LOOKBACK_SECONDS < end


@dataclass(frozen=True, slots=True, eq=False)
class JobRows:
    """n rows of the job table, sorted by job, target and time; of one time by begin and last, and the one with the largest counts first.

    jobs, targets: S[...] sorted; job, target: i8[n] indexes into them; columns: i8[n] each: time (epoch seconds of the poll), begin, last
    (epoch nanoseconds, begin -1 if unknown), ended; counts: i8[n] each, OPERATION.samples and OPERATION.sum, and
    what tokiod.job_columns names of nodes, UNKNOWN where a node did not report it.
    """

    jobs: NDArray[np.bytes_]
    targets: NDArray[np.bytes_]
    job: NDArray[np.int64]
    target: NDArray[np.int64]
    columns: dict[str, NDArray[np.int64]]
    counts: dict[str, NDArray[np.int64]]

    def __len__(self) -> int:
        return len(self.job)

    def where(self, kept: NDArray[np.bool_] | NDArray[np.int64]) -> JobRows:
        """Return some of the rows. kept: bool[n], or their places."""
        if kept.dtype == bool and kept.all():
            return self
        columns, counts = ({name: values[kept] for name, values in of.items()} for of in (self.columns, self.counts))
        return JobRows(self.jobs, self.targets, self.job[kept], self.target[kept], columns, counts)


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """Which rows are read, and which of their counts. Without any of these, all of them.

    job: the name that they have; keys: S[...], of whole keys of jobs, also under other names; low, high: of whole keys, low <= key < high;
    counts: names of columns.
    """

    job: bytes | None = None
    keys: NDArray[np.bytes_] | None = None
    low: bytes | None = None
    high: bytes | None = None
    counts: Collection[str] | None = None

    @classmethod
    def of_job(cls, name: str) -> Wanted:
        """Return the wish for all rows of a job's name, with all counts."""
        return cls(job=name.encode("ascii", "replace"))

    def slices(self, index: Index) -> list[slice]:
        """Return the rows of a file."""
        if self.job is not None:
            found = [index.rows_of(self.job)]
        elif self.keys is not None:
            found = _slices(index, self.keys)
        else:
            low = 0 if self.low is None else int(np.searchsorted(index.jobs, self.low))
            high = len(index.jobs) if self.high is None else int(np.searchsorted(index.jobs, self.high))
            found = [slice(int(index.first[low]), int(index.first[high]))]
        return [one for one in found if one.start < one.stop]

    def columns(self, index: Index) -> list[str]:
        """Return the columns of a file that are read, without `window`."""
        return [name for name in index.columns if name != "window" and (self.counts is None or name in {*FIXED, "target", *self.counts})]


def _slices(index: Index, keys: NDArray[np.bytes_]) -> list[slice]:
    wanted = {_identity(key) for key in keys.tolist()}
    places = np.flatnonzero(np.array([_identity(key) in wanted for key in index.jobs.tolist()], bool))
    starts, stops = index.first[places], index.first[places + 1]
    # Rows of neighbours are read at once.
    is_new = np.ones(len(places), bool)
    is_new[1:] = starts[1:] != stops[:-1]
    firsts = np.flatnonzero(is_new)
    lasts = np.append(firsts[1:], len(places)) - 1
    return [slice(int(start), int(stop)) for start, stop in zip(starts[firsts], stops[lasts], strict=True)] if len(places) else []


def directory_of(root: Path, system: str, date: dt.date) -> Path:
    """Return the directory of a system and a site day."""
    return root / system / date.isoformat()


def table_files(directory: Path) -> list[TableFile]:
    """Return the files of a directory, merged ones last, or one file alone. Raises OSError; a missing directory has none."""
    try:
        names = [(path, _NAME.fullmatch(path.name)) for path in directory.iterdir()]
    except FileNotFoundError:
        return []
    except NotADirectoryError:  # one file alone, of any name
        return [_alone(directory)]
    found = [TableFile(path, int(name[1]), int(name[2]), name[3] or "") for path, name in names if name is not None]
    return sorted(found, key=lambda file: (not file.is_window, file.start, file.end, file.path))


def _alone(path: Path) -> TableFile:
    with opened(path) as (_, index):
        return TableFile(path, min(start for _, start, _ in index.windows), max(end for *_, end in index.windows), "")


def read(directories: Iterable[Path], start: int, end: int, wanted: Wanted | str | None = None) -> JobRows:
    """Return the rows with times in [start, end). directories: of the days; wanted: also the name of a job.

    A count that is not in all files is absent() in the others. Raises OSError, NotAJobTable.
    """
    chosen = Wanted.of_job(wanted) if isinstance(wanted, str) else wanted or Wanted()
    return _joined([part for directory in directories for part in _of_directory(directory, start, end, chosen)])


def joined(found: Sequence[JobRows]) -> JobRows:
    """Return all rows of several readings, which have none in common."""
    return _joined([_Part(one.jobs, one.targets, one.job, one.target, {**one.columns, **one.counts}) for one in found])


def indexes(directory: Path, start: int, end: int) -> list[Index]:
    """Return the indexes of the files that may have rows of a span. Raises as read()."""
    return _retried(lambda: [index for _, index in _opened(directory, start, end)])


def polled_until(directory: Path, low: int, start: int, targets: NDArray[np.bytes_]) -> NDArray[np.int64]:
    """Return i8[targets]: until when each was polled before a time, as far as windows that end after `low` show; 0 where none does.

    A window that has a row of a target polled it, and so did one whose file says so. Another window proves nothing about it, for its server
    may have been silent. targets: S[...] sorted. Raises as read().
    """
    return _retried(lambda: _polled_until(directory, low, start, targets))


def _polled_until(directory: Path, low: int, start: int, targets: NDArray[np.bytes_]) -> NDArray[np.int64]:
    files = [file for file in table_files(directory) if _has(file, low, start)]
    files.sort(key=lambda file: (not file.is_window, -file.end))
    polls = _Polls(start, targets)
    for place, file in enumerate(files):
        if polls.until.min() >= min(start, max(one.end for one in files[place:])):
            break
        with opened(file.path) as (content, index):
            polls.add(content, index)
    return polls.until


class _Polls:
    """Until when targets were polled before a time, by the files that were added: those that count first. until: i8[targets]."""

    def __init__(self, start: int, targets: NDArray[np.bytes_]) -> None:
        self._start, self._targets = start, targets
        self._known: set[Source] = set()
        self.until = np.zeros(len(targets), np.int64)

    def add(self, content: Any, index: Index) -> None:
        """Add the windows of a file that no file before it holds."""
        is_new = np.array([window not in self._known for window in index.windows], bool)
        self._known.update(index.windows)
        if not is_new.any() or not np.isin(index.targets, self._targets).any():
            return
        place = np.where(np.isin(index.targets, self._targets), np.searchsorted(self._targets, index.targets), -1)
        window, target, time = (_column(content, name, [slice(0, int(index.first[-1]))]) for name in ("window", "target", "time"))
        starts, ends = (np.array([one[part] for one in index.windows], np.int64) for part in (1, 2))
        # A row of the poll before may stand in a later window, which polled nothing before its own start.
        until = np.where(time >= starts[window], np.minimum(ends[window], self._start), time)
        kept = (place[target] >= 0) & is_new[window] & (time < self._start)
        np.maximum.at(self.until, place[target][kept], until[kept])
        with _checked(content, "polled"):
            polled = table_file.polled(content, index) & (is_new & (starts < self._start))[:, None]
        # Of the window in which the time is, rows say when their target was polled.
        has_rows = np.zeros_like(polled)
        has_rows[window, target] = True
        polled &= (ends <= self._start)[:, None] | ~has_rows
        of = np.flatnonzero(place >= 0)
        found = np.where(polled[:, of], np.minimum(ends, self._start)[:, None], 0).max(axis=0)
        np.maximum.at(self.until, place[of], found)


def stored_windows(directory: Path) -> Iterator[Source]:
    """Yield the windows that the files of a directory hold, in any order. A file that can't be read is logged and proves nothing."""
    yield from windows_of(table_files(directory))


def windows_of(files: Iterable[TableFile]) -> Iterator[Source]:
    """Yield the windows that files hold, as stored_windows() does."""
    for file in files:
        try:
            with opened(file.path) as (_, index):
                windows = index.windows
        except (OSError, NotAJobTable) as error:
            log.warning("jobs.file_skipped", path=str(file.path), error=str(error))
            continue
        yield from windows


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Rows of one file. job, target: indexes into jobs and targets; values: all other columns."""

    jobs: NDArray[np.bytes_]
    targets: NDArray[np.bytes_]
    job: NDArray[np.int64]
    target: NDArray[Any]
    values: dict[str, NDArray[Any]]


def _of_directory(directory: Path, start: int, end: int, wanted: Wanted) -> list[_Part]:
    return _retried(lambda: list(_parts(directory, start, end, wanted)))


# A merge puts its file in place before it removes the others: of files that vanish after a listing, the next one shows the merged file.
def _retried(work: Callable[[], T]) -> T:
    for _ in range(ATTEMPTS - 1):
        try:
            return work()
        except FileNotFoundError:
            continue
    return work()


def _opened(directory: Path, start: int, end: int) -> Iterator[tuple[Any, Index]]:
    for file in table_files(directory):
        if _has(file, start, end):
            with opened(file.path) as (content, index):
                yield content, index


def _has(file: TableFile, start: int, end: int) -> bool:
    return file.may_have(start, end) and (file.start < end or earliest(file.path) < end)


def _parts(directory: Path, start: int, end: int, wanted: Wanted) -> Iterator[_Part]:
    known: set[Source] = set()
    for content, index in _opened(directory, start, end):
        is_new = np.array([window not in known for window in index.windows], bool)
        known.update(index.windows)
        if not (slices := wanted.slices(index)) or not is_new.any():
            continue
        rows = np.concatenate([np.arange(one.start, one.stop) for one in slices])
        time = _column(content, "time", slices)
        kept = (time >= start) & (time < end)
        if not is_new.all():
            kept &= is_new[_column(content, "window", slices)]
        if not kept.any():
            continue
        job = np.searchsorted(index.first, rows[kept], side="right") - 1
        used = np.zeros(len(index.jobs), bool)
        used[job] = True
        some = slice(None) if kept.all() else kept
        values = {name: _column(content, name, slices)[some] for name in wanted.columns(index) if name != "time"}
        yield _Part(index.jobs[used], index.targets, np.cumsum(used)[job] - 1, values.pop("target"), {"time": time[kept], **values})


def _column(content: Any, name: str, slices: Sequence[slice]) -> NDArray[Any]:
    first = slices[0].start
    with _checked(content, name):
        if len(slices) <= MAX_SLICES:
            parts = [table_file.read(content, f"rows/{name}", one) for one in slices]
            return parts[0] if len(parts) == 1 else np.concatenate(parts)
        whole = table_file.read(content, f"rows/{name}", slice(first, slices[-1].stop))
    return np.concatenate([whole[one.start - first : one.stop - first] for one in slices])


@contextmanager
def _checked(content: Any, name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, KeyError, ValueError, RuntimeError) as error:  # what h5py raises for a damaged chunk
        if isinstance(reason := unreadable(content.filename, error), OSError):
            raise reason from error
        raise NotAJobTable(f"{content.filename} is damaged: {name}: {error}") from error


def _joined(parts: Sequence[_Part]) -> JobRows:
    empty = np.empty(0, "S1")
    jobs, targets = (np.unique(np.concatenate([empty, *(getattr(part, name) for part in parts)])) for name in ("jobs", "targets"))
    if not parts:
        none = np.empty(0, np.int64)
        return JobRows(jobs, targets, none, none, dict.fromkeys(FIXED, none), {})
    job = np.concatenate([np.searchsorted(jobs, part.jobs)[part.job] for part in parts])
    target = np.concatenate([np.searchsorted(targets, part.targets)[part.target] for part in parts])
    names = dict.fromkeys(name for part in parts for name in (*FIXED, *part.values))
    columns = {
        name: np.concatenate([part.values[name] if name in part.values else np.full(len(part.job), absent(name)) for part in parts])
        for name in names
    }
    stands = of_ids(jobs)
    # One file is sorted already, unless a job has two keys in it: those of windows before and after another configuration were merged.
    if len(parts) > 1 or not np.array_equal(stands, np.arange(len(jobs))):
        job = stands[job]
        order = np.lexsort((columns["time"], target, job))
        job, target, columns = job[order], target[order], {name: column[order] for name, column in columns.items()}
    _sort_one_time(job, target, columns)
    ordered = {name: column.astype(np.int64, copy=False) for name, column in columns.items()}
    fixed = {name: ordered.pop(name) for name in FIXED}
    return JobRows(jobs, targets, job, target, fixed, ordered)


def _sort_one_time(job: NDArray[np.int64], target: NDArray[np.int64], columns: dict[str, NDArray[Any]]) -> None:
    """Sort rows with the same job, target and time, so that their order does not depend on their files. The rows are sorted otherwise."""
    time, is_tied = columns["time"], np.zeros(len(job) + 1, bool)
    is_tied[1:-1] = (job[1:] == job[:-1]) & (target[1:] == target[:-1]) & (time[1:] == time[:-1])
    if not is_tied.any():
        return
    at = np.flatnonzero(is_tied[:-1] | is_tied[1:])
    whole = np.zeros(len(at))
    for name, values in columns.items():
        if name not in FIXED and not is_state(name):
            whole += values[at]
    then = at[np.lexsort((-whole, columns["last"][at], columns["begin"][at], time[at], target[at], job[at]))]
    for values in columns.values():
        values[at] = values[then]


# Of a day whose users were removed, and in one before the site's configuration changed, a job has another key.
def of_ids(jobs: NDArray[np.bytes_]) -> NDArray[np.int64]:
    """Return the index of the key that stands for each key: the last one with the same hash of the whole id."""
    ids = [_identity(key) for key in jobs.tolist()]
    last = {identity: place for place, identity in enumerate(ids)}
    return np.array([last[identity] for identity in ids], np.int64)


def _identity(key: bytes) -> bytes:
    """Return the hash of the whole id; of a key without one, of the first versions, the key."""
    return key.rpartition(SEPARATOR)[2] or key
