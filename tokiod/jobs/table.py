"""The job table of an archive: a file per window, written by the writer alone, and merged in the background.

    ROOT/SYSTEM/YYYY-MM-DD/START-END@SOURCE.jobs   a window; of a file of a watched folder, SOURCE.HASH
    ROOT/SYSTEM/YYYY-MM-DD/START-END.jobs          several windows, merged; of a day that is over, all of them

A window is one file that a rename puts in place: stored twice it is there once, a kill leaves whole windows, and no reader waits. What a
server or a node counted at a moment stays true, so no attempt at a window removes a row of an earlier one.

A window may come again after it was merged. Its own file then has the rows of all attempts, and counts before merged files, of which none
shows that it is newer than another. So a window is merged together with the merged files that hold it, and these are removed before it.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.errors import Refusal
from tokiod.increases import BILLION
from tokiod.job_columns import absent
from tokiod.jobs.identity import without_users
from tokiod.jobs.merge import MAX_FILES, merge
from tokiod.jobs.passed_time import PassedTime
from tokiod.jobs.rows import SUFFIX, directory_of, of_ids, table_files, windows_of
from tokiod.jobs.table_file import Index, NotAJobTable, narrow, opened, polled, write
from tokiod.runtime.logger import get_logger
from tokiod.runtime.process_setup import python_command
from tokiod.sink import Applied, UnsyncedFile
from tokiod.tts.layout import unreadable
from tokiod.tts.live.files import REAL, Files, put_in_place, replacing, temporary_path
from tokiod.units import NEVER
from tokiod.window import Window
from tokiod.window_data import JOB_COLUMNS, JOB_TABLE, TableRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.clock import Clock
    from tokiod.jobs.merge import Rename
    from tokiod.jobs.rows import TableFile
    from tokiod.jobs.table_file import Source
    from tokiod.window import Calendar
    from tokiod.window_data import Collected, WindowMeta

log = get_logger()

MERGE_WINDOWS = 60
"""Files of windows of a day that are merged at once: an hour of minutes, so that a day that runs has at most some hundred files."""
SETTLED_SECONDS = 4000
"""How old a window is that is merged: another attempt at it no longer comes. Nodes can be asked again for an hour."""
CHECK_SECONDS = 30.0
DAY_SECONDS = 86400
LOWEST_PRIORITY = 19


Identity = tuple[int, int, int]
"""Of a file: inode, bytes, ns of its last change. The inode alone returns as soon as a file is replaced."""


@dataclass(slots=True)
class _Merge:
    """A merge that runs in a process of its own, or inline: then it is over."""

    inputs: dict[TableFile, Identity]
    target: Path
    process: subprocess.Popen[str] | None = None  # noqa: TID251 - as below
    error: Exception | None = None

    def is_done(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def check(self) -> None:
        """Raise the error of a merge that is over."""
        if self.error is not None:
            raise self.error
        _, said = ("", "") if self.process is None else self.process.communicate()
        if self.process is not None and self.process.returncode:
            raise RuntimeError(said.strip().rpartition("\n")[2] or f"the process that merges ended with {self.process.returncode}")


@dataclass(slots=True)
class JobTable:
    """The files of the job table. root: their directory; seal_after: seconds after a day's end at which its files become one.

    retention, users_retention: seconds that a day is kept, and with users.
    inline: merges are done before run() returns, for tests and simulations.
    """

    root: Path
    calendar: Calendar
    clock: Clock
    files: Files = REAL
    seal_after: int = 3600
    retention: int = NEVER
    users_retention: int = NEVER
    inline: bool = False
    _unsynced: dict[Path, WindowMeta] = field(default_factory=dict, init=False)
    _merging: _Merge | None = field(default=None, init=False)
    _checked: float = field(default=float("-inf"), init=False)
    _failed: dict[Path, float] = field(default_factory=dict, init=False)
    _swept: set[Path] = field(default_factory=set, init=False)
    _anonymous: set[Path] = field(default_factory=set, init=False)
    _may_look: bool = field(default=True, init=False)
    _passed_time: PassedTime = field(init=False)

    def __post_init__(self) -> None:
        self._passed_time = PassedTime(self.clock)

    def configure(self, retention: int, users_retention: int) -> None:
        """Keep days, and the users in them, for so many seconds from now on."""
        self.retention, self.users_retention = retention, users_retention

    def apply(self, collected: Collected) -> Applied:
        """Write a window's rows to a temporary file. Raises Refusal; then nothing of it is stored.

        Rows of earlier attempts that this one lacks stay: since then a server may have forgotten a job, or a node may have restarted.
        A window is refused with operations after the begin of a later one that is stored: a clock went back before it was polled, so its
        counts would stand before smaller ones. The next poll has them, too.
        """
        meta = collected.meta
        other = [rows.table for rows in collected.tables if rows.table != JOB_TABLE]
        if other or collected.batches or len(collected.tables) != 1:
            raise Refusal(f"source {meta.source}: expected rows of {JOB_TABLE} alone, got {', '.join(other) or 'batches'}", "never")
        rows = collected.tables[0]
        if rows.columns[: len(JOB_COLUMNS)] != JOB_COLUMNS:
            raise Refusal(f"source {meta.source}: {JOB_TABLE} without its columns {', '.join(JOB_COLUMNS)}", "never")
        if later := self._later_than(meta, int(rows.values[JOB_COLUMNS.index("last")].max(initial=0)) // BILLION):
            raise Refusal(f"source {meta.source}: {meta.window} was polled after {later}, which is stored: the clock went back", "never")
        # Files of a watched folder may hold parts of one window each: their rows are known by their content.
        meta = meta if meta.extent == "whole" else replace(meta, source=f"{meta.source}.{_digest(rows)}")
        path = self._path(meta)
        try:
            self.files.make_directory(path.parent)
            write_window(temporary_path(path), self.files, meta, with_rows_of(self._holders(path, meta.window), _source(meta), rows))
        except OSError as error:
            with suppress(OSError):
                self.files.unlink(temporary_path(path))
            raise Refusal(f"{meta.system}: {error}", "retry") from error
        self._unsynced[path] = meta
        return Applied(len(rows), Counter())

    def commit(self) -> list[UnsyncedFile]:
        """Put the windows that were applied in place, durably; return those where that failed."""
        failed = []
        unsynced, self._unsynced = self._unsynced, {}
        for path, meta in unsynced.items():
            try:
                put_in_place(temporary_path(path), path, self.files)
            except OSError as error:
                failed.append(UnsyncedFile(meta.system, meta.window, str(path), str(error)))
        return failed

    @property
    def is_busy(self) -> bool:
        """Whether files are being merged."""
        return self._merging is not None

    def run(self) -> None:
        """Begin or end a merge, and remove days that are past their retention; some milliseconds at most."""
        if self._merging is not None:
            if not self._merging.is_done():
                return
            merged, self._merging, self._checked = self._merging, None, float("-inf")
            self._end(merged)
        now = self.clock.monotonic()
        if now - self._checked >= CHECK_SECONDS:
            self._checked = now
            self._begin_one(self.clock.time(), self._passed_time())

    def close(self) -> None:
        """End the merge that runs: another process begins it again. Windows that were not committed are lost."""
        if self._merging is not None and self._merging.process is not None:
            self._merging.process.kill()
            self._merging.process.communicate()
        for path in self._unsynced:
            with suppress(OSError):
                self.files.unlink(temporary_path(path))

    def _path(self, meta: WindowMeta) -> Path:
        window, day = meta.window, self.calendar.day(meta.window.start)
        return directory_of(self.root, meta.system, day.date) / f"{window.start}-{window.end}@{meta.source}{SUFFIX}"

    def _later_than(self, meta: WindowMeta, until: int) -> Window | None:
        """Return a stored window of the source that begins after a window, and not after a time; None without one."""
        of_source, window = (meta.source, meta.system), meta.window
        if meta.extent != "whole" or until < window.end:
            return None
        found = [one.window for one in self._unsynced.values() if (one.source, one.system) == of_source]
        dates = [str(self.calendar.day(time).date) for time in (window.start, until)]
        for directory in self._days_of(self.root / meta.system):
            if dates[0] <= directory.name <= dates[1]:
                files = [file for file in table_files(directory) if window.end < file.end and file.start <= until]
                found += [Window(start, end) for name, start, end in windows_of(files) if name == meta.source]
        return min((one for one in found if window.end <= one.start <= until), default=None)

    def _holders(self, path: Path, window: Window) -> list[Path]:
        """Return the files that may hold a window, the one that counts first. path: of its own file."""
        merged = [file for file in table_files(path.parent) if not file.is_window and file.start <= window.start and window.end <= file.end]
        return [temporary_path(path) if path in self._unsynced else path, *(file.path for file in merged)]

    def _begin_one(self, now: float, passed: float) -> None:
        """Begin the first merge that is due, the oldest day first. What fails in a day is logged, and tried again a day later.

        now: by the clock; passed: the time that has certainly passed, by which days and users are removed.
        """
        self._may_look = True
        for directory in self._directories():
            if self.clock.monotonic() - self._failed.get(directory, float("-inf")) < DAY_SECONDS:
                continue
            try:
                if self._begin_day(directory, now, passed):
                    return
            except Exception as error:  # noqa: BLE001 - no day holds up another one, or the writer
                self._fail(directory, error)

    def _begin_day(self, directory: Path, now: float, passed: float) -> bool:
        """Sweep, remove or merge the files of a day; return whether a merge was begun."""
        self._sweep(directory)
        found = table_files(directory)
        if found and max(file.end for file in found) <= passed - self.retention:
            self._remove(directory, found)
        elif inputs := self._due(found, now) or self._with_old_users(directory, found, passed):
            self._begin(directory, inputs, without_users if self._is_past_users(found, passed) else None)
        return self._merging is not None

    def _directories(self) -> list[Path]:
        """Return the directories of days, the oldest first. What else is below the root is not ours."""
        try:
            systems = [system for system in self.root.iterdir() if system.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            self._fail(self.root, error)
            return []
        return sorted((day for system in systems for day in self._days_of(system)), key=lambda day: day.name)

    def _days_of(self, system: Path) -> list[Path]:
        try:
            return [day for day in system.iterdir() if day.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            self._fail(system, error)
            return []

    def _sweep(self, directory: Path) -> None:
        """Remove what a killed process left in a directory, at the first look at it."""
        if directory not in self._swept:
            open_ones = {temporary_path(path).name for path in self._unsynced}
            for name in self.files.listdir(directory):
                if name.startswith(".") and name.endswith(".tmp") and name not in open_ones:
                    self.files.unlink(directory / name)
            self._swept.add(directory)

    def _fail(self, directory: Path, error: Exception) -> None:
        if self.clock.monotonic() - self._failed.get(directory, float("-inf")) >= DAY_SECONDS:
            log.warning("jobs.not_merged", path=str(directory), error=str(error), reason="its files stay as they are")
        self._failed[directory] = self.clock.monotonic()

    def _due(self, found: Sequence[TableFile], now: float) -> list[TableFile]:
        """Return the files of a day that are to be merged now."""
        settled = [file for file in found if file.is_window and file.end <= now - SETTLED_SECONDS]
        if found and self.calendar.day(found[0].start).end <= now - self.seal_after and len(found) <= MAX_FILES:
            return list(found) if len(found) > 1 or found[0].is_window else []
        return _with_holders(settled[:MAX_FILES], found) if len(settled) >= MERGE_WINDOWS else []

    def _is_past_users(self, found: Sequence[TableFile], passed: float) -> bool:
        return bool(found) and max(file.end for file in found) <= passed - self.users_retention

    def _with_old_users(self, directory: Path, found: Sequence[TableFile], passed: float) -> list[TableFile]:
        """Return the files of a day that hold users for longer than users_retention. One day is looked at each time, and then known."""
        if directory in self._anonymous or not self._may_look or not self._is_past_users(found, passed) or len(found) > MAX_FILES:
            return []
        self._may_look = False
        for file in found:
            with opened(file.path) as (_, index):
                keys = index.jobs.tolist()
            if without_users(keys) != keys:
                return list(found)
        self._anonymous.add(directory)
        return []

    def _begin(self, directory: Path, inputs: Sequence[TableFile], rename: Rename | None) -> None:
        target = directory / f"{min(file.start for file in inputs)}-{max(file.end for file in inputs)}{SUFFIX}"
        paths = list(dict.fromkeys([*(file.path for file in inputs), *([target] if target.exists() else [])]))
        try:
            identities = {file: self._identity(file.path) for file in inputs if file.path != target}
        except OSError:
            return
        self._anonymous.discard(directory)
        self._merging = merging = _Merge(identities, target)
        if self.inline:
            try:
                replace_by_merged(paths, target, self.files, rename)
            except Exception as error:  # noqa: BLE001 - _end() reports it
                merging.error = error
            return
        users = "keep" if rename is None else "remove"
        line = python_command("tokiod.jobs.merge_process", str(os.getpid()), users, str(target), *map(str, paths))
        try:
            # The writer has no event loop, and the process ends with it.
            merging.process = subprocess.Popen(  # noqa: TID251, S603
                line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
        except OSError as error:
            merging.error = error

    def _end(self, merged: _Merge) -> None:
        """Remove the files that were merged, those of several windows first, except those that a window replaced meanwhile."""
        try:
            merged.check()
            for file in sorted(merged.inputs, key=lambda file: file.is_window):
                if self._identity(file.path) == merged.inputs[file]:
                    self.files.unlink(file.path)
            log.info("jobs.merged", path=str(merged.target), files=len(merged.inputs))
        except Exception as error:  # noqa: BLE001 - HDF5 raises anything for a damaged file
            self._swept.discard(merged.target.parent)  # a process that was killed left what it wrote
            self._fail(merged.target.parent, error)

    def _identity(self, path: Path) -> Identity:
        found = self.files.stat(path)
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _remove(self, directory: Path, found: Sequence[TableFile]) -> None:
        for file in found:
            self.files.unlink(file.path)
        directory.rmdir()
        self._swept.discard(directory)
        log.info("jobs.removed", path=str(directory), reason="its retention is over")


def _with_holders(windows: Sequence[TableFile], found: Sequence[TableFile]) -> list[TableFile]:
    """Return files of windows and the merged files that hold one of them too, as many as may be open. Raises OSError, NotAJobTable."""
    holders = [file for file in found if not file.is_window and _holds_one_of(file, windows)]
    return [*windows[: max(MAX_FILES - len(holders), 0)], *holders[:MAX_FILES]]


def _holds_one_of(merged: TableFile, windows: Sequence[TableFile]) -> bool:
    """Return whether a merged file holds one of some windows. A file is opened only where its name allows it."""
    inside = {file.window for file in windows if merged.start <= file.start and file.end <= merged.end}
    if not inside:
        return False
    with opened(merged.path) as (_, index):
        return not inside.isdisjoint(index.windows)


def replace_by_merged(paths: Sequence[Path], target: Path, files: Files, rename: Rename | None) -> None:
    """Merge files and put the result in place, durably. Raises as merge()."""
    with replacing(target, files) as temporary:
        merge(paths, temporary, files, rename)


def write_window(path: Path, files: Files, meta: WindowMeta, rows: TableRows) -> None:
    """Write a window's rows to a file, synced and sorted. Raises OSError."""
    values = dict(zip(rows.columns, rows.values, strict=True))
    jobs, job = np.unique(values.pop("job"), return_inverse=True)
    names = values.pop("target")
    targets = np.unique(np.concatenate([names, np.array(rows.polled, "S")]) if rows.polled else names)
    target = np.searchsorted(targets, names)
    order = np.lexsort((values["time"], target, job))
    first = np.searchsorted(job[order], np.arange(len(jobs) + 1)).astype(np.int64)
    columns = {"window": np.zeros(len(order), np.uint8), "target": narrow(target[order], len(targets))}
    columns |= {name: column[order] for name, column in values.items()}
    index = Index(meta.system, (_source(meta),), jobs, targets, first, tuple(columns))
    write(path, files, index, columns.items(), np.isin(targets, np.array(rows.polled, "S"))[None])


