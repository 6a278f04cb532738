"""Matrix: the cells of one dataset of a live file, read and written in place."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.tts.files import Files

BLOCK = 16_384
"""Cells that are handled at once: all that one block needs stays in the processor's second-level cache."""

JOIN = 2_048
"""Two cells no farther apart are written with all that lies between: that costs less than another system call."""

CELL = 8


class OpenFile:
    """A descriptor, whether something was written through it since the last sync, and room for one block of cells."""

    __slots__ = ("dirty", "fd", "files", "scratch")

    def __init__(self, fd: int, files: Files, *, dirty: bool) -> None:
        self.fd = fd
        self.files = files
        self.dirty = dirty
        self.scratch = np.empty(BLOCK, np.int64)

    def read_into(self, buffer: NDArray[Any], offset: int) -> None:
        """Fill a C-contiguous array from an offset in bytes."""
        self.files.pread_into(self.fd, buffer, offset)

    def write(self, data: NDArray[Any], offset: int) -> None:
        """Write a C-contiguous array at an offset in bytes."""
        self.dirty = True
        self.files.pwrite(self.fd, data, offset)


class Matrix:
    """f8 or i8 [rows, width] at a fixed place in a file, row after row.

    Why pread and pwrite and not a memory map: what goes wrong is an exception here and a SIGBUS there, and after each sync the pages of
    a map fault again. Why one way for cells in any order: a window is nearly always a full-width rectangle, which is one pwrite of the
    caller's own buffer; whatever else comes is sorted by place and read, changed and written in blocks, joined where the cells stand
    close, so that a sparse batch costs about a system call per cell and a dense one about two copies.
    """

    __slots__ = ("_every_column", "_file", "_offset", "columns", "dtype", "index", "rows", "width")

    def __init__(self, file: OpenFile, offset: int, rows: int, columns: tuple[str, ...], dtype: type[np.float64 | np.int64]) -> None:
        self._file = file
        self._offset = offset
        self._every_column = np.arange(len(columns), dtype=np.uint32)
        self.rows = rows
        self.width = len(columns)
        self.columns = columns
        self.index = {name: i for i, name in enumerate(columns)}
        self.dtype = np.dtype(dtype)

    def read(self, start: int, stop: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the rows [start, stop), all columns: a fresh array, or `out`, C-contiguous and of that shape and type."""
        self._check_rows(start, stop)
        block = np.empty((stop - start, self.width), self.dtype) if out is None else out
        if block.shape != (stop - start, self.width):
            raise ValueError(f"{block.shape} can't hold rows [{start}, {stop}) of {self.width} columns")
        self._file.read_into(block, self._place(start * self.width))
        return block

    def write_rows(self, start: int, block: NDArray[Any]) -> None:
        """Write whole rows from row `start` on; block: [n, width] of the matrix's own type."""
        self._check_type(block)
        self._check_rows(start, start + len(block))
        if block.shape[1:] != (self.width,):
            raise ValueError(f"rows of {self.width} columns can't be written from {block.shape}")
        self._file.write(np.ascontiguousarray(block), self._place(start * self.width))

    def assign(
        self, row: NDArray[np.int64], column: NDArray[np.integer[Any]], value: NDArray[Any], *, compare: bool = False
    ) -> NDArray[np.bool_] | None:
        """Write n cells, value[i] at (row[i], column[i]), in any order; of a cell given twice the last stays.

        With compare, return for each whether its bits were others before (of a cell given twice, that may be said of either).
        Raises IndexError, TypeError or ValueError before anything is written.
        """
        n = len(row)
        self._check_type(value)
        if not n == len(column) == len(value):
            raise ValueError(f"{n} rows, {len(column)} columns, {len(value)} values")
        if n and not compare and self._is_rectangle(row, column):
            self._file.write(np.ascontiguousarray(value), self._place(int(row[0]) * self.width))
            return None
        self._check_cells(row, column)
        changed = np.empty(n, np.bool_) if compare else None
        for start in range(0, n, BLOCK):
            part = slice(start, start + BLOCK)
            was_other = self._assign_block(row[part] * self.width + column[part], value[part], compare=compare)
            if changed is not None:
                changed[part] = was_other
        return changed

    def _is_rectangle(self, row: NDArray[np.int64], column: NDArray[np.integer[Any]]) -> bool:
        height, rest = divmod(len(row), self.width)
        first = int(row[0])
        if rest or first < 0 or first + height > self.rows or int(row[-1]) != first + height - 1:
            return False
        if not (column.reshape(height, self.width) == self._every_column).all():
            return False
        return bool((row.reshape(height, self.width) == np.arange(first, first + height)[:, np.newaxis]).all())

    def _assign_block(self, position: NDArray[np.int64], value: NDArray[Any], *, compare: bool) -> NDArray[np.bool_] | None:
        order = None if (position[1:] >= position[:-1]).all() else np.argsort(position, kind="stable")
        if order is not None:
            position, value = position[order], value[order]
        changed = np.empty(len(position), np.bool_) if compare else None
        for lo, hi in _clusters(position):
            was_other = self._assign_cluster(position[lo:hi], value[lo:hi], compare=compare)
            if changed is not None:
                changed[lo:hi] = was_other
        if changed is not None and order is not None:
            changed[order] = changed.copy()
        return changed

    def _assign_cluster(self, position: NDArray[np.int64], value: NDArray[Any], *, compare: bool) -> NDArray[np.bool_] | None:
        base = int(position[0])
        place = self._place(base)
        if len(position) == 1 and not compare:
            self._file.write(value, place)
            return None
        block = self._file.scratch.view(self.dtype)[: int(position[-1]) - base + 1]
        self._file.read_into(block, place)
        at = position - base
        before = block[at] if compare else None
        block[at] = value
        self._file.write(block, place)
        return None if before is None else before.view(np.int64) != block[at].view(np.int64)

    def _place(self, position: int) -> int:
        return self._offset + position * CELL

    def _check_rows(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.rows:
            raise IndexError(f"rows [{start}, {stop}) of {self.rows}")

    def _check_cells(self, row: NDArray[np.int64], column: NDArray[np.integer[Any]]) -> None:
        if len(row) and not (row.min() >= 0 and row.max() < self.rows and column.min() >= 0 and column.max() < self.width):
            raise IndexError(f"a cell outside {self.rows} rows of {self.width} columns")

    def _check_type(self, values: NDArray[Any]) -> None:
        if values.dtype != self.dtype:
            raise TypeError(f"{values.dtype} values for cells of {self.dtype}")


def _clusters(position: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Cut sorted places where cells stand far apart and where blocks of the file begin; return index ranges."""
    block = position // BLOCK
    cuts = np.flatnonzero((position[1:] - position[:-1] > JOIN) | (block[1:] != block[:-1])) + 1
    edges = [0, *cuts.tolist(), len(position)]
    return list(pairwise(edges))
