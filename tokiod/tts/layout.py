"""Where things stand in a TTS file: reading its spec and the places of its matrices, by HDF5, once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import h5py
import numpy as np

from tokiod.tts.schema import GROUPS
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Kind = Literal["cells", "raw", "span"]

OWN = "_tokiod"
FORM, RAW_SEALED, PROVED = "form", "raw_sealed", "proved"
GUARDS = 2


class NotLive(ValueError):  # noqa: N818 - what it is not
    """A file that can't be filled in place; the text says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """One matrix of a live file: which, its shape, and its offset in the file in bytes."""

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
        """Type of its cells."""
        return np.dtype("<f8" if self.kind == "cells" else "<i8")

    @property
    def nbytes(self) -> int:
        """Bytes of its cells."""
        return self.rows * len(self.columns) * 8


def edges_name(dataset: str) -> str:
    """Return the name of what a sealed file keeps of a counter's raw samples."""
    return f"{OWN}/edges/{dataset}"


def places(spec: FileSpec) -> Iterator[Place]:
    """Yield every matrix of a live file in the order of the file: all cells, then raw and span of each counter."""
    ordered = [(dataset, matrix, spec.rows(dataset.partition("/")[0])) for dataset, matrix in spec.ordered()]
    for dataset, matrix, rows in ordered:
        yield Place("cells", dataset, rows, matrix.columns)
    for dataset, matrix, rows in ordered:
        if matrix.counter:
            yield Place("raw", dataset, rows + GUARDS, matrix.columns)
            yield Place("span", dataset, 2, matrix.columns)


def open_for_reading(path: Path) -> Any:
    """Open with h5py whatever anyone does with the file; raises FileNotFoundError, or NotLive where HDF5 can't."""
    try:
        return h5py.File(path, "r", locking=False)
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except OSError as error:
        raise NotLive(f"{path}: HDF5 can't open it: {error}") from error


def form_of(file: Any) -> str:
    """Return "live" or "sealed" for a file that tokiod made, "foreign" for any other. Raises NotLive where HDF5 can't tell."""
    try:
        return _text(file[OWN].attrs.get(FORM, b"foreign")) if OWN in file else "foreign"
    except (KeyError, RuntimeError, OSError) as error:
        raise NotLive(f"{file.filename}: {error}") from error


def read_spec(file: Any) -> FileSpec:
    """Read the spec of any TTS file; datasets without column names are left out.

    Raises ValueError or KeyError for a file that is no TTS file, or one with names that TTS doesn't have.
    """
    start, end = int(file.attrs["start"]), int(file.attrs["end"])
    groups, matrices = {}, {}
    for name in (g for g in GROUPS if g in file):
        group = file[name]
        groups[name] = GroupSpec(_step(group, start, end), _text(group.attrs["source"]))
        for full in (f"{name}/{dataset}" for dataset in group if dataset != "timestamps"):
            columns = column_names(file[full])
            if columns:
                matrices[full] = MatrixSpec(columns, counter=is_counter(file, full))
    return FileSpec(start, end, groups, matrices)


def is_counter(file: Any, dataset: str) -> bool:
    """Return whether a logical dataset's cells are differences of a counter."""
    # By whatever is left of it: a live counter that lost its samples is no gauge.
    return any(f"{OWN}/{part}/{dataset}" in file for part in ("raw", "span", "edges"))


def column_names(dataset: Any) -> tuple[str, ...]:
    """Return the names of a dataset's columns, of which a foreign file may have fewer than columns."""
    return tuple(_text(c) for c in dataset.attrs["columns"] if c)


def _step(group: Any, start: int, end: int) -> int:
    stamps = group["timestamps"][...]
    step = int(stamps[1] - stamps[0]) if len(stamps) > 1 else end - start
    if step <= 0 or not np.array_equal(stamps, np.arange(start, end, step)):
        raise ValueError(f"{group.name}: time stamps are not evenly spaced from start to end")
    return step


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
