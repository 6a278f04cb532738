"""Rows of a table out of the pages of a SQLite file that does not change, many at a time.

SQLite makes an object of Python, or digits of a text, of each number. Here a table's pages are read as they are, and numpy takes the
numbers of thousands of rows out of them at once. This is for tables as LMT's copies have them: rowids, short rows of numbers, each with all
columns (https://sqlite.org/fileformat2.html, chapters 1.6 and 2). Whatever else a table holds raises Unusual, and is left to SQLite: texts
among the numbers, long rows, columns that were added later, and damage.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from collectors.lmt.datasets import NULL_INTEGER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Places = NDArray[np.int64]

HEADER_BYTES = 100
MAX_DEPTH = 20
PAGE_BYTES = {(size & 0xFFFF | size >> 16).to_bytes(2, "big"): size for size in (1 << power for power in range(9, 17))}
"""By how the header has it."""
INTERIOR, LEAF = 5, 13
INTERIOR_HEADER, LEAF_HEADER = 12, 8
CHUNK_BYTES = 1 << 20
"""Pages that are read at a time."""
GAP_PAGES = 8
"""Pages of other tables that are read rather than skipped."""
MAX_BLOCKS = 1 << 18
PADDING = 256
"""Bytes behind the pages in memory, so that a place that is not verified yet can be read."""
MORE = 0x80
"""Bit of a byte of an integer of variable length: another byte follows."""
MAX_VARINT = 9

NULL, FLOAT, ZERO, ONE, FIRST_RESERVED = 0, 7, 8, 9, 10
"""Serial types: 1 to 6 are integers, 8 and 9 the integers 0 and 1."""
BYTES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((code - 12) // 2 for code in range(12, 256))], np.uint8)
SHIFTS = 64 - 8 * BYTES.astype(np.int64)
"""By serial type: the length of the value, and what its bits lack of 64."""


CHANGES, PAGES, CHANGES_OF_PAGES = slice(24, 28), slice(28, 32), slice(92, 96)
"""Of the header: a number that each change increases; how many pages there are, if the change is that which wrote the number of pages."""


def check_whole(path: Path) -> None:
    """Raise ValueError for a file that is shorter than its header says. SQLite reads the rest of a page that was cut as zeros."""
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
        size = file.seek(0, os.SEEK_END)
    expected = int.from_bytes(header[PAGES], "big") * PAGE_BYTES.get(header[16:18], 0)
    if header[CHANGES] == header[CHANGES_OF_PAGES] and size < expected:
        raise ValueError(f"it has {size} of {expected} bytes")


class Unusual(Exception):  # noqa: N818 - a state, not a fault
    """A table, or a part of it, is not of the form that is read here."""


class PagedFile:
    """A SQLite file that does not change. check: called from time to time while pages are read; may raise. Raises Unusual, OSError."""

    def __init__(self, fd: int, check: Callable[[], None]) -> None:
        self._fd = fd
        self._check = check
        self._memory = np.empty(0, np.uint8)
        header = os.pread(fd, HEADER_BYTES, 0)
        self.page_bytes = PAGE_BYTES.get(header[16:18], 0)
        if len(header) < HEADER_BYTES or not self.page_bytes:
            raise Unusual
        self.usable = self.page_bytes - header[20]
        self.pages = os.fstat(fd).st_size // self.page_bytes

    @classmethod
    def opened(cls, path: Path, known: os.stat_result, check: Callable[[], None]) -> Self | None:
        """Open a file of which `known` was found before; return None if another file has its place now, or one of another form."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.path.samestat(os.fstat(fd), known):
                return cls(fd, check)
        except Unusual:
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return None

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def chunks(self, numbers: Places) -> Iterator[tuple[NDArray[np.uint8], Places]]:
        """Yield some pages at a time: a piece of memory that is used again, and where each page begins in it."""
        if len(numbers) and not 1 < int(numbers.min()) <= int(numbers.max()) <= self.pages:
            raise Unusual
        at_once = max(1, CHUNK_BYTES // self.page_bytes)
        for start in range(0, len(numbers), at_once):
            self._check()
            yield self._read(numbers[start : start + at_once])

    def _read(self, numbers: Places) -> tuple[NDArray[np.uint8], Places]:
        ordered = np.sort(numbers)
        runs = np.split(ordered, np.flatnonzero(np.diff(ordered) > GAP_PAGES) + 1)
        lengths = [int(run[-1] - run[0]) + 1 for run in runs]
        size = sum(lengths) * self.page_bytes + PADDING
        if len(self._memory) < size:
            self._memory = np.zeros(size, np.uint8)
        first, begin = np.array([run[0] for run in runs]), np.cumsum([0, *lengths[:-1]])
        for number, at, length in zip(first.tolist(), begin.tolist(), lengths, strict=True):
            part = self._memory[at * self.page_bytes : (at + length) * self.page_bytes]
            if os.preadv(self._fd, [part.data], (number - 1) * self.page_bytes) < len(part):
                raise Unusual
        run = np.searchsorted(first, numbers, "right") - 1
        return self._memory, (begin[run] + numbers - first[run]) * self.page_bytes


class PagedTable:
    """A table: its leaves, in the order of its rows, and which values of an indexed column are in each block of leaves.

    columns: all of the table, in its order; identity: the indexed one, and others that hold integers in all rows. Raises Unusual, OSError,
    and what the file's check raises.
    """

    def __init__(self, file: PagedFile, root: int, columns: Sequence[str], identity: Sequence[str]) -> None:
        self._file = file
        self._columns = list(columns)
        self._indexed, *self._integers = (self._columns.index(name) for name in identity)
        self._leaves = _leaves(file, root)
        self._block = -(-len(self._leaves) // MAX_BLOCKS)
        counts, least, greatest = (np.concatenate(part) for part in zip(*self._edges(), strict=True))
        starts = np.arange(0, len(self._leaves), self._block)
        self._rows = np.add.reduceat(counts, starts)
        self._least, self._greatest = np.minimum.reduceat(least, starts), np.maximum.reduceat(greatest, starts)

    def _edges(self) -> Iterator[tuple[Places, Places, Places]]:
        """Yield the number of rows of each leaf, and the edges of the indexed column; of an empty leaf edges that hold nothing."""
        for memory, starts in self._file.chunks(self._leaves):
            wanted = max((self._indexed, *self._integers)) + 1
            records = _Records.read(memory, starts, self._file.usable, len(self._columns), wanted)
            value, counts = records.integers(self._indexed), records.counts
            least, greatest = np.full(len(counts), np.iinfo(np.int64).max), np.full(len(counts), np.iinfo(np.int64).min)
            if (value == NULL_INTEGER).any() or not all(map(records.is_integer, self._integers)):
                raise Unusual
            if len(value):
                filled, begin = counts > 0, np.cumsum(counts) - counts
                least[filled] = np.minimum.reduceat(value, begin[filled])
                greatest[filled] = np.maximum.reduceat(value, begin[filled])
            yield counts, least, greatest

    def blocks(self, first: int, last: int) -> tuple[Places, int]:
        """Return the blocks that may hold such values, and how many rows they have in all."""
        hit = np.flatnonzero((self._least <= last) & (self._greatest >= first))
        return hit, int(self._rows[hit].sum())

    def numbers(  # noqa: PLR0913 - which rows, and how
        self, names: Sequence[str], blocks: Places, first: int, last: int, *, exact: bool, expected: int
    ) -> NDArray[Any]:
        """Return the named columns of the rows of some blocks whose indexed value is between first and last.

        exact: as i8[names, rows] with NULL_INTEGER for NULL, else f8 with NaN; expected: probably so many rows.
        """
        places = [self._columns.index(name) for name in names]
        leaves = (blocks[:, np.newaxis] * self._block + np.arange(self._block)).ravel()
        found, rows = np.empty((len(places), expected), np.int64 if exact else np.float64), 0
        for memory, starts in self._file.chunks(self._leaves[leaves[leaves < len(self._leaves)]]):
            records = _Records.read(memory, starts, self._file.usable, len(self._columns))
            value = records.integers(self._indexed)
            inside = (value >= first) & (value <= last)
            if not inside.all():
                records = records.chosen(inside)
            if rows + len(records) > found.shape[1]:
                found = np.concatenate([found[:, :rows], np.empty((len(places), rows + len(records)), found.dtype)], axis=1)
            for place, values in zip(places, found, strict=True):
                values[rows : rows + len(records)] = records.integers(place) if exact else records.floats(place)
            rows += len(records)
        return found[:, :rows]


def _leaves(file: PagedFile, root: int) -> Places:
    """Return the numbers of a table's leaves in the order of its rows."""
    level = np.array([root], np.int64)
    for _ in range(MAX_DEPTH):
        kinds, children = [], []
        for memory, starts in file.chunks(level):
            kinds.append(memory[starts])
            if kinds[-1][0] == LEAF:
                # All leaves are at one depth, and _Records.read verifies that the others are leaves too.
                return level
            children += [_children(memory, start, file.usable) for start in starts.tolist()]
        level = np.concatenate(children)
        # np.unique() would import numpy.ma: 15 ms, a twentieth of what a small file takes.
        if len(level) > file.pages or not np.diff(np.sort(level)).all():
            raise Unusual
    raise Unusual


def _children(memory: NDArray[np.uint8], start: int, usable: int) -> Places:
    """Return the children of an interior page."""
    count = int(memory[start + 3]) << 8 | int(memory[start + 4])
    if memory[start] != INTERIOR or INTERIOR_HEADER + 2 * count > usable:
        raise Unusual
    places = start + _short(memory, start + INTERIOR_HEADER + 2 * np.arange(count))
    if count and int(places.max()) + 4 > start + usable:
        raise Unusual
    return _integers(memory, (np.append(places, start + 8), 4), 32)


class _Records:
    """Rows in memory. counts: of each page; types: serial types u1[columns, rows]; ends: where the values of each column end."""

    def __init__(self, memory: NDArray[np.uint8], counts: Places, types: NDArray[np.uint8], ends: list[_Ends]) -> None:
        self.memory = memory
        self.counts = counts
        self._types = types
        self._ends = ends

    @classmethod
    def read(cls, memory: NDArray[np.uint8], starts: Places, usable: int, columns: int, wanted: int | None = None) -> _Records:
        """Find all rows of some leaves. columns: of the table; wanted: only the first so many."""
        counts = _short(memory, starts + 3)
        if (memory[starts] != LEAF).any() or (LEAF_HEADER + 2 * counts > usable).any():
            raise Unusual
        start = np.repeat(starts, counts)
        pointer = np.arange(LEAF_HEADER, LEAF_HEADER + 2 * len(start), 2) + np.repeat(starts - 2 * (np.cumsum(counts) - counts), counts)
        cell = start + _short(memory, pointer)
        if (cell < np.repeat(starts + LEAF_HEADER + 2 * counts, counts)).any() or (cell >= start + usable).any():
            raise Unusual
        length, header = memory[cell], _behind_varint(memory, cell + 1)
        # A row that is longer than MORE, or a column whose type is, may continue on other pages.
        if (length >= MORE).any() or (header + length > start + usable).any() or (memory[header] != columns + 1).any():
            raise Unusual
        types = np.ascontiguousarray(_slices(memory, header + 1, wanted or columns).T)
        if (types >= MORE).any():
            raise Unusual
        ends = _ends(types, header + 1 + columns)
        last, more = ends[-1]
        behind = last + more - (header + length)
        if (behind > 0).any() or (wanted is None and behind.any()):
            raise Unusual
        return cls(memory, counts, types, ends)

    def __len__(self) -> int:
        return len(self._types[0])

    def chosen(self, rows: NDArray[np.bool_]) -> _Records:
        """Return some of the rows."""
        found = np.flatnonzero(rows)
        is_run = len(found) and found[-1] - found[0] + 1 == len(found)
        some = slice(int(found[0]), int(found[-1]) + 1) if is_run else found
        return _Records(self.memory, self.counts, self._types[:, some], [(places[some], more) for places, more in self._ends])

    def is_integer(self, column: int) -> bool:
        """Return whether all values of a column are integers."""
        types = self._types[column]
        return not len(types) or (int(types.min()) > NULL and int(types.max()) < FIRST_RESERVED and not (types == FLOAT).any())

    def integers(self, column: int) -> NDArray[np.int64]:
        """Return a column of integers, NULL_INTEGER for NULL."""
        types, ends = self._types[column], self._ends[column]
        if not len(types):
            return np.empty(0, np.int64)
        least, greatest = int(types.min()), int(types.max())
        if greatest >= FIRST_RESERVED or (types == FLOAT).any():
            raise Unusual
        if least == greatest and NULL < least < FLOAT:
            return _integers(self.memory, ends, SHIFTS[least])
        value = _integers(self.memory, ends, SHIFTS[types])
        for code, number in ((NULL, NULL_INTEGER), (ZERO, 0), (ONE, 1)):
            if least == code or greatest >= code > NULL:
                value[types == code] = number
        return value

    def floats(self, column: int) -> NDArray[np.float64]:
        """Return a column as floats, NaN for NULL."""
        types = self._types[column]
        is_float, is_null = types == FLOAT, types == NULL
        if is_float.all():
            return _words(self.memory, self._ends[column]).view(np.float64)
        value = np.full(len(self), np.nan)
        value[is_float] = self.chosen(is_float).floats(column)
        others = ~(is_float | is_null)
        value[others] = self.chosen(others).integers(column)
        return value


_Ends = tuple["Places", int]
"""Some places, and how far behind them each value ends."""


def _ends(types: NDArray[np.uint8], places: Places) -> list[_Ends]:
    """Return where the values of each column end; places: where those of the first one begin."""
    ends, more = [], 0
    for column in types:
        if len(column) and (column != column[0]).any():
            places, more = places + BYTES[column] + more, 0
        else:
            more += int(BYTES[column[:1]].sum())
        ends.append((places, more))
    return ends


# A view whose items overlap: one index takes some bytes from any place.
def _slices(memory: NDArray[np.uint8], places: Places, length: int) -> NDArray[np.uint8]:
    """Return `length` bytes from each place, u1[places, length]."""
    view = np.ndarray((len(memory) - length + 1,), f"V{length}", memory, strides=(1,))
    return view[places].view(np.uint8).reshape(len(places), length)


def _integers(memory: NDArray[np.uint8], ends: _Ends, shift: Any) -> NDArray[np.int64]:
    """Return the big-endian integers with sign that end at each place; shift: 64 bits less those of an integer."""
    word = _words(memory, ends)
    word <<= shift
    word >>= shift
    return word


def _words(memory: NDArray[np.uint8], ends: _Ends) -> NDArray[np.int64]:
    """Return the eight bytes before each place as a big-endian integer with sign. A row is never that near to the beginning of memory."""
    view = np.ndarray((len(memory) - 7,), np.int64, memory, strides=(1,))
    places, more = ends
    return view[places + (more - 8)].byteswap(inplace=True)


def _short(memory: NDArray[np.uint8], places: Places) -> Places:
    """Return the big-endian u2 at each place."""
    return memory[places].astype(np.int64) << 8 | memory[places + 1]


def _behind_varint(memory: NDArray[np.uint8], places: Places) -> Places:
    """Return where the integers of variable length end that begin at each place."""
    for _ in range(MAX_VARINT - 1):
        more = memory[places] >= MORE
        if not more.any():
            break
        places = places + more
    return places + 1
