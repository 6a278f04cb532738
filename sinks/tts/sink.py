"""The archive: windows into live TTS files, one file per system and day (or the one file of `tokioctl archive`).

A window touches its day's file and, at its seams, the neighbours: the first row's counters close the last cells of the day
before, the last counters of a day open the first cells of the day after. Everything is assignment, so a window applied again,
by a retry or after a kill, leaves the same files.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sinks.tts.select import Cells, Selection
from tokiod.batch import Batch, Rows
from tokiod.errors import Refusal
from tokiod.sink import Applied
from tokiod.tts.counters.cell_writer import Changes
from tokiod.tts.schema import ABSENT
from tokiod.window_data import tables_unstored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sinks.tts.day_files import Shelf
    from sinks.tts.open_day_file import Volume
    from tokiod.archive.layout import Place
    from tokiod.sink import Done, SetAside
    from tokiod.window_data import Collected


@dataclass(slots=True)
class TtsSink:
    """Stores windows in TTS files.

    shelf: which file holds a time, and the open ones; compare: find out which cells changed, for the feed (reads before writing).
    """

    shelf: Shelf
    compare: bool = True

    def apply(self, collected: Collected) -> Applied:
        """Assign a window's cells. Raises Refusal where the window can't be stored, now or ever."""
        if collected.tables:
            raise tables_unstored(collected)
        try:
            return _Application(self.shelf, Applied(0, Counter()), compare=self.compare).apply(collected)
        except OSError as error:
            raise Refusal(f"{collected.meta.system}: {error}", "retry") from error

    def commit(self) -> list[SetAside]:
        """Sync all files with new cells, one fdatasync each."""
        return self.shelf.commit()

    def rest(self) -> list[Done]:
        """Put in place what was made meanwhile; begin to seal a day that a backfill had opened up and is done with."""
        self.shelf.seal_quiet()
        return self.shelf.finish()

    def close(self) -> None:
        """Close all files."""
        self.shelf.close()


@dataclass(frozen=True, slots=True)
class _Application:
    """One window on its way into the files, and what became of it so far."""

    shelf: Shelf
    applied: Applied
    compare: bool
    _neighbours: dict[int, Volume | None] = field(default_factory=dict)

    def apply(self, collected: Collected) -> Applied:
        place = self.shelf.place(collected.meta.system, collected.meta.window.start)
        selection = Selection(collected.meta.window, self.applied.dropped, 0 if place is None else place.start)
        chosen = [selection.cells(batch) for batch in collected.batches]
        if place is None or (collected.meta.extent == "seam" and not self.shelf.holds(place)):
            self._close_span(collected, chosen)
            return self.applied
        if collected.meta.window.end > place.end:
            raise Refusal(f"window {collected.meta.window} crosses the end of {place.path}", "never")
        volume = self.shelf.volume(place, collected.meta.kind, chosen)
        for cells in chosen:
            if volume is not None and cells.batch.columns:
                self._store(volume, cells)
        return self.applied

    def _store(self, volume: Volume, cells: Cells) -> None:
        batch = cells.batch
        self.applied.cells += len(cells.time)
        first = cells.first if volume.is_whole(batch) else None
        if batch.form == "gauge" and first is not None:
            self._rewrite(volume, cells, first)
            return
        if batch.form == "counter" and first is not None:
            block = cells.value.reshape(-1, len(batch.columns))
            self._changed(volume, batch, volume.counter(batch.dataset).store_rows(first + 1, block, compare=self.compare))
            width = len(batch.columns) if first == 0 else 0
            self._tell_neighbours(volume, cells, np.arange(len(cells.time)) < width)
            return
        row, column = (cells.time - volume.place.start) // batch.step, volume.columns(batch)[cells.column]
        if batch.form == "counter":
            self._changed(volume, batch, volume.counter(batch.dataset).store(row + 1, column, cells.value, compare=self.compare))
            self._tell_neighbours(volume, cells, row == 0)
            return
        changed = volume.file.cells[batch.dataset].assign(row, column, cells.value, compare=self.compare)
        if changed is not None:
            self._changed(volume, batch, Changes(row[changed], column[changed], cells.value[changed]))

    def _rewrite(self, volume: Volume, cells: Cells, first: int) -> None:
        """Write consecutive whole rows of a gauge; mostly all of them change, and then nothing is said cell by cell."""
        batch, matrix = cells.batch, volume.file.cells[cells.batch.dataset]
        block = cells.value.reshape(-1, len(batch.columns))
        if not self.compare:
            matrix.write_rows(first, block)
            return
        different = matrix.read(first, first + len(block)).view(np.int64) != block.view(np.int64)
        matrix.write_rows(first, block)
        if not different.all():
            row, column = np.nonzero(different)
            self._changed(volume, batch, Changes(row + first, column, block[different]))
            return
        rows = Rows(volume.place.start + first * batch.step, len(block))
        time = batch.time if batch.rows == rows else rows.arrays(batch.step, len(batch.columns))[0]
        self.applied.changes.append(Batch(batch.dataset, "gauge", batch.step, batch.columns, time, batch.column, cells.value))

    def _tell_neighbours(self, volume: Volume, cells: Cells, first: NDArray[np.bool_]) -> None:
        """Keep the guard rows of the days beside right; first: which cells stand in the day's first row."""
        if first.any() and (before := self._beside(volume.place, -1)) is not None:
            self._guard_after(before, cells.batch, cells.column[first], cells.value[first])
        if len(first) and (after := self._beside(volume.place, +1)) is not None:
            column = np.unique(cells.column)
            last = volume.counter(cells.batch.dataset).last_samples()[volume.columns(cells.batch)[column]]
            self._guard(after, cells.batch, column[last != ABSENT], last[last != ABSENT], 0)

    def _beside(self, place: Place, way: int) -> Volume | None:
        """Return the file of the day after (+1) or before (-1), looked for once per window: its twenty counters ask one by one."""
        if way not in self._neighbours:
            self._neighbours[way] = self.shelf.beside(place, way)
        return self._neighbours[way]

    def _guard_after(self, volume: Volume, batch: Batch, column: NDArray[np.integer], value: NDArray[np.int64]) -> None:
        if batch.dataset in volume.file.raw:
            self._guard(volume, batch, column, value, volume.file.raw[batch.dataset].rows - 1)

    def _guard(self, volume: Volume, batch: Batch, column: NDArray[np.integer], value: NDArray[np.int64], row: int) -> None:
        """Put counters into a row of raw that stands for the day before or after the volume's own."""
        if batch.dataset not in volume.file.raw:
            return
        here = volume.columns(batch)[column]
        known = here >= 0
        stored = volume.counter(batch.dataset).store(np.full(int(known.sum()), row), here[known], value[known], compare=self.compare)
        self._changed(volume, batch, stored)

    def _close_span(self, collected: Collected, chosen: Sequence[Cells]) -> None:
        """Take the counters of the step behind the last file: they close its last cells."""
        volume = self.shelf.ending_at(collected.meta.system, collected.meta.window.start)
        for cells in chosen:
            first = cells.time < collected.meta.window.start + cells.batch.step
            if volume is None or cells.batch.form != "counter":
                self.applied.dropped["outside the file"] += len(cells.time)
            else:
                self._guard_after(volume, cells.batch, cells.column[first], cells.value[first])

    def _changed(self, volume: Volume, batch: Batch, changes: Changes) -> None:
        if not self.compare or not len(changes.row):
            return
        time = volume.place.start + changes.row.astype(np.int64) * batch.step
        names = volume.file.spec.matrices[batch.dataset].columns
        column = changes.column.astype(np.uint32)
        self.applied.changes.append(Batch(batch.dataset, "gauge", batch.step, names, time, column, changes.value))
