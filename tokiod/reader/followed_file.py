"""A path whose file is read many times, while a writer fills, grows or seals it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from tokiod.reader.part import OpenParts

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.reader.part import Part


class FollowedFile:
    """The file that has a path at the time of each read: growing and sealing replace it.

    It holds no lock and does not disturb the writer. It stays open between reads. Raises FileNotFoundError while the file is missing,
    NotTts for one that is no TTS file or is damaged, OSError where the system can't read it.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._parts = path, OpenParts(limit=1)
        self._part()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def datasets(self) -> tuple[str, ...]:
        """Return the logical names of the datasets that have named columns, in the order of the file's groups."""
        return self._part().names

    def stamps(self, dataset: str) -> NDArray[np.int64]:
        """Return the time stamps i8[rows] of all rows of a dataset: UTC epoch seconds, the left edge of each."""
        return self._part().shape(dataset).times

    def read(self, dataset: str, start: int, end: int) -> tuple[NDArray[np.int64], tuple[str, ...], NDArray[np.float64]]:
        """Return time stamps i8[t] in [start, end), column names, and values f8[t, columns] with nan where missing.

        start, end: UTC epoch seconds. Raises KeyError for a dataset that the file does not contain.
        """
        part = self._part()
        shape = part.shape(dataset)
        stamps = shape.times
        first, last = (int(row) for row in np.searchsorted(stamps, [start, end]))
        return stamps[first:last], shape.columns, part.read(dataset, first, last)

    def close(self) -> None:
        """Close the file. A later read opens it again."""
        self._parts.close()

    def _part(self) -> Part:
        return self._parts.part(self.path)
