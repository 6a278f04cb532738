"""The guard rows of a day's raw samples: the samples of the neighbouring days that its first and last differences need."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sinks.tts.open_day_file import AFTER, BEFORE
from tokiod.tts.schema import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from sinks.tts.open_day_file import OpenDayFile
    from tokiod.archive.layout import FileSlot
    from tokiod.batch import Batch
    from tokiod.selection import Cells


class NeighbourDay(Protocol):
    """The day before or after another, live or sealed. Samples are i8[columns], ABSENT where there is no sample."""

    def names(self, dataset: str) -> tuple[str, ...]:
        """Return the columns of a counter, empty if the day has no such dataset."""
        ...

    def last_samples(self, dataset: str) -> NDArray[np.int64]:
        """Return each column's last sample of the day."""
        ...

    def first_samples(self, dataset: str) -> NDArray[np.int64]:
        """Return each column's sample in the day's first row."""
        ...


def fill_guard_rows(day: OpenDayFile, datasets: Iterable[str], neighbour: Callable[[FileSlot, int], NeighbourDay | None]) -> None:
    """Fill both guard rows of datasets. neighbour(slot, -1) returns the day before, neighbour(slot, +1) the day after."""
    before, after = neighbour(day.slot, -1), neighbour(day.slot, +1)
    for dataset in datasets:
        if not day.file.spec.matrices[dataset].counter:
            continue
        if before is not None and (names := before.names(dataset)):
            _copy_samples(names, before.last_samples(dataset), day, dataset, 0)
        if after is not None and (names := after.names(dataset)):
            _copy_samples(names, after.first_samples(dataset), day, dataset, day.counter(dataset).last_row)
    day.guards_are_filled = True


def _copy_samples(names: tuple[str, ...], value: NDArray[np.int64], target: OpenDayFile, dataset: str, row: int) -> None:
    """Copy one sample per column name into a guard row of another file."""
    index = {name: i for i, name in enumerate(target.file.spec.matrices[dataset].columns)}
    here = np.fromiter((index.get(name, -1) for name in names), np.intp, len(names))
    known = (here >= 0) & (value != ABSENT)
    target.counter(dataset).store(np.full(int(known.sum()), row), here[known], value[known])


@dataclass(frozen=True, slots=True)
class NeighbourGuards:
    """Keeps the guard rows of the live days around one day right while a window is stored in it.

    open_neighbour(slot, -1 or +1): the day before or after, if it is live. It is called once per window: twenty counters need its answer.
    """

    day: OpenDayFile
    open_neighbour: Callable[[FileSlot, int], OpenDayFile | None]
    _neighbours: dict[int, OpenDayFile | None] = field(default_factory=dict)

    def update(self, cells: Cells) -> list[Batch | None]:
        """Copy the day's first and last samples of a batch to its neighbours; return the cells that changed there."""
        if cells.batch.form != "counter" or not len(cells.time):
            return []
        return [self._update_before(cells), self._update_after(cells)]

    def _update_before(self, cells: Cells) -> Batch | None:
        first = self.day.first_row(cells)
        column = cells.column[first]
        if not len(column) or (before := self._neighbour(-1)) is None:
            return None
        return before.store_guard(cells.batch, column, cells.value[first], AFTER)

    def _update_after(self, cells: Cells) -> Batch | None:
        if (after := self._neighbour(+1)) is None:
            return None
        column = np.unique(cells.column)
        last = self.day.last_samples(cells.batch.dataset)[self.day.columns(cells.batch)[column]]
        return after.store_guard(cells.batch, column[last != ABSENT], last[last != ABSENT], BEFORE)

    def _neighbour(self, direction: int) -> OpenDayFile | None:
        if direction not in self._neighbours:
            self._neighbours[direction] = self.open_neighbour(self.day.slot, direction)
        return self._neighbours[direction]
