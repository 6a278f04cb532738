"""An open live file of a day: storing batches in it, and what batches need to know of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from tokiod.batch import Batch, Rows
from tokiod.errors import Refusal
from tokiod.tts.counters.cell_writer import Changes
from tokiod.tts.counters.counter import Counter
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from tokiod.archive.layout import FileSlot
    from tokiod.selection import Cells
    from tokiod.tts.live.live_file import LiveFile

BEFORE, AFTER = 0, -1
"""The guard rows of a day's raw samples: the last sample of the day before, the first of the day after."""


@dataclass(slots=True, eq=False)
class OpenDayFile:
    """An open live file in its slot, with its counters and the column maps of the batches that came.

    compare: find out which cells change (reads before it writes). guards_are_filled: its guard rows hold what the neighbouring days know;
    a kill may have come between creating the file and filling them.
    """

    slot: FileSlot
    file: LiveFile
    compare: bool = True
    guards_are_filled: bool = False
    _counters: dict[str, Counter] = field(default_factory=dict)
    _mappings: dict[str, _BatchMapping] = field(default_factory=dict)

    def store(self, cells: Cells) -> Batch | None:
        """Assign cells; return those that changed as a gauge batch, None if no cell did or `compare` is off."""
        batch = cells.batch
        first = cells.first if self.is_whole(batch) else None
        if first is not None:
            block = cells.value.reshape(-1, len(batch.columns))
            if batch.form == "gauge":
                return self._store_gauge_rows(cells, first, block)
            return self._changes(batch, self.counter(batch.dataset).store_rows(first + 1, block, compare=self.compare))
        row, column = (cells.time - self.slot.start) // batch.step, self.columns(batch)[cells.column]
        if batch.form == "counter":
            return self._changes(batch, self.counter(batch.dataset).store(row + 1, column, cells.value, compare=self.compare))
        changed = self.file.cells[batch.dataset].assign(row, column, cells.value, compare=self.compare)
        return None if changed is None else self._changes(batch, Changes(row[changed], column[changed], cells.value[changed]))

    def store_guard(self, batch: Batch, column: NDArray[np.integer], value: NDArray[np.int64], guard: int) -> Batch | None:
        """Put samples of a neighbouring day into the guard row BEFORE or AFTER; return the cells that changed, as store() does.

        column indexes batch.columns. Columns and datasets that the file does not have are left out.
        """
        if batch.dataset not in self.file.raw:
            return None
        counter, here = self.counter(batch.dataset), self.columns(batch)[column]
        known = here >= 0
        row = np.full(int(known.sum()), guard if guard == BEFORE else counter.last_row)
        return self._changes(batch, counter.store(row, here[known], value[known], compare=self.compare))

    def first_row(self, cells: Cells) -> slice | NDArray[np.bool_]:
        """Return which of a batch's cells are in the day's first row."""
        if cells.first is not None and self.is_whole(cells.batch):
            return slice(len(cells.batch.columns) if cells.first == 0 else 0)
        return cells.time < self.slot.start + cells.batch.step

    def counter(self, dataset: str) -> Counter:
        """Return the counter dataset's samples with its cells."""
        if dataset not in self._counters:
            file = self.file
            self._counters[dataset] = Counter(file.cells[dataset], file.raw[dataset], file.span[dataset], keep=file.sealed_raw)
        return self._counters[dataset]

    def names(self, dataset: str) -> tuple[str, ...]:
        """Return the columns of a counter, empty if the file has no such dataset."""
        return self.file.raw[dataset].columns if dataset in self.file.raw else ()

    def last_samples(self, dataset: str) -> NDArray[np.int64]:
        """Return each column's last sample of the day, i8[columns], ABSENT for a column without samples."""
        return self.counter(dataset).last_samples()

    def first_samples(self, dataset: str) -> NDArray[np.int64]:
        """Return each column's sample in the day's first row, i8[columns], ABSENT for a column without it."""
        samples: NDArray[np.int64] = self.file.raw[dataset].read(1, 2)[0]
        return samples

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
            return self._changes(batch, Changes(row + first, column, block[different]))
        rows = Rows(self.slot.start + first * batch.step, len(block))
        time = batch.time if batch.rows == rows else rows.arrays(batch.step, len(batch.columns))[0]
        return Batch(batch.dataset, "gauge", batch.step, batch.columns, time, batch.column, cells.value)

    def _changes(self, batch: Batch, changes: Changes) -> Batch | None:
        if not self.compare or not len(changes.row):
            return None
        time = self.slot.start + changes.row.astype(np.int64) * batch.step
        names = self.file.spec.matrices[batch.dataset].columns
        return Batch(batch.dataset, "gauge", batch.step, names, time, changes.column.astype(np.uint32), changes.value)

    def _mapping(self, batch: Batch) -> _BatchMapping:
        """Work out once what holds for all batches that have the same names, form and step."""
        known = self._mappings.get(batch.dataset)
        if known is None or not known.is_for(batch):
            known = self._mappings[batch.dataset] = _BatchMapping.of(self.file.spec, batch)
        return known


@dataclass(frozen=True, slots=True, eq=False)
class _BatchMapping:
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


def spec_for(slot: FileSlot, kind: str, own_units: Mapping[str, str], chosen: Sequence[Cells]) -> FileSpec:
    """Return what a file must have for batches. own_units: the kind's, by dataset. Raises Refusal if the batches contradict each other."""
    groups: dict[str, GroupSpec] = {}
    matrices: dict[str, MatrixSpec] = {}
    for batch in (cells.batch for cells in chosen if cells.batch.columns):
        group = GroupSpec(batch.step, kind)
        if groups.setdefault(batch.dataset.partition("/")[0], group) != group:
            raise Refusal(f"{batch.dataset}: step {batch.step}, the rest of its group has another", "never")
        known = matrices.setdefault(batch.dataset, MatrixSpec((), batch.form == "counter", own_units.get(batch.dataset, "")))
        if known.counter != (batch.form == "counter"):
            raise Refusal(f"{batch.dataset}: a gauge and a counter in one window", "never")
        matrices[batch.dataset] = replace(known, columns=tuple(dict.fromkeys(known.columns + batch.columns)))
    try:
        return FileSpec(slot.start, slot.end, groups, matrices)
    except ValueError as error:
        raise Refusal(f"{slot.path}: {error}", "never") from error
