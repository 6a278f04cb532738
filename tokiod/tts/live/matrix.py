"""Matrix: the cells of one dataset of a live file, read and written in place."""

from __future__ import annotations

import errno
import zlib
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.tts.live.files import Files

BLOCK_CELLS = 16_384
"""Cells handled at once: the arrays of one block fit into the processor's second-level cache."""

SCRATCH_CELLS = 4 * BLOCK_CELLS
"""Cells read, changed and written at once."""

SPARSE_CELLS = 8
"""If at least one cell in so many is assigned, they are written together with the cells between them, unsorted."""

JOIN_CELLS = 2_048
"""Two cells no farther apart are written together with the cells between them: cheaper than another system call."""

CELL_BYTES = 8

PROOF_BYTES = 4096
"""Bytes of the last write that are compared later: a process that overwrites the file changes them too."""


class OpenFile:
    """A descriptor, and a buffer for the cells between those that are written.

    dirty: a commit has work: a write to sync, or a failed read to examine.
    written_by_others: another process wrote to the file.
    written: the written byte ranges [offset, end) since a copy of the file began; None while no copy is being made.
    """

    __slots__ = ("_last", "_modified", "_sum", "dirty", "fd", "files", "scratch", "written", "written_by_others")

    def __init__(self, fd: int, files: Files, *, dirty: bool) -> None:
        self.fd = fd
        self.files = files
        self.dirty = dirty
        self.scratch = np.empty(SCRATCH_CELLS, np.int64)
        self.written_by_others = False
        self._last = (0, 0)
        self._modified: int | None = None
        self._sum = 0
        self.written: list[tuple[int, int]] | None = None

    def read_into(self, buffer: NDArray[Any], offset: int) -> None:
        """Fill a C-contiguous array from an offset in bytes; after a failed read, the next commit checks the file."""
        try:
            self.files.pread_into(self.fd, buffer, offset)
        except OSError:
            self.dirty = True
            raise

    def write(self, data: NDArray[Any], offset: int) -> None:
        """Write a C-contiguous array at an offset in bytes."""
        self.look_for_other_writes()
        if self.written_by_others:
            raise OSError(errno.ESTALE, "another process wrote to the file")
        self.dirty = True
        if self.written is not None:
            self.written.append((offset, offset + data.nbytes))
        self._last = offset, min(data.nbytes, PROOF_BYTES)
        self.files.pwrite(self.fd, data, offset)

    def committed(self, modified: int) -> None:
        """Record the state of the file after a commit; modified: its modification time in ns."""
        self.dirty = False
        self._modified, self._sum = modified, self._sum_of_last()

    # The modification time alone is not enough: programs touch files, and some file systems update it late.
    def look_for_other_writes(self) -> None:
        """Find out whether the bytes written before the last commit have changed since; the next commit raises FileLost then."""
        if self.dirty or self._modified is None:
            return
        modified = self.files.fstat(self.fd).st_mtime_ns
        if modified != self._modified and self._sum != self._sum_of_last():
            self.dirty = self.written_by_others = True
        self._modified = modified

    def _sum_of_last(self) -> int:
        offset, size = self._last
        buffer = np.empty(size, np.uint8)
        self.read_into(buffer, offset)
        return zlib.crc32(buffer.data)


