"""One file of the job table: rows of one or more windows, sorted by job, target and time.

    attributes      form, system; earliest: the time of the earliest row, of files with rows
    windows/        source, start, end: which windows the file holds whole, also those without a row; polled: bits, which targets answered
    names/job       S[jobs], sorted: JOB_PARTS joined by SEPARATOR
    names/target    S[targets], sorted
    first           i8[jobs + 1]: rows first[j] to first[j + 1] are those of job j
    rows/           window, target: indexes; time: epoch seconds of the poll; begin, last: epoch nanoseconds; ended: 0 or 1;
                    OPERATION.samples and OPERATION.sum: the job's counts at that time

A live window and a sealed day have the same form: sealing is merging. A file is replaced whole, by a rename, so a reader takes no lock.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import h5py
import numpy as np

from tokiod.errors import TokiodError
from tokiod.tts.hdf5_output import created, dataset_properties, new_dataset
from tokiod.tts.layout import NotLive, open_for_reading, unreadable
from tokiod.window_data import JOB_PARTS, SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.tts.live.files import Files

T = TypeVar("T")

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
    with _opened(path, _index) as found:
        yield found


def earliest(path: Path) -> int:
    """Return epoch seconds: no row of a file is before them; 0 where it does not say. Faster than opened(). Raises as that."""
    with _opened(path, lambda file: int(file.attrs.get("earliest", 0))) as (_, found):
        return found


@contextmanager
def _opened(path: Path, of: Callable[[Any], T]) -> Iterator[tuple[Any, T]]:
    try:
        opened_file = open_for_reading(path)
    except NotLive as error:
        raise NotAJobTable(str(error)) from error
    with opened_file as file:
        try:
            found = of(file)
        except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:  # what h5py raises for another or a damaged file
            if isinstance(reason := unreadable(path, error), OSError):
                raise reason from error
            raise NotAJobTable(f"{path} is not a file of the job table, or of a newer tokiod ({error}): move it away") from error
        yield file, found


def _index(file: Any) -> Index:
    if file.attrs["form"] != FORM:
        raise ValueError(f"its form is {file.attrs['form']!r}, expected {FORM!r}")
    sources = [name.decode() for name in read(file, "windows/source").tolist()]
    spans = zip(sources, read(file, "windows/start").tolist(), read(file, "windows/end").tolist(), strict=True)
    jobs, targets = _keys(read(file, "names/job")), read(file, "names/target")
    return Index(str(file.attrs["system"]), tuple(spans), jobs, targets, read(file, "first"), tuple(file["rows"]))


def read(file: Any, name: str, rows: slice | None = None) -> NDArray[Any]:
    """Return the elements of a dataset, or a slice with a start and a stop of them. Raises KeyError, OSError, RuntimeError."""
    # Without h5py's objects, which take longer than the rows of a window.
    node = h5py.h5d.open(file.id, name.encode())
    space = memory = h5py.h5s.ALL
    shape = node.shape
    if rows is not None:
        shape = (rows.stop - rows.start,)
        space, memory = node.get_space(), h5py.h5s.create_simple(shape)
        space.select_hyperslab((rows.start,), shape)
    values = np.empty(shape, node.dtype)
    if values.size:
        node.read(memory, space, values)
    return values


def polled(file: Any, index: Index) -> NDArray[np.bool_]:
    """Return bool[windows, targets]: which targets certainly answered in each window. Raises as read(), ValueError."""
    if "windows/polled" not in file:
        return np.zeros((len(index.windows), len(index.targets)), bool)
    bits = read(file, "windows/polled").reshape(len(index.windows), -1)
    return np.unpackbits(bits, axis=1, count=len(index.targets)).astype(bool)


def _keys(stored: NDArray[np.bytes_]) -> NDArray[np.bytes_]:
    """Return keys with all of JOB_PARTS, in the same order: files of the first versions lack the last part."""
    lacking = len(JOB_PARTS) - 1 - (stored[0].decode("ascii").count(SEPARATOR) if len(stored) else len(JOB_PARTS) - 1)
    return np.char.add(stored, SEPARATOR.encode() * lacking) if lacking else stored


def write(
    path: Path, files: Files, index: Index, columns: Iterable[tuple[str, NDArray[Any]]], polled: NDArray[np.bool_] | None = None
) -> None:
    """Write and sync a file. Raises OSError.

    columns: in any order; each is compressed and forgotten before the next is taken. polled: bool[windows, targets].
    """
    with created(path, files) as file:
        file.attrs["form"], file.attrs["system"] = FORM, index.system
        sources, starts, ends = zip(*index.windows, strict=True) if index.windows else ((), (), ())
        _write(file, "windows/source", np.array([name.encode() for name in sources], "S") if sources else np.empty(0, "S1"))
        _write(file, "windows/start", np.array(starts, np.int64))
        _write(file, "windows/end", np.array(ends, np.int64))
        if polled is not None and polled.any():
            _write(file, "windows/polled", np.packbits(polled, axis=1).ravel(), CHUNK_ROWS)
        _write(file, "names/job", index.jobs)
        _write(file, "names/target", index.targets)
        _write(file, "first", index.first)
        for name, values in columns:
            _write(file, f"rows/{name}", values, CHUNK_ROWS)
            if name == "time" and len(values):
                file.attrs["earliest"] = int(values.min())
        file.require_group("rows")
    fd = files.open(path)
    try:
        files.fsync(fd)
    finally:
        files.close(fd)


def _write(file: Any, name: str, values: NDArray[Any], chunk: int = 0) -> None:
    """Write a dataset; compressed, if it has elements, in chunks of so many of them unless that is 0."""
    properties = None
    if chunk and len(values):
        properties = dataset_properties()
        properties.set_chunk((min(len(values), chunk),))
        properties.set_shuffle()
        properties.set_deflate(1)
    node = new_dataset(file, name, values.shape, values.dtype, properties)
    for first in range(0, len(values), SLICE_ROWS):
        some = np.ascontiguousarray(values[first : first + SLICE_ROWS])
        space = node.get_space()
        space.select_hyperslab((first,), some.shape)
        node.write(h5py.h5s.create_simple(some.shape), space, some)


def narrow(values: NDArray[Any], size: int) -> NDArray[Any]:
    """Return indexes below `size` in the smallest unsigned type that holds them."""
    return values.astype(np.min_scalar_type(max(size - 1, 0)))
