"""Merge files of the job table into one, column by column: what is in memory is one column of all of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.job_columns import absent
from tokiod.jobs.table_file import Index, narrow, opened, polled, read, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.jobs.table_file import Source
    from tokiod.tts.live.files import Files

Rename = Callable[[list[bytes]], list[bytes]]
"""Returns other keys of jobs."""
MAX_FILES = 240
"""That are open at once."""


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A file to be merged.

    jobs: its keys in the merged file; kept: bool[rows], None for all; window: where each of its windows is in the merged file.
    """

    file: Any
    index: Index
    jobs: NDArray[np.bytes_]
    kept: NDArray[np.bool_] | None
    window: NDArray[np.int64]

    def column(self, name: str) -> NDArray[Any]:
        """Return a column of the rows that are kept, absent() where the file has none of that name."""
        if name not in self.index.columns:
            size = int(self.index.first[-1]) if self.kept is None else int(self.kept.sum())
            return np.full(size, absent(name))
        values: NDArray[Any] = read(self.file, f"rows/{name}")
        return values if self.kept is None else values[self.kept]


def merge(paths: Sequence[Path], target: Path, files: Files, rename: Rename | None = None) -> None:
    """Write one synced file with the rows of others; a window that several of them hold is taken from the first one.

    paths: files of windows before merged ones, as readers take them, and newer before older ones. rename: of the keys of jobs. Raises
    OSError, NotAJobTable; ValueError for more than MAX_FILES files.
    """
    if len(paths) > MAX_FILES:
        raise ValueError(f"{len(paths)} files, at most {MAX_FILES} are merged at once")
    with ExitStack() as stack:
        found = [stack.enter_context(opened(path)) for path in paths]
        parts, windows = _parts(found, rename)
        jobs = np.unique(np.concatenate([part.jobs for part in parts]))
        targets = np.unique(np.concatenate([part.index.targets for part in parts]))
        job, place = np.concatenate([_jobs(part, jobs) for part in parts]), np.concatenate([_targets(part, targets) for part in parts])
        time = np.concatenate([part.column("time") for part in parts])
        order = np.lexsort((time, place, job))
        first = np.searchsorted(job[order], np.arange(len(jobs) + 1)).astype(np.int64)
        names = tuple(dict.fromkeys(name for part in parts for name in part.index.columns))
        index = Index(parts[0].index.system, tuple(windows), jobs, targets, first, names)

        def columns() -> Iterator[tuple[str, NDArray[Any]]]:
            yield "target", narrow(place[order], len(targets))
            yield "time", time[order]
            for name in names:
                if name == "window":
                    yield name, narrow(np.concatenate([part.window[part.column(name)] for part in parts])[order], len(windows))
                elif name not in {"target", "time"}:
                    yield name, np.concatenate([part.column(name) for part in parts])[order]

        write(target, files, index, columns(), _polled(parts, targets, len(windows)))


def _parts(found: list[tuple[Any, Index]], rename: Rename | None) -> tuple[list[_Part], dict[Source, int]]:
    """Return the files as parts, and all windows with their places in the merged file."""
    parts: list[_Part] = []
    windows: dict[Source, int] = {}
    for file, index in found:
        is_new = np.array([window not in windows for window in index.windows], bool)
        for window in index.windows:
            windows.setdefault(window, len(windows))
        kept = None if is_new.all() else is_new[read(file, "rows/window")]
        jobs = index.jobs if rename is None or not len(index.jobs) else np.array(rename(index.jobs.tolist()), "S")
        parts.append(_Part(file, index, jobs, kept, np.array([windows[window] for window in index.windows], np.int64)))
    return parts, windows


def _jobs(part: _Part, jobs: NDArray[np.bytes_]) -> NDArray[np.uint32]:
    """Return the job of each row that is kept, as an index into all jobs."""
    codes = np.searchsorted(jobs, part.jobs).astype(np.uint32).repeat(np.diff(part.index.first))
    return codes if part.kept is None else codes[part.kept]


def _polled(parts: Sequence[_Part], targets: NDArray[np.bytes_], windows: int) -> NDArray[np.bool_]:
    """Return bool[windows, targets] of the merged file: files that hold the same window have different attempts at it."""
    found = np.zeros((windows, len(targets)), bool)
    for part in parts:
        found[np.ix_(part.window, np.searchsorted(targets, part.index.targets))] |= polled(part.file, part.index)
    return found


def _targets(part: _Part, targets: NDArray[np.bytes_]) -> NDArray[np.uint32]:
    codes: NDArray[np.uint32] = np.searchsorted(targets, part.index.targets).astype(np.uint32)[part.column("target")]
    return codes
