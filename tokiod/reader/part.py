"""One file of an archive: its form, its span, and what its datasets hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokiod.tts.layout import form_of, open_for_reading
from tokiod.tts.read import Reader
from tokiod.window import LATEST

if TYPE_CHECKING:
    from pathlib import Path


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

    def _entry(self, reader: Reader, name: str, now: int) -> DatasetEntry:
        stamps = reader.stamps(name)
        step = int(stamps[1] - stamps[0]) if len(stamps) > 1 else 0
        _, columns, values = reader.read(name, 0, min(now, LATEST))
        filled = float(1 - np.isnan(values).mean()) if values.size else 0.0
        return DatasetEntry(name, self._units[name], step, len(stamps), len(columns), round(filled, 6))


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
