"""One file of an archive: its form, its span, and what its datasets hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokiod.tts.layout import NotLive, form_of, open_for_reading
from tokiod.tts.read import Reader
from tokiod.window import LATEST, Window

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


class DatasetEntry(msgspec.Struct, frozen=True):
    """A dataset of a file.

    units: of a cell; step: seconds between rows; filled: share of its cells until now that are not missing, 0 to 1.
    """

    name: str
    units: str
    step: int
    rows: int
    columns: int
    filled: float


class Shape(msgspec.Struct, frozen=True):
    """The rows and columns of a dataset in one file. Row i covers [start + i x step, start + (i + 1) x step), UTC epoch seconds."""

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
    """A file that is open for reading, live or sealed.

    Raises FileNotFoundError while the file is missing, NotLive if HDF5 can't read it, OSError where the system can't.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with Reader(path) as reader, open_for_reading(path) as file:
            self.form = form_of(file)
            self._units = {name: _text(file[name].attrs.get("units", "")) for name in reader.datasets()}

    @property
    def names(self) -> tuple[str, ...]:
        """The logical names of the datasets that have columns."""
        return tuple(self._units)

    def datasets(self, now: float) -> list[DatasetEntry]:
        """Read all cells and describe each dataset. now: epoch seconds; rows that begin later do not count as missing."""
        with Reader(self.path) as reader:
            return [self._entry(reader, name, int(now)) for name in self._units]

    def shape(self, name: str) -> Shape:
        """Return the shape of a dataset. Raises KeyError for one that the file does not have."""
        with Reader(self.path) as reader:
            stamps, columns = reader.stamps(name), reader.read(name, 0, 0)[1]
        return Shape(int(stamps[0]), _step(stamps), len(stamps), columns, self._units[name])

    def span(self) -> Window:
        """Return the span of the rows of all datasets. Raises NotLive for a file without any."""
        shapes = [self.shape(name) for name in self.names]
        if not shapes:
            raise NotLive(f"{self.path} has no datasets")
        return Window(min(shape.start for shape in shapes), max(shape.end for shape in shapes))

    def _entry(self, reader: Reader, name: str, now: int) -> DatasetEntry:
        stamps = reader.stamps(name)
        _, columns, values = reader.read(name, 0, min(now, LATEST))
        filled = float(1 - np.isnan(values).mean()) if values.size else 0.0
        return DatasetEntry(name, self._units[name], _step(stamps), len(stamps), len(columns), round(filled, 6))


def _step(stamps: NDArray[np.int64]) -> int:
    return int(stamps[1] - stamps[0]) if len(stamps) > 1 else 0


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