class Matrix:
    """f8 or i8 [rows, width] at a fixed offset of a file, row after row.

    Why pread and pwrite and not a memory map: an I/O error is an exception here and a SIGBUS there, and after each sync the pages of a
    map fault again. A window is nearly always a full-width rectangle, which is one pwrite of the caller's own buffer. Other cells are
    read, changed and written in blocks. Scattered cells are sorted by position first and joined only if they are close, so that a dense
    batch costs about two copies and a sparse one about one system call per cell.
    """

    def __init__(self, file: OpenFile, offset: int, rows: int, columns: tuple[str, ...], dtype: type[np.float64 | np.int64]) -> None:
        self._file = file
        self._offset = offset
        self._every_column = np.arange(len(columns), dtype=np.uint32)
        self.rows = rows
        self.width = len(columns)
        self.columns = columns
        self.dtype = np.dtype(dtype)

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each column by its name."""
        return {name: i for i, name in enumerate(self.columns)}

    def read(self, start: int, stop: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the rows [start, stop), all columns: a fresh array, or `out`, C-contiguous and of that shape and type."""
        self._check_rows(start, stop)
        block = np.empty((stop - start, self.width), self.dtype) if out is None else out
        if block.shape != (stop - start, self.width):
            raise ValueError(f"{block.shape} can not hold rows [{start}, {stop}) of {self.width} columns")
        self._file.read_into(block, self._offset_of(start * self.width))
        return block

    def write_rows(self, start: int, block: NDArray[Any]) -> None:
        """Write whole rows from row `start` on; block: [n, width] of the matrix's own type."""
        self._check_type(block)
        self._check_rows(start, start + len(block))
        if block.shape[1:] != (self.width,):
            raise ValueError(f"rows of {self.width} columns can't be written from {block.shape}")
        self._file.write(np.ascontiguousarray(block), self._offset_of(start * self.width))

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
        for turned in (False, True) if n else ():
            first = self._first_of_rectangle(row, column, turned=turned)
            if first is not None:
                return self._assign_rectangle(first, value, turned=turned, compare=compare)
        self._check_cells(row, column)
        changed = np.empty(n, np.bool_) if compare else None
        for start in range(0, n, BLOCK_CELLS):
            part = slice(start, start + BLOCK_CELLS)
            was_other = self._assign_block(row[part] * self.width + column[part], value[part], compare=compare)
            if changed is not None:
                changed[part] = was_other
        return changed

    def _first_of_rectangle(self, row: NDArray[np.int64], column: NDArray[np.integer[Any]], *, turned: bool) -> int | None:
        """Return the first row where the cells are whole rows, one after the other; turned: whole rows, column after column."""
        height, rest = divmod(len(row), self.width)
        first, last = int(row[0]), int(row[-1])
        if rest or first < 0 or last >= self.rows or last != first + height - 1:
            return None
        columns, rows = self._every_column, np.arange(first, last + 1)
        columns, rows = (columns[:, np.newaxis], rows) if turned else (columns, rows[:, np.newaxis])
        shape = (self.width, height) if turned else (height, self.width)
        return first if (column.reshape(shape) == columns).all() and (row.reshape(shape) == rows).all() else None

    def _assign_rectangle(self, first: int, value: NDArray[Any], *, turned: bool, compare: bool) -> NDArray[np.bool_] | None:
        block = np.ascontiguousarray(value.reshape(self.width, -1).T if turned else value.reshape(-1, self.width))
        before = self.read(first, first + len(block)) if compare else None
        self._file.write(block, self._offset_of(first * self.width))
        if before is None:
            return None
        changed: NDArray[np.bool_] = before.view(np.int64) != block.view(np.int64)
        return (changed.T if turned else changed).ravel()

    def _assign_block(self, position: NDArray[np.int64], value: NDArray[Any], *, compare: bool) -> NDArray[np.bool_] | None:
        low, high = int(position.min()), int(position.max())
        if high - low < min(len(self._file.scratch), SPARSE_CELLS * len(position)):
            return self._assign_cluster(low, high, position, value, compare=compare)
        order = np.argsort(position, kind="stable")
        position, value = position[order], value[order]
        changed = np.empty(len(position), np.bool_) if compare else None
        for lo, hi in _clusters(position):
            cells = position[lo:hi]
            was_other = self._assign_cluster(int(cells[0]), int(cells[-1]), cells, value[lo:hi], compare=compare)
            if changed is not None:
                changed[order[lo:hi]] = was_other
        return changed

    def _assign_cluster(
        self, low: int, high: int, position: NDArray[np.int64], value: NDArray[Any], *, compare: bool
    ) -> NDArray[np.bool_] | None:
        offset = self._offset_of(low)
        if len(position) == 1 and not compare:
            self._file.write(value, offset)
            return None
        block = self._file.scratch.view(self.dtype)[: high - low + 1]
        self._file.read_into(block, offset)
        at = position - low
        before = block[at] if compare else None
        block[at] = value
        self._file.write(block, offset)
        return None if before is None else before.view(np.int64) != block[at].view(np.int64)

    def rows_touched(self, begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return, ascending, the rows that overlap the bytes [begin[i], end[i]) of the file."""
        size = self.width * CELL_BYTES
        first = np.clip((begin - self._offset) // size, 0, self.rows)
        last = np.clip(-(-(end - self._offset) // size), first, self.rows)
        edges = np.zeros(self.rows + 1, np.int64)
        np.add.at(edges, first, 1)
        np.add.at(edges, last, -1)
        return np.flatnonzero(np.cumsum(edges))

    def _offset_of(self, position: int) -> int:
        return self._offset + position * CELL_BYTES

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
    """Cut sorted positions where cells are far apart and where blocks of the file begin; return index ranges."""
    block = position // SCRATCH_CELLS
    cuts = np.flatnonzero((position[1:] - position[:-1] > JOIN_CELLS) | (block[1:] != block[:-1])) + 1
    edges = [0, *cuts.tolist(), len(position)]
    return list(pairwise(edges))
