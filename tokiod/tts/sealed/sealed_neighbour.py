"""A sealed day as its neighbours see it: its first samples, those that it has of the next day, and the states around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokiod.tts.counters.difference_rule import Rule, next_day
from tokiod.tts.layout import open_for_reading, read_spec, unreadable
from tokiod.tts.sealed.sealed_counter import SealedCounter

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Int = NDArray[np.int64]


class SealedNeighbour(msgspec.Struct, frozen=True, eq=False):
    """A counter of a sealed day. first, after: samples of its first row and of the next day's, i8[columns], ABSENT without one.

    begin, end: the states around the day, i8[5, columns]. step: seconds between rows.
    """

    names: tuple[str, ...]
    rows: int
    step: int
    first: Int
    after: Int
    begin: Int
    end: Int

    @classmethod
    def of(cls, counter: SealedCounter, step: int) -> SealedNeighbour:
        """Take over what is needed of a counter."""
        first, after = counter.samples(0), counter.samples(counter.rows)
        return cls(counter.names, counter.rows, step, first, after, counter.begin, counter.end)

    def next_state(self) -> Int:
        """Return the state before the next day, i8[5, columns], rows counted from there."""
        return next_day(self.end, self.rows, Rule.of(self.step).reach)

    def differs(self, begin: Int) -> bool:
        """Return whether the day was sealed with another state before it."""
        return not np.array_equal(self.begin, begin)


class SealedDay(msgspec.Struct, frozen=True):
    """The counters of a sealed day by logical dataset. Columns and samples are those of SealedNeighbour."""

    counters: dict[str, SealedNeighbour]

    def names(self, dataset: str) -> tuple[str, ...]:
        """Return the columns of a counter, empty if the file has no such dataset."""
        return self.counters[dataset].names if dataset in self.counters else ()

    def step(self, dataset: str) -> int:
        """Return the seconds between the rows of a counter that the file has."""
        return self.counters[dataset].step

    @classmethod
    def read(cls, path: Path) -> SealedDay:
        """Read a sealed file; files of other programs have no counters. Raises OSError, NotLive for a damaged file."""
        with open_for_reading(path) as file:
            try:
                spec = read_spec(file)
                counters = [name for name, matrix in spec.matrices.items() if matrix.counter]
                return cls({name: SealedNeighbour.of(SealedCounter.read(file, name), spec.step(name)) for name in counters})
            except (LookupError, ValueError, TypeError, RuntimeError, OSError) as error:  # whatever HDF5 raises for a damaged file
                raise unreadable(path, error) from error
