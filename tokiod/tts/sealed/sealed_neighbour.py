"""First and last samples of a sealed day's counters, for the days before and after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokiod.tts.counters.difference_rule import Differences, empty_state
from tokiod.tts.layout import PROVED, NotLive, column_names, edges_name, open_for_reading
from tokiod.tts.schema import ABSENT, GROUPS
from tokiod.tts.sealed.chunks import CHUNK_ROWS
from tokiod.tts.sealed.kept_samples import fill_raw
from tokiod.tts.sealed.restore_raw import RestoredRaw

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.tts.counters.difference_rule import Rule


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


def end_state(path: Path, dataset: str, rule: Rule) -> NDArray[np.int64]:
    """Return the state of the rule after a sealed day without a stored one, i8[5, columns], rows counted from the day's start.

    The raw samples are restored; where that is impossible, only the kept ones count. The sample of the day before, whose row was not
    kept, counts as one in row -1. Raises FileNotFoundError, KeyError for an unknown counter, NotLive if HDF5 can't read the file.
    """
    with open_for_reading(path) as file:
        kept = file[edges_name(dataset)]
        edges, proved = kept[...], kept.attrs[PROVED].astype(np.bool_)
        restored = RestoredRaw(file[dataset], edges, proved)
        differences = Differences(empty_state(len(proved)), -1, rule)
        rows = len(file[dataset]) + 1
        for start in range(0, rows, CHUNK_ROWS):
            raw = np.full((min(CHUNK_ROWS, rows - start), len(proved)), ABSENT)
            restored.fill(start, raw)
            fill_raw(edges, start, raw)
            differences.feed(raw)
    return differences.state
