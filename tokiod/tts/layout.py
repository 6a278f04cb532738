"""Read the layout of a TTS file through HDF5: its spec, and where its matrices lie."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import h5py
import numpy as np

from tokiod.tts.counters.difference_rule import LARGEST
from tokiod.tts.hdf5_input import attribute, whole
from tokiod.tts.schema import COMPONENTS, GROUPS, TIMESTAMPS, UNITS
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Kind = Literal["cells", "raw", "span", "begin"]
Form = Literal["live", "sealed", "foreign"]

OWN = "_tokiod"
FORM, RAW_SEALED, PROVED, MAX_STEP = "form", "raw_sealed", "proved", "max_step"
LIVE_FORM = "live 2"
"""The attribute `form` of a live file."""
STATE_ROWS, SPAN_ROWS = 5, 2
NEXT_ROWS = 1
"""Rows of raw beyond the day's: the first of the next day."""


_ERRNO = re.compile(r"errno = (\d+)")
"""In HDF5's own texts: h5py sets errno for few of its exceptions."""


class NotLive(ValueError):  # noqa: N818 - a state, not a fault
    """The file can't be filled in place; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class MatrixLocation:
    """One matrix of a live file: its kind, dataset and shape, and its offset in the file in bytes."""

    kind: Kind
    dataset: str
    rows: int
    columns: tuple[str, ...]
    offset: int = 0

    @property
    def name(self) -> str:
        """Name of the HDF5 dataset."""
        return self.dataset if self.kind == "cells" else f"{OWN}/{self.kind}/{self.dataset}"

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the cells."""
        return np.dtype("<f8" if self.kind == "cells" else "<i8")

    @property
    def nbytes(self) -> int:
        """Size of the cells in bytes."""
        return self.rows * len(self.columns) * 8


# Any one of them is enough: a live counter that lost its samples is still a counter.
_PARTS_OF_COUNTERS = ("raw", "span", "begin", "kept")


def own_name(part: Literal["begin", "end", "kept"], dataset: str) -> str:
    """Return the name of a dataset that files have for a counter: the states around the day, and kept samples."""
    return f"{OWN}/{part}/{dataset}"


def matrix_locations(spec: FileSpec) -> Iterator[MatrixLocation]:
    """Yield every matrix of a live file in the order of the file: all cells, then each counter's other ones."""
    ordered = [(dataset, matrix, spec.rows(dataset.partition("/")[0])) for dataset, matrix in spec.ordered()]
    for dataset, matrix, rows in ordered:
        yield MatrixLocation("cells", dataset, rows, matrix.columns)
    for dataset, matrix, rows in ordered:
        if matrix.counter:
            yield MatrixLocation("raw", dataset, rows + NEXT_ROWS, matrix.columns)
            yield MatrixLocation("span", dataset, SPAN_ROWS, matrix.columns)
            yield MatrixLocation("begin", dataset, STATE_ROWS, matrix.columns)


def open_for_reading(path: Path) -> Any:
    """Open with h5py without a lock, while other processes may use the file.

    Raises OSError where the system can't open it (FileNotFoundError, too many open files), NotLive for a file that HDF5 can't open.
    """
    try:
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        if not path.exists():  # HDF5 has no errno where a file goes after it was opened, as in a merge of the job table
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error
        raise unreadable(path, error, "HDF5 can't open it: ") from error


def unreadable(path: Path, error: Exception, reason: str = "") -> OSError | NotLive:
    """Return the exception to raise where HDF5 can't read a file: NotLive, or OSError if the system failed: that proves nothing against it.

    reason: the beginning of the text of NotLive.
    """
    found = _ERRNO.search(str(error))
    code = getattr(error, "errno", None) or (int(found[1]) if found else 0)
    return OSError(code, os.strerror(code), str(path)) if code else NotLive(f"{path}: {reason}{error}")


def form_of(file: Any) -> Form:
    """Return "live" or "sealed" for a file of tokiod, "foreign" for any other. Raises NotLive if HDF5 can't read it."""
    try:
        form = _text(attribute(file.id, FORM, b"", of=OWN))
    except (KeyError, RuntimeError, OSError) as error:
        raise unreadable(file.filename, error) from error
    return "live" if form == LIVE_FORM else "sealed" if form == "sealed" else "foreign"


def read_spec(file: Any) -> FileSpec:
    """Read the spec of any TTS file; datasets without column names are left out.

    Raises ValueError or KeyError for a file that is not a TTS file, or has names that TTS does not define.
    """
    start, end = int(attribute(file.id, "start")), int(attribute(file.id, "end"))
    groups, matrices, counters = {}, {}, _counters(file)
    for name in (g for g in GROUPS if g in file):
        group = file[name]
        groups[name] = GroupSpec(_step(group, start, end), _text(attribute(group.id, "source")))
        for short in dataset_names(group):
            full, dataset = f"{name}/{short}", h5py.h5o.open(group.id, short.encode())
            if columns := _column_names(dataset):
                counter = full in counters
                max_step = _max_step(file, full) if counter else LARGEST
                matrices[full] = MatrixSpec(columns, counter, _own_units(dataset, full), max_step)
    return FileSpec(start, end, groups, matrices)


def _own_units(dataset: Any, name: str) -> str:
    text = _text(attribute(dataset, "units", b""))
    return "" if text == UNITS.get(name) else text


def _max_step(file: Any, dataset: str) -> int:
    return int(attribute(file.id, MAX_STEP, LARGEST, of=own_name("begin", dataset)))


def is_counter(file: Any, dataset: str) -> bool:
    """Return whether a logical dataset's cells are differences of a counter."""
    return any(f"{OWN}/{part}/{dataset}" in file for part in _PARTS_OF_COUNTERS)


def _counters(file: Any) -> set[str]:
    """Return the names of all counters; a fifth of the time that is_counter() takes for each dataset."""
    own = file.get(OWN, {})
    groups = [pair for part in _PARTS_OF_COUNTERS if part in own for pair in _groups(own[part])]
    return {f"{group}/{name}" for group, names in groups for name in names}


def _groups(group: Any) -> list[tuple[str, Any]]:
    """Return the groups in a group and their names; another program may have a dataset of that name."""
    found = [(name, group[name]) for name in group] if isinstance(group, h5py.Group) else []
    return [(name, each) for name, each in found if isinstance(each, h5py.Group)]


def dataset_names(group: Any) -> list[str]:
    """Return the names of a group's datasets of cells: all but time stamps and the dimension scales of components, by their names."""
    scale = COMPONENTS[group.name.rpartition("/")[2]]
    return [name for name in group if name != TIMESTAMPS and name.rstrip("_0123456789") != scale]


def column_names(dataset: Any) -> tuple[str, ...]:
    """Return the names of a dataset's columns; a foreign file may have unnamed columns after them."""
    return _column_names(dataset.id)


def _column_names(dataset: Any) -> tuple[str, ...]:
    return tuple(_text(c) for c in attribute(dataset, "columns") if c)


def _step(group: Any, start: int, end: int) -> int:
    stamps = whole(h5py.h5d.open(group.id, TIMESTAMPS.encode()))
    step = int(stamps[1] - stamps[0]) if len(stamps) > 1 else end - start
    if step <= 0 or not np.array_equal(stamps, np.arange(start, end, step)):
        raise ValueError(f"{group.name}: time stamps are not evenly spaced from start to end")
    return step


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
