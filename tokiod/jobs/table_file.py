"""One file of the job table: rows of one or more windows, sorted by job, target and time.

    attributes      form, system
    windows/        source, start, end: which windows the file holds whole, also those without a row
    names/job       S[jobs], sorted: job, user, command and node, joined by SEPARATOR
    names/target    S[targets], sorted
    first           i8[jobs + 1]: rows first[j] to first[j + 1] are those of job j
    rows/           window, target: indexes; time: epoch seconds of the poll; begin, last: epoch nanoseconds; ended: 0 or 1;
                    OPERATION.samples and OPERATION.sum: the job's counts at that time

A live window and a sealed day have the same form: sealing is merging. A file is replaced whole, by a rename, so a reader takes no lock.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.errors import TokiodError
from tokiod.tts.hdf5_output import created
from tokiod.tts.layout import NotLive, open_for_reading
from tokiod.window_data import JOB_PARTS, SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.tts.live.files import Files

FORM = "tokiod jobs 1"
FIXED = ("time", "begin", "last", "ended")
"""Columns that every file has; the others are counts."""
CHUNK_ROWS = 16384
"""Of a column. A job of a day mostly has a few thousand rows."""
SLICE_ROWS = 1 << 20
"""Rows that are compressed in one call: HDF5's lock is held meanwhile, and windows are stored between two calls."""

Source = tuple[str, int, int]
"""A window of a source: its name, start and end in epoch seconds."""


class NotAJobTable(TokiodError, ValueError):  # noqa: N818 - a state, not a fault
    """A file is not of the job table, or of another version of tokiod."""


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """What a file holds, without its columns. jobs, targets: S[...] sorted; first: i8[jobs + 1]; columns: names of all in rows/."""

    system: str
    windows: tuple[Source, ...]
    jobs: NDArray[np.bytes_]
    targets: NDArray[np.bytes_]
    first: NDArray[np.int64]
    columns: tuple[str, ...]

    def rows_of(self, job: bytes) -> slice:
        """Return the rows of the jobs whose name, before the first separator, is this one."""
        low, high = np.searchsorted(self.jobs, [job + b"\x1f", job + b"\x20"])
        return slice(int(self.first[low]), int(self.first[high]))

    @property
    def counts(self) -> tuple[str, ...]:
        """Return the names of the columns that are counts."""
        return tuple(name for name in self.columns if name not in {*FIXED, "window", "target"})


@contextmanager
def opened(path: Path) -> Iterator[tuple[Any, Index]]:
    """Open a file for reading. Raises OSError, NotAJobTable."""
    try:
        opened_file = open_for_reading(path)
    except NotLive as error:
        raise NotAJobTable(str(error)) from error
    with opened_file as file:
        try:
            index = _index(file)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:  # what h5py raises for another or a damaged file
            raise NotAJobTable(f"{path} is not a file of the job table, or of a newer tokiod ({error}): move it away") from error
        yield file, index


def _index(file: Any) -> Index:
    if file.attrs["form"] != FORM:
        raise ValueError(f"its form is {file.attrs['form']!r}, expected {FORM!r}")
    windows = file["windows"]
    sources = [name.decode() for name in windows["source"][...].tolist()]
    spans = zip(sources, windows["start"][...].tolist(), windows["end"][...].tolist(), strict=True)
    return Index(
        str(file.attrs["system"]),
        tuple(spans),
        _keys(file["names/job"][...]),
        file["names/target"][...],
        file["first"][...],
        tuple(file["rows"]),
    )


def _keys(stored: NDArray[np.bytes_]) -> NDArray[np.bytes_]:
    """Return keys with all of JOB_PARTS, in the same order: files of the first versions lack the last part."""
    lacking = len(JOB_PARTS) - 1 - (stored[0].decode("ascii").count(SEPARATOR) if len(stored) else len(JOB_PARTS) - 1)
    return np.char.add(stored, SEPARATOR.encode() * lacking) if lacking else stored


def write(path: Path, files: Files, index: Index, columns: Iterable[tuple[str, NDArray[Any]]]) -> None:
    """Write and sync a file. columns: in any order; each is compressed and forgotten before the next is taken. Raises OSError."""
    with created(path, files) as file:
        file.attrs["form"], file.attrs["system"] = FORM, index.system
        sources, starts, ends = zip(*index.windows, strict=True) if index.windows else ((), (), ())
        file["windows/source"] = np.array([name.encode() for name in sources], "S") if sources else np.empty(0, "S1")
        file["windows/start"], file["windows/end"] = np.array(starts, np.int64), np.array(ends, np.int64)
        file["names/job"], file["names/target"], file["first"] = index.jobs, index.targets, index.first
        for name, values in columns:
            _write_column(file, f"rows/{name}", values)
        file.require_group("rows")
    fd = files.open(path)
    try:
        files.fsync(fd)
    finally:
        files.close(fd)


def _write_column(file: Any, name: str, values: NDArray[Any]) -> None:
    if not len(values):
        file.create_dataset(name, (0,), values.dtype)
        return
    node = file.create_dataset(name, values.shape, values.dtype, chunks=(min(len(values), CHUNK_ROWS),), compression=1, shuffle=True)
    for first in range(0, len(values), SLICE_ROWS):
        node[first : first + SLICE_ROWS] = values[first : first + SLICE_ROWS]


def narrow(values: NDArray[Any], size: int) -> NDArray[Any]:
    """Return indexes below `size` in the smallest unsigned type that holds them."""
    return values.astype(np.min_scalar_type(max(size - 1, 0)))
