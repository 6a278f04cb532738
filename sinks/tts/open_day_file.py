"""An open live file of a day: storing batches in it, and what batches need to know of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokiod.batch import Batch, Rows
from tokiod.errors import Refusal
from tokiod.tts.counters.cell_writer import Changes
from tokiod.tts.counters.day_counter import DayCounter
from tokiod.tts.counters.difference_rule import LARGEST, next_day
from tokiod.tts.layout import STATE_ROWS
from tokiod.tts.schema import ABSENT
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from tokiod.archive.layout import FileSlot
    from tokiod.selection import Cells
    from tokiod.tts.live.live_file import LiveFile


NEXT_ROW = -1
"""The row of raw that holds the samples of the next day's first row."""


class OpenDayFile(msgspec.Struct, eq=False):
    """An open live file in its slot, with its counters and the column maps of the batches that came.

    compare: find out which cells change (reads before it writes). is_joined: it and the days around it agree on what they must know of each
    other (sinks.tts.seams); a kill may have come between storing a window and that.
    """

    slot: FileSlot
    file: LiveFile
    compare: bool = True
    is_joined: bool = False
    _counters: dict[str, DayCounter] = msgspec.field(default_factory=dict)
    _computed: dict[int, set[tuple[int, int]]] = msgspec.field(default_factory=dict)
    _mappings: dict[str, _BatchMapping] = msgspec.field(default_factory=dict)

    def store(self, cells: Cells) -> Batch | None:
        """Assign cells; return those that changed as a gauge batch, None if no cell did or `compare` is off."""
        batch = cells.batch
        first = cells.first if self.is_whole(batch) else None
        if first is not None:
            block = cells.value.reshape(-1, len(batch.columns))
            if batch.form == "gauge":
                return self._store_gauge_rows(cells, first, block)
            return self._changes(batch.dataset, self.counter(batch.dataset).store_rows(first, block, compare=self.compare))
        row, column = (cells.time - self.slot.start) // batch.step, self.columns(batch)[cells.column]
        if batch.form == "counter":
            return self._changes(batch.dataset, self.counter(batch.dataset).store(row, column, cells.value, compare=self.compare))
        changed = self.file.cells[batch.dataset].assign(row, column, cells.value, compare=self.compare)
        return None if changed is None else self._changes(batch.dataset, Changes(row[changed], column[changed], cells.value[changed]))

    def store_row(self, dataset: str, row_index: int, samples: NDArray[np.int64]) -> Batch | None:
        """Store samples of a counter, i8[columns], ABSENT without one, in one row of raw; return what store() does."""
        (column,) = np.nonzero(samples != ABSENT)
        row = np.full(len(column), range(self.file.raw[dataset].rows)[row_index])
        return self._changes(dataset, self.counter(dataset).store(row, column, samples[column], compare=self.compare))

    def set_begin(self, dataset: str, state: NDArray[np.int64], *, force: bool) -> Batch | None:
        """Set the state before the day, i8[5, columns]; return the cells that changed, as store() does. force: see DayCounter."""
        every = np.arange(state.shape[1])
        return self._changes(dataset, self.counter(dataset).set_begin(every, state, force=force, compare=self.compare))

    def counters(self) -> list[str]:
        """Return the names of the counter datasets."""
        return list(self.file.raw)

    def counter(self, dataset: str) -> DayCounter:
        """Return the counter dataset's samples with its cells."""
        if dataset not in self._counters:
            self._counters[dataset] = DayCounter.of(self.file, dataset, self._computed.setdefault(self.file.spec.step(dataset), set()))
        return self._counters[dataset]

    def take_computed(self) -> Iterator[tuple[int, int]]:
        """Yield the spans in which cells of counters were computed since the last call, epoch seconds."""
        for step, rows in self._computed.items():
            for first, stop in rows:
                yield self.slot.start + first * step, self.slot.start + stop * step
            rows.clear()

    def names(self, dataset: str) -> tuple[str, ...]:
        """Return the columns of a counter, empty if the file has no such dataset."""
        return self.file.raw[dataset].columns if dataset in self.file.raw else ()

    def step(self, dataset: str) -> int:
        """Return the seconds between the rows of a dataset."""
        return self.file.spec.step(dataset)

    def first_samples(self, dataset: str) -> NDArray[np.int64]:
        """Return each column's sample in the day's first row, i8[columns], ABSENT for a column without it."""
        return self.counter(dataset).first_samples()

    def next_samples(self, dataset: str) -> NDArray[np.int64]:
        """Return each column's sample in the next day's first row, as far as this file has it, i8[columns], ABSENT without it."""
        samples: NDArray[np.int64] = self.file.raw[dataset].read(self.counter(dataset).rows, self.counter(dataset).rows + 1)[0]
        return samples

    def begin(self, dataset: str) -> NDArray[np.int64]:
        """Return the state before the day, i8[5, columns]."""
        return self.file.begin[dataset].read(0, STATE_ROWS)

    def next_state(self, dataset: str) -> NDArray[np.int64]:
        """Return the state before the next day, i8[5, columns], rows counted from there."""
        counter = self.counter(dataset)
        return next_day(counter.end_state(), counter.rows, self.file.spec.rule(dataset).reach)

    def has_first_row(self, cells: Cells) -> bool:
        """Return whether some of a batch's cells are in the day's first row."""
        if cells.first is not None and self.is_whole(cells.batch):
            return cells.first == 0
        return bool((cells.time < self.slot.start + cells.batch.step).any())

    def implausible(self) -> int:
        """Return how many of the samples that were stored since the file was opened made an implausible difference."""
        return sum(counter.implausible for counter in self._counters.values())

    def fits(self, batch: Batch) -> bool:
        """Return whether the file has the batch's dataset, in its form and step, with all of its columns."""
        return self._mapping(batch).fits

    def is_whole(self, batch: Batch) -> bool:
        """Return whether the batch's columns are the file's, all of them, in the same order."""
        return self._mapping(batch).is_whole

    def columns(self, batch: Batch) -> NDArray[np.intp]:
        """Return, for each of the batch's columns, the file's column; -1 if the file has no column of that name."""
        return self._mapping(batch).columns

    def _store_gauge_rows(self, cells: Cells, first: int, block: NDArray[Any]) -> Batch | None:
        """Write consecutive whole rows of a gauge; mostly all of their cells change, and then the batch itself says which."""
        batch, matrix = cells.batch, self.file.cells[cells.batch.dataset]
        if not self.compare:
            matrix.write_rows(first, block)
            return None
        different = matrix.read(first, first + len(block)).view(np.int64) != block.view(np.int64)
        matrix.write_rows(first, block)
        if not different.all():
            row, column = np.nonzero(different)
            return self._changes(batch.dataset, Changes(row + first, column, block[different]))
        time = batch.time
        if not cells.are_aligned:
            time, _ = Rows(self.slot.start + first * batch.step, len(block)).arrays(batch.step, len(batch.columns))
        return Batch(batch.dataset, "gauge", batch.step, batch.columns, time, batch.column, cells.value)

    def _changes(self, dataset: str, changes: Changes) -> Batch | None:
        if not self.compare or not len(changes.row):
            return None
        step, names = self.file.spec.step(dataset), self.file.spec.matrices[dataset].columns
        time = self.slot.start + changes.row.astype(np.int64) * step
        return Batch(dataset, "gauge", step, names, time, changes.column.astype(np.uint32), changes.value)

    def _mapping(self, batch: Batch) -> _BatchMapping:
        """Work out once what holds for all batches that have the same names, form and step."""
        known = self._mappings.get(batch.dataset)
        if known is None or not known.is_for(batch):
            known = self._mappings[batch.dataset] = _BatchMapping.of(self.file.spec, batch)
        return known