def with_rows_of(paths: Iterable[Path], window: Source, rows: TableRows) -> TableRows:
    """Return the rows of a window with those that are stored of it and are of other jobs, targets or times.

    paths: of files that may hold the window, of which the first that does counts. A missing or damaged one holds nothing. Raises OSError
    where the system can't read one now: that proves nothing against it.
    """
    for path in paths:
        try:
            with opened(path) as (file, index):
                if window in index.windows:
                    place = index.windows.index(window)
                    before = index.targets[polled(file, index)[place]].tolist()
                    return replace(_joined(rows, _stored_rows(file, index, place)), polled=tuple(sorted({*rows.polled, *before})))
        except (FileNotFoundError, NotAJobTable):
            continue
        except (OSError, KeyError, RuntimeError, ValueError, IndexError) as error:  # what h5py raises for a damaged file
            if isinstance(reason := unreadable(path, error), OSError):
                raise reason from error
    return rows


def _stored_rows(file: Any, index: Index, window: int) -> dict[str, NDArray[Any]]:
    """Return the columns of a file's rows of one of its windows."""
    kept = file["rows/window"][...] == window
    job = np.repeat(np.arange(len(index.jobs)), np.diff(index.first))[kept]
    found = {name: file[f"rows/{name}"][...][kept] for name in index.columns if name != "window"}
    return found | {"job": index.jobs[job], "target": index.targets[found["target"]]}


