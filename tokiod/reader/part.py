"""One file of an archive: its form, its span, and what its datasets hold."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from tokiod.reader.cells import Cells, Damaged, KeptChunks
from tokiod.reader.derived import COUNT_OF, RATE_OF
from tokiod.reader.errors import NotTts
from tokiod.reader.h5lmt import STEPS, H5lmtMatrix, matrices
from tokiod.reader.kept_results import kept
from tokiod.reader.span import Span
from tokiod.tts.layout import NotLive, column_names, dataset_names, form_of, unreadable
from tokiod.tts.schema import GROUPS, UNITS, group_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.tts.layout import Form

MAX_OPEN_FILES = 64
MAX_ROWS = 10_000_000
"""Of a dataset: a hundred rows a second. A file that claims more is damaged, and its time stamps would take the memory."""
DAY_SECONDS = 86400
"""How long the only row of a dataset is taken to last."""
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

    step: 0 in a file with a single row that does not state it, as pytokio's.
    """

    start: int
    step: int
    rows: int
    columns: tuple[str, ...]

    @property
    def end(self) -> int:
        """Epoch seconds of the end of the last row."""
        return self.start + self.rows * (self.step or 1)

    @property
    def times(self) -> NDArray[np.int64]:
        """The left edges i8[rows], UTC epoch seconds."""
        return self.start + self.step * np.arange(self.rows, dtype=np.int64)


