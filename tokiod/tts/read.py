"""Read a TTS file, live or sealed, while a writer fills, grows or seals it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tokiod.tts.layout import column_names, open_for_reading
from tokiod.tts.schema import GROUPS, group_of, missing

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


class Reader:
    """A TTS file that stays open and is read many times, without a lock and without disturbing its writer.

    HDF5 caches what it has read: a second read of less than 64 KiB would return old cells unless the dataset is refreshed. Growing and
    sealing replace the file under the same name, so the reader checks the inode before every read.
    Raises FileNotFoundError while the file is missing, NotLive if HDF5 can't read it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: Any = None
        self._current()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def datasets(self) -> tuple[str, ...]:
        """Return the logical names of the datasets that have named columns, in the order of the file's groups."""
        file = self._current()
        names = [f"{group}/{name}" for group in GROUPS if group in file for name in file[group] if name != "timestamps"]
        return tuple(name for name in names if column_names(file[name]))

    def stamps(self, dataset: str) -> NDArray[np.int64]:
        """Return the time stamps i8[rows] of all rows of a dataset: UTC epoch seconds, the left edge of each."""
        stamps: NDArray[np.int64] = self._current()[f"{group_of(dataset)}/timestamps"][...]
        return stamps

    def read(self, dataset: str, start: int, end: int) -> tuple[NDArray[np.int64], tuple[str, ...], NDArray[np.float64]]:
        """Return time stamps i8[t] in [start, end), column names, and values f8[t, columns] with nan where missing.

        start, end: UTC epoch seconds. Raises KeyError for a dataset that the file does not contain.
        """
        file = self._current()
        node, stamps = file[dataset], file[f"{group_of(dataset)}/timestamps"][...]
        first, last = np.searchsorted(stamps, [start, end])
        columns = column_names(node)
        node.id.refresh()
        values = node[first:last, : len(columns)]
        values[missing(values)] = np.nan
        return stamps[first:last], columns, values

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _current(self) -> Any:
        if self._file is None or not os.path.samestat(self.path.stat(), os.fstat(self._file.id.get_vfd_handle())):
            self.close()
            self._file = open_for_reading(self.path)
        return self._file
