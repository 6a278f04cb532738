"""First and last samples of a sealed day's counters, for the days before and after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokiod.tts.layout import NotLive, column_names, edges_name, open_for_reading
from tokiod.tts.schema import ABSENT, GROUPS

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SealedDay:
    """A day's counters by logical dataset: column names, kept samples (kept_samples), and the number of rows."""

    _counters: dict[str, tuple[tuple[str, ...], NDArray[np.int64], int]]

    @classmethod
    def read(cls, path: Path) -> SealedDay:
        """Read a sealed file; files of other programs have no kept samples. Raises FileNotFoundError, NotLive if HDF5 can't read it."""
        with open_for_reading(path) as file:
            try:
                datasets = [f"{group}/{name}" for group in GROUPS if group in file for name in file[group]]
                kept = {dataset: edges_name(dataset) for dataset in datasets if edges_name(dataset) in file}
                return cls({name: (column_names(file[name]), file[edges][...], len(file[name])) for name, edges in kept.items()})
            except (KeyError, ValueError, TypeError, RuntimeError, OSError) as error:  # whatever HDF5 raises for a damaged file
                raise NotLive(f"{path}: {error}") from error

    def names(self, dataset: str) -> tuple[str, ...]:
        """Return the columns of a counter, () for an unknown one."""
        return self._counters[dataset][0] if dataset in self._counters else ()

    def last_samples(self, dataset: str) -> NDArray[np.int64]:
        """Return each column's last sample of the day, i8[columns], ABSENT without one."""
        _, (row, *_), rows = self._counters[dataset]
        return self._samples(dataset, (row > 0) & (row <= rows))

    def first_samples(self, dataset: str) -> NDArray[np.int64]:
        """Return each column's sample in the day's first row, i8[columns], ABSENT without one."""
        _, (row, *_), _ = self._counters[dataset]
        return self._samples(dataset, row == 1)

    def _samples(self, dataset: str, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the latest of the chosen samples of each column: kept samples are in row order, and the last assignment wins."""
        names, (_, column, value), _ = self._counters[dataset]
        samples = np.full(len(names), ABSENT)
        samples[column[chosen]] = value[chosen]
        return samples
