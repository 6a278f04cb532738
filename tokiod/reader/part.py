"""One file of an archive: its form, its span, and what its datasets hold."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from tokiod.reader.cells import Cells, Damaged
from tokiod.reader.derived import COUNT_OF, RATE_OF
from tokiod.reader.errors import NotTts
from tokiod.reader.span import Span
from tokiod.tts.layout import NotLive, column_names, form_of, unreadable
from tokiod.tts.schema import GROUPS, UNITS, group_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.tts.layout import Form

MAX_OPEN_FILES = 64
_FAULTS = (LookupError, ValueError, TypeError, RuntimeError, OSError, OverflowError, AttributeError, MemoryError)
"""What h5py raises for a damaged file."""


@dataclass(frozen=True, slots=True)
class DatasetEntry:
    """A dataset of a file.

    units: of a cell; step: seconds between rows; filled: share of its cells until now that are not missing, 0 to 1.
    """

    name: str
    units: str
    step: int
    rows: int
    columns: int
    filled: float


@dataclass(frozen=True, slots=True)
class Shape:
    """The rows and columns of a dataset in one file. Row i covers [start + i x step, start + (i + 1) x step), UTC epoch seconds.

    step: 0 in a file with a single row.
    """

    start: int
    step: int
    rows: int
    columns: tuple[str, ...]
    units: str

    @property
    def end(self) -> int:
        """Epoch seconds of the end of the last row."""
        return self.start + self.rows * (self.step or 1)


class Part:
    """A file that is open for reading, live or sealed, or of another program.

    A descriptor stays open, without any lock, until the part is deleted, so a read is always of one and the same file. HDF5 has the file
    open only while it locates something: a process can't open one file twice with different settings of locking, and users open files too.
    Raises FileNotFoundError while the file is missing, NotTts for a file that is no TTS file or is damaged, OSError where the system can't
    read it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)
        self._file: Any = None
        self._lock = threading.RLock()
        self._shapes: dict[str, Shape] = {}
        self._cells: dict[str, Cells] = {}
        with self.opened() as file:
            self.form: Form = form_of(file)
        self._identity = _identity(os.fstat(self._fd), self.form)

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Open the file with h5py, once for nested uses. Its errors are those of this class."""
        with self._lock, self.readable():
            if self._file is not None:
                yield self._file
                return
            with _opened(self._fd, self.path) as file:
                self._file = file
                try:
                    yield file
                finally:
                    self._file = None

    def is_current(self) -> bool:
        """Return whether the path still is this file: growing, sealing and reopening replace it. Raises FileNotFoundError."""
        return _identity(self.path.stat(), self.form) == self._identity

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The logical names of the datasets that have columns, in the order of the groups."""
        with self.opened() as file:
            groups = [(name, file[name]) for name in GROUPS if isinstance(file.get(name), h5py.Group)]
            names = [f"{name}/{short}" for name, group in groups for short in group if short != "timestamps"]
            return tuple(name for name in names if _has_columns(file[name]))

    def has(self, name: str) -> bool:
        """Return whether the file has a dataset with columns of this logical name."""
        if name in self._shapes:
            return True
        with self.opened() as file:
            return group_of(name) in GROUPS and name in file and _has_columns(file[name])

    def datasets(self, now: float) -> list[DatasetEntry]:
        """Read all cells and describe each dataset. now: epoch seconds; rows that begin later do not count as missing."""
        return [self._entry(name, int(now)) for name in self.names]

    def shape(self, name: str) -> Shape:
        """Return the shape of a dataset. Raises KeyError for one that the file does not have."""
        if name not in self._shapes:
            with self.opened() as file:
                has = self.has(name)
                if has:
                    self._shapes[name] = self._shape(file, name)
            if not has:
                raise KeyError(name)
        return self._shapes[name]

    def cells(self, name: str) -> Cells:
        """Return the cells of a dataset. Raises KeyError as shape() does; see Cells."""
        if name not in self._cells:
            shape = self.shape(name)
            with self.opened() as file:
                # Not a reference to itself: the descriptor is closed with the last user, not when garbage is collected.
                reopened = partial(Part._dataset, weakref.proxy(self), name)
                self._cells[name] = Cells(file[name], len(shape.columns), self._fd, reopened)
        return self._cells[name]

    def read(self, name: str, first: int, last: int, columns: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
        """Return rows [first, last) of columns by number (None: all), NaN where missing."""
        with self.readable():
            return self.cells(name).read(first, last, columns)

    def span(self) -> Span:
        """Return the span of the rows of all datasets. Raises NotTts for a file without any."""
        shapes = [self.shape(name) for name in self.names]
        if not shapes:
            raise NotTts(f"{self.path} has no datasets")
        return Span(min(shape.start for shape in shapes), max(shape.end for shape in shapes))

    @contextmanager
    def _dataset(self, name: str) -> Iterator[Any]:
        with self.opened() as file:
            yield file[name]

    def _shape(self, file: Any, name: str) -> Shape:
        dataset, stamps = file[name], file[f"{group_of(name)}/timestamps"][...]
        if dataset.ndim != 2 or stamps.ndim != 1 or not len(stamps) or dataset.shape[0] != len(stamps):  # noqa: PLR2004 - time, column
            raise Damaged(f"{name} is {dataset.shape}, and its time stamps are {stamps.shape}")
        start, step = int(stamps[0]), int(stamps[1] - stamps[0]) if len(stamps) > 1 else 0
        if len(stamps) > 1 and (step <= 0 or not np.array_equal(stamps, start + step * np.arange(len(stamps)))):
            raise Damaged(f"the time stamps of {name} are not evenly spaced")
        columns = _names_of(dataset)
        if len(columns) > dataset.shape[1] or len(set(columns)) < len(columns):
            raise Damaged(f"{name} has {dataset.shape[1]} columns and {len(columns)} names, {len(set(columns))} of them different")
        return Shape(start, step, len(stamps), columns, self._units(name, dataset))

    def _units(self, name: str, dataset: Any) -> str:
        # pytokio's early files call the units of counts rates; the names are right.
        if self.form == "foreign" and (name in COUNT_OF or name in RATE_OF):
            return UNITS[name]
        value = dataset.attrs.get("units", b"")
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def _entry(self, name: str, now: int) -> DatasetEntry:
        shape = self.shape(name)
        rows = min(max(0, -(-(now - shape.start) // (shape.step or 1))), shape.rows)
        values = self.read(name, 0, rows)
        filled = float(1 - np.isnan(values).mean()) if values.size else 0.0
        return DatasetEntry(name, shape.units, shape.step, shape.rows, len(shape.columns), round(filled, 6))

    @contextmanager
    def readable(self) -> Iterator[None]:
        """Raise the errors of this class instead of those that HDF5 and cells raise for a damaged file."""
        try:
            yield
        except (NotTts, FileNotFoundError, PermissionError):
            raise
        except NotLive as error:
            raise NotTts(str(error)) from error
        except Damaged as error:
            raise NotTts(f"{self.path}: {error}") from error
        except _FAULTS as error:
            found = unreadable(self.path, error)
            raise NotTts(str(found)) if isinstance(found, NotLive) else found from error


def _has_columns(dataset: Any) -> bool:
    return isinstance(dataset, h5py.Dataset) and "columns" in dataset.attrs and any(_names_of(dataset))


# By the descriptor, not by the path, which may be another file by now. HDF5 can't open a descriptor, but a file object of Python.
def _opened(fd: int, path: Path) -> Any:
    try:
        return h5py.File(os.fdopen(fd, "rb", buffering=0, closefd=False), "r")
    except OSError as error:
        raise unreadable(path, error, "HDF5 can't open it: ") from error


class OpenParts:
    """The files that a reader has open: the last MAX_OPEN_FILES, each as long as its path still is the same file."""

    def __init__(self, limit: int = MAX_OPEN_FILES) -> None:
        self._limit = limit
        self._parts: OrderedDict[Path, Part] = OrderedDict()
        self._lock = threading.Lock()

    def part(self, path: Path) -> Part:
        """Return the file that has this path now. Raises as Part."""
        with self._lock:
            found = self._parts.pop(path, None)
        if found is None or not found.is_current():
            found = Part(path)
        with self._lock:
            self._parts[path] = found
            while len(self._parts) > self._limit:
                self._parts.popitem(last=False)
        return found

    def close(self) -> None:
        """Forget all files; each is closed when its last read ends."""
        with self._lock:
            self._parts.clear()


def _identity(state: os.stat_result, form: Form) -> tuple[int, ...]:
    """Return what changes where a file must be opened again. Only a live file is written in place, and not where HDF5 would cache it."""
    same = (state.st_dev, state.st_ino)
    return same if form == "live" else (*same, state.st_size, state.st_mtime_ns)


def _names_of(dataset: Any) -> tuple[str, ...]:
    """Return the names of the columns. Most files of an archive have the same ones: they share one tuple."""
    columns = dataset.attrs["columns"]
    if isinstance(columns, np.ndarray) and columns.dtype.kind == "S":
        return _decoded(columns.tobytes(), columns.dtype.itemsize)
    return column_names(dataset)


@lru_cache(maxsize=256)
def _decoded(names: bytes, size: int) -> tuple[str, ...]:
    return tuple(name.decode(errors="replace") for name in np.frombuffer(names, f"S{size}").tolist() if name)