class Part:
    """A file that is open for reading, live or sealed, or of another program.

    It is opened once, without any lock, and stays open until the part is deleted, so a read is always of one and the same file. HDF5 reads
    it through a file object of Python: by its path, a process could not have the file open a second time with different settings of
    locking, and users open files too. Names, columns and times are read once, when they are asked for: an open file never gets others.
    Raises FileNotFoundError while the file is missing, NotTts for a file that is no TTS file or is damaged, OSError where the system can't
    read it.

    kept: chunks that stay inflated, for many small reads.
    """

    def __init__(self, path: Path, kept: KeptChunks | None = None) -> None:
        self.path, self._kept = path, kept
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._lock = threading.RLock()
        self._nodes: dict[str, Any] = {}
        self._columns: dict[str, tuple[str, ...]] = {}
        self._rows: dict[str, tuple[int, int, int]] = {}
        self._units: dict[str, str] = {}
        self._shapes: dict[str, Shape] = {}
        self._cells: dict[str, Cells] = {}
        try:
            self._state = os.fstat(self._fd)
            with self.readable():
                self._file = _opened(self._fd, path)
        except BaseException:
            os.close(self._fd)
            raise
        weakref.finalize(self, _close, self._file, self._fd)

    def is_current(self) -> bool:
        """Return whether the path still is this file: growing, sealing and reopening replace it. Raises FileNotFoundError."""
        now, then = self.path.stat(), self._state
        if (now.st_dev, now.st_ino) != (then.st_dev, then.st_ino):
            return False
        # Only a live file is written in place, and not where HDF5 would cache it.
        return (now.st_size, now.st_mtime_ns) == (then.st_size, then.st_mtime_ns) or self.form == "live"

    @cached_property
    def form(self) -> Form:
        """Whether the file is live, sealed or of another program."""
        with self.opened() as file:
            return form_of(file)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The logical names of the datasets that have columns, in the order of the groups."""
        groups = self.groups
        with self.opened() as file:
            names = [f"{name}/{short}" for name in groups if name in file for short in dataset_names(file[name])]
        return tuple(name for name in names or self._of_h5lmt if self.has(name))

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups, in the order of the schema."""
        with self.opened() as file:
            # To look for each name that might be there takes longer.
            there = set(file)
            found = tuple(name for name in GROUPS if name in there and isinstance(file.get(name), h5py.Group))
            return found or tuple(dict.fromkeys(map(group_of, self._of_h5lmt)))

    @cached_property
    def _of_h5lmt(self) -> dict[str, H5lmtMatrix]:
        """The matrices by name, if the file has the format before TTS."""
        with self.opened() as file:
            return matrices(file)

    def may_reach(self, group: str, span: Span) -> bool:
        """Return whether a group may have rows in a span: False only where its time stamps show that it has none.

        It costs less than the shape of one of its datasets, and of a file next to a span nothing else has to be read.
        """
        with suppress(Damaged, *_FAULTS), self._lock:
            if group not in self._rows:
                stamps = self._node(f"{group}/timestamps")
                if stamps is None:
                    return True
                self._rows[group] = _evenly_spaced(stamps, group)
            start, step, rows = self._rows[group]
            return start < span.end and span.start < start + rows * (step or DAY_SECONDS)
        return True

    def has(self, name: str) -> bool:
        """Return whether the file has a dataset with columns of this logical name."""
        if name not in self._columns:
            with self.opened():
                dataset = self._node(name) if group_of(name) in GROUPS else None
                self._columns[name] = () if dataset is None else _names_of(dataset)
        return bool(self._columns[name])

    def datasets(self, now: float) -> list[DatasetEntry]:
        """Read all cells and describe each dataset. now: epoch seconds; rows that begin later do not count as missing."""
        return [self._entry(name, int(now)) for name in self.names]

    def shape(self, name: str) -> Shape:
        """Return the shape of a dataset. Raises KeyError for one that the file does not have."""
        if name not in self._shapes:
            if not self.has(name):
                raise KeyError(name)
            with self.opened():
                self._shapes[name] = self._shape(name)
        return self._shapes[name]

    def units(self, name: str) -> str:
        """Return the units of a dataset's cells. Raises KeyError as shape() does."""
        # pytokio's early files call the units of counts rates; the names are right.
        if (name in COUNT_OF or name in RATE_OF) and self.form == "foreign":
            return UNITS[name]
        if name not in self._units:
            if not self.has(name):
                raise KeyError(name)
            with self.opened():
                node = self._node(name)
                value = node.units if isinstance(node, H5lmtMatrix) else node.attrs.get("units", b"")
            self._units[name] = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        return self._units[name]

    def cells(self, name: str) -> Cells:
        """Return the cells of a dataset. Raises KeyError as shape() does; see Cells."""
        if name not in self._cells:
            shape = self.shape(name)
            with self.opened():
                # Not a reference to itself: the file is closed with the last user, not when garbage is collected.
                reopened = partial(Part._reopened, weakref.proxy(self), name)
                self._cells[name] = Cells(self._node(name), len(shape.columns), self._fd, reopened, self._kept)
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
    def opened(self) -> Iterator[Any]:
        """Give the file of h5py to one thread at a time. Its errors are those of this class."""
        with self._lock, self.readable():
            yield self._file

    @contextmanager
    def _reopened(self, name: str) -> Iterator[Any]:
        with self.opened():
            yield self._node(name)

    def _node(self, name: str) -> Any:
        """Return a dataset of h5py, None for an unknown name."""
        if name not in self._nodes:
            found = _dataset(self._file, name)
            if found is None and self._of_h5lmt:
                group, _, short = name.partition("/")
                found = _dataset(self._file, STEPS) if short == "timestamps" and group in self.groups else self._of_h5lmt.get(name)
            self._nodes[name] = found
        return self._nodes[name]

    def _shape(self, name: str) -> Shape:
        group, columns, (height, width) = group_of(name), self._columns[name], _two(self._node(name), name)
        if group not in self._rows:
            self._rows[group] = _evenly_spaced(self._node(f"{group}/timestamps"), name)
        start, step, rows = self._rows[group]
        if height != rows:
            raise Damaged(f"{name} has {height} rows, and its time stamps have {rows}")
        if len(columns) > width or len(set(columns)) < len(columns):
            raise Damaged(f"{name} has {width} columns and {len(columns)} names, {len(set(columns))} of them different")
        return Shape(start, step, rows, columns)

    def _entry(self, name: str, now: int) -> DatasetEntry:
        shape = self.shape(name)
        rows = min(max(0, -(-(now - shape.start) // (shape.step or 1))), shape.rows)
        values = self.read(name, 0, rows)
        filled = float(1 - np.isnan(values).mean()) if values.size else 0.0
        return DatasetEntry(name, self.units(name), shape.step, shape.rows, len(shape.columns), round(filled, 6))

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


# By the descriptor, not by the path, which may be another file by now. HDF5 can't open a descriptor, but a file object of Python.
def _opened(fd: int, path: Path) -> Any:
    try:
        return h5py.File(os.fdopen(fd, "rb", buffering=0, closefd=False), "r")
    except OSError as error:
        raise unreadable(path, error, "HDF5 can't open it: ") from error


def _close(file: Any, fd: int) -> None:
    file.close()
    os.close(fd)


def _dataset(file: Any, name: str) -> Any:
    """Return a dataset of a file, None for an unknown name."""
    try:
        found = h5py.h5o.open(file.id, name.encode())
    except KeyError as error:
        if name in file:
            raise Damaged(f"{name} can't be opened: {error}") from error
        return None
    return h5py.Dataset(found) if isinstance(found, h5py.h5d.DatasetID) else None


def _two(dataset: Any, name: str) -> tuple[int, int]:
    shape = dataset.shape if isinstance(dataset, H5lmtMatrix) else dataset.id.shape
    if len(shape) != 2:  # noqa: PLR2004 - time, column
        raise Damaged(f"{name} has {len(shape)} dimensions instead of time and column")
    height, width = shape
    return height, width


def _evenly_spaced(dataset: Any, name: str) -> tuple[int, int, int]:
    """Return the first time stamp of a dataset, the seconds between two, and how many there are."""
    if dataset is None:
        raise Damaged(f"{name} has no time stamps")
    if dataset.size is None or dataset.size > MAX_ROWS:
        raise Damaged(f"{name} has {dataset.size} time stamps")
    if dataset.dtype == np.dtype("<i8") and len(dataset.id.shape) == 1:
        stamps = np.empty(dataset.id.shape, np.int64)
        dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, stamps)
    else:
        stamps = dataset[...]
    if stamps.ndim != 1 or not len(stamps):
        raise Damaged(f"the time stamps of {name} are {stamps.shape}")
    start, step = int(stamps[0]), int(stamps[1] - stamps[0]) if len(stamps) > 1 else _stated_step(dataset)
    if len(stamps) > 1 and (step <= 0 or not np.array_equal(stamps, start + step * np.arange(len(stamps)))):
        raise Damaged(f"the time stamps of {name} are not evenly spaced")
    return start, step, len(stamps)


def _stated_step(stamps: Any) -> int:
    """Return the step that tokiod writes next to the time stamps, 0 if another program wrote them: a single one does not show it."""
    step = stamps.attrs.get("step")
    return int(step) if isinstance(step, np.integer) and step > 0 else 0


class OpenParts:
    """The files that a reader has open: the last MAX_OPEN_FILES, each as long as its path still is the same file.

    kept_bytes: of chunks that stay inflated, for many small reads of the same hours; 0 where each chunk is read once.
    """

    def __init__(self, limit: int = MAX_OPEN_FILES, kept_bytes: int = 0) -> None:
        self._limit, self._kept_bytes = limit, kept_bytes
        self._kept = KeptChunks(kept_bytes) if kept_bytes else None
        self._parts: OrderedDict[Path, Part] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, tuple[int, int]]:
        return _of_process, (self._limit, self._kept_bytes)

    def part(self, path: Path) -> Part:
        """Return the file that has this path now. Raises as Part."""
        with self._lock:
            found = self._parts.pop(path, None)
        if found is None or not found.is_current():
            found = Part(path, self._kept)
        with self._lock:
            self._parts[path] = found
            while len(self._parts) > self._limit:
                self._parts.popitem(last=False)
        return found

    def close(self) -> None:
        """Forget all files; each is closed when its last read ends."""
        with self._lock:
            self._parts.clear()
        if self._kept is not None:
            self._kept.clear()


# Tasks of a worker share its files: each task that is sent would open them again otherwise.
@lru_cache(maxsize=8)
def _of_process(limit: int, kept_bytes: int) -> OpenParts:
    """Return the open files of this process, which replace those of the process that an array was sent from."""
    return OpenParts(limit, kept_bytes)


def _names_of(dataset: Any) -> tuple[str, ...]:
    """Return the names of the columns, none without the attribute. Most files of an archive have the same ones: they share a tuple."""
    if isinstance(dataset, H5lmtMatrix):
        return dataset.columns
    try:
        found = h5py.h5a.open(dataset.id, b"columns")
    except KeyError:
        if h5py.h5a.exists(dataset.id, b"columns"):
            raise
        return ()
    if found.dtype.kind != "S" or len(found.shape) != 1:
        return column_names(dataset)
    columns = np.empty(found.shape, found.dtype)
    if columns.size:
        found.read(columns)
    return _decoded(columns.tobytes(), max(1, columns.dtype.itemsize))


@kept(lambda names, size: len(names) // size)
def _decoded(names: bytes, size: int) -> tuple[str, ...]:
    return tuple(name.decode(errors="replace") for name in np.frombuffer(names, f"S{size}").tolist() if name)