class _BatchMapping(msgspec.Struct, frozen=True, eq=False):
    """How batches of one dataset, form, step and list of names map to a file."""

    names: tuple[str, ...]
    form_and_step: tuple[str, int]
    columns: NDArray[np.intp]
    fits: bool
    is_whole: bool

    @classmethod
    def of(cls, spec: FileSpec, batch: Batch) -> _BatchMapping:
        matrix, group = spec.matrices.get(batch.dataset), spec.groups.get(batch.dataset.partition("/")[0])
        index = {} if matrix is None else {name: i for i, name in enumerate(matrix.columns)}
        columns = np.fromiter((index.get(name, -1) for name in batch.columns), np.intp, len(batch.columns))
        same = matrix is not None and group is not None and (matrix.counter, group.step) == (batch.form == "counter", batch.step)
        fits = not batch.columns or (same and bool((columns >= 0).all()))
        return cls(batch.columns, (batch.form, batch.step), columns, fits, matrix is not None and matrix.columns == batch.columns)

    def is_for(self, batch: Batch) -> bool:
        same_names = self.names is batch.columns or self.names == batch.columns
        return same_names and self.form_and_step == (batch.form, batch.step)


def spec_for(
    slot: FileSlot, kind: str, own_units: Mapping[str, str], max_step: Callable[[str, int], int], chosen: Sequence[Cells]
) -> FileSpec:
    """Return what a file must have for batches. Raises Refusal if the batches contradict each other.

    own_units: the kind's, by dataset. max_step: returns the largest plausible difference per row of a counter, of dataset and step.
    """
    groups: dict[str, GroupSpec] = {}
    matrices: dict[str, MatrixSpec] = {}
    for batch in (cells.batch for cells in chosen if cells.batch.columns):
        group = GroupSpec(batch.step, kind)
        if groups.setdefault(batch.dataset.partition("/")[0], group) != group:
            raise Refusal(f"{batch.dataset}: step {batch.step}, the rest of its group has another", "never")
        limit = max_step(batch.dataset, batch.step) if batch.form == "counter" else LARGEST
        known = matrices.setdefault(batch.dataset, MatrixSpec((), batch.form == "counter", own_units.get(batch.dataset, ""), limit))
        if known.counter != (batch.form == "counter"):
            raise Refusal(f"{batch.dataset}: a gauge and a counter in one window", "never")
        matrices[batch.dataset] = replace(known, columns=tuple(dict.fromkeys(known.columns + batch.columns)))
    try:
        return FileSpec(slot.start, slot.end, groups, matrices)
    except ValueError as error:
        raise Refusal(f"{slot.path}: {error}", "never") from error