def _joined(rows: TableRows, stored: dict[str, NDArray[Any]]) -> TableRows:
    """Return rows with those of the stored ones that they lack. A column that some do not have is absent() there."""
    given = dict(zip(rows.columns, rows.values, strict=True))
    kept = _are_lacking(given, stored)
    if not kept.any():
        return rows
    both = (given, len(rows)), ({name: values[kept] for name, values in stored.items()}, int(kept.sum()))
    columns = tuple(dict.fromkeys((*rows.columns, *stored)))
    parts = ([of[name] if name in of else np.full(n, absent(name)) for of, n in both] for name in columns)
    return TableRows(rows.table, columns, tuple(map(np.concatenate, parts)))


def _are_lacking(given: dict[str, NDArray[Any]], stored: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Return bool[stored rows], which have a job, target and time that no given row has."""
    n, place = len(given["time"]), np.zeros(1, np.int64)
    for name in ("job", "target", "time"):
        values, number = np.unique(np.concatenate([given[name], stored[name]]), return_inverse=True)
        place = place * len(values) + (of_ids(values)[number] if name == "job" else number)
    found: NDArray[np.bool_] = ~np.isin(place[n:], place[:n])
    return found


def _source(meta: WindowMeta) -> Source:
    return meta.source, meta.window.start, meta.window.end


def _digest(rows: TableRows) -> str:
    content = blake2b(repr(rows.columns).encode(), digest_size=8)
    for values in rows.values:
        content.update(values.tobytes())
    return content.hexdigest()
