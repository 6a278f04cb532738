"""Write the computed cells of a counter into its file, and return which of them changed."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokiod.tts.schema import missing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.tts.live.matrix import Matrix


class Changes(msgspec.Struct, frozen=True, eq=False):
    """The cells whose bits changed: row i8[n] of the day, column intp[n], value f8[n], NaN where a cell became missing."""

    row: NDArray[np.int64]
    column: NDArray[np.intp]
    value: NDArray[np.float64]

    @classmethod
    def joined(cls, parts: list[Changes]) -> Changes:
        """Return all parts as one."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([np.empty(0, np.int64), *(part.row for part in parts)]),
            np.concatenate([np.empty(0, np.intp), *(part.column for part in parts)]),
            np.concatenate([np.empty(0, np.float64), *(part.value for part in parts)]),
        )


class CellWriter:
    """Writes cells f8 [N, columns] of one counter."""

    def __init__(self, cells: Matrix) -> None:
        self._cells = cells

    def write(self, top: int, columns: NDArray[np.intp], cells: NDArray[np.float64], *, compare: bool) -> Changes:
        """Write cells f8[rows, columns] of some columns, ascending, from row `top` on.

        Without compare, no changes are returned, and whole rows are written without reading the old cells.
        """
        if compare:
            return self._write_changed(top, columns, cells)
        if len(columns) < self._cells.width:
            block = self._cells.read(top, top + len(cells))
            block[:, columns] = cells
            cells = block
        self._cells.write_rows(top, cells)
        return Changes.joined([])

    def write_rows(self, top: int, cells: NDArray[np.float64], *, compare: bool) -> Changes:
        """Write whole rows of cells from row `top` on; with compare, only from the first to the last row that changes."""
        if not compare:
            self._cells.write_rows(top, cells)
            return Changes.joined([])
        changed = self._cells.read(top, top + len(cells)).view(np.int64) != cells.view(np.int64)
        rows = np.flatnonzero(changed.any(axis=1))
        if not len(rows):
            return Changes.joined([])
        first, stop = int(rows[0]), int(rows[-1]) + 1
        changed, cells = changed[first:stop], cells[first:stop]
        self._cells.write_rows(top + first, cells)
        row, column = grid(*cells.shape)
        row, value = row + (top + first), cells.ravel()
        if not changed.all():
            here = np.flatnonzero(changed)
            row, column, value = row[here], column[here], value[here]
        absent = missing(value)
        return Changes(row, column, np.where(absent, np.nan, value) if absent.any() else value)

    def _write_changed(self, top: int, columns: NDArray[np.intp], cells: NDArray[np.float64]) -> Changes:
        block = self._cells.read(top, top + len(cells))
        changed = (block if len(columns) == self._cells.width else block[:, columns]).view(np.int64) != cells.view(np.int64)
        if len(columns) == self._cells.width and changed.all():
            self._cells.write_rows(top, cells)
            row, column = grid(*cells.shape)
            return Changes(row + top, column, np.where(missing(cells), np.nan, cells).ravel())
        place = np.flatnonzero(changed)
        row = np.arange(len(changed)).repeat(np.count_nonzero(changed, axis=1))
        column, value = columns[place - row * len(columns)], cells.ravel()[place]
        if len(place):
            block[row, column] = value
            self._cells.write_rows(top + int(row[0]), block[row[0] : row[-1] + 1])
        value[missing(value)] = np.nan
        return Changes(row + top, column, value)


# The same for every window of a source: computed once, not once per dataset and minute.
@lru_cache(maxsize=8)
def grid(rows: int, columns: int) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Return row and column of each cell of a block, row after row."""
    row, column = np.arange(rows).repeat(columns), np.tile(np.arange(columns), rows)
    row.flags.writeable = column.flags.writeable = False
    return row, column
