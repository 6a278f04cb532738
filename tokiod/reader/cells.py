"""The cells of one dataset of one file, read around HDF5.

Through HDF5 every chunk passes its single lock, its cache and its filters in one thread. Here it only locates the cells: the offset of a
contiguous dataset, those of all chunks of a compressed one. The bytes are read from a descriptor, then inflated and unshuffled in two
threads (zlib, isal and numpy release the GIL). A contiguous dataset is read anew each time, so a live file needs no refresh, and HDF5 need
not have the file open. Every other layout (other filters, chunks that were never written, other types) is read by HDF5.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import h5py
import numpy as np

from tokiod.tts.schema import missing

try:
    from isal import igzip_lib
except ImportError:  # twice as fast as zlib, but the reader alone does without it
    _inflater: Any = zlib.decompressobj
    _deflate_errors: Any = (zlib.error,)
else:
    # isal's decompressobj doubles its output buffer up to the chunk: a fifth slower, and the GIL changes hands at each step.
    _inflater = partial(igzip_lib.IgzipDecompressor, flag=igzip_lib.DECOMP_ZLIB)
    _deflate_errors = (igzip_lib.error,)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    Columns = slice | NDArray[np.intp]

THREADS = 2
PIECE_BYTES = 2**20
"""Of a dataset that is not chunked: a piece fits into the cache of a core, and two threads share a large read."""
MAX_PIECES = 8
"""That a thread gets at once."""
MAX_CHUNK_BYTES = 2**28
"""Larger chunks are read by HDF5, which reads them in place."""
CELL_BYTES = 8
_DEFLATE, _SHUFFLE = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE
_KNOWN_FILTERS = {(), (_DEFLATE,), (_SHUFFLE,), (_SHUFFLE, _DEFLATE)}

T = TypeVar("T")


class Damaged(ValueError):  # noqa: N818 - a state, not a fault
    """The bytes of a file are not what its structure promises."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A rectangle of cells that is read at once.

    rows: within the rows that were asked for; columns: places in the columns that were asked for. load: returns its cells f8[rows,
    columns] as stored, -0.0 where missing. They can't be changed where they are part of a chunk that is kept.
    """

    rows: slice
    columns: Columns
    load: Callable[[], NDArray[np.float64]]

    def place(self, values: NDArray[np.float64]) -> None:
        """Read the cells to their places in all that was asked for, NaN where missing."""
        cells = self.load()
        rows = values[self.rows]
        if isinstance(self.columns, slice):  # a view: half the time that np.where takes
            found = rows[:, self.columns]
            found[...] = cells
            np.copyto(found, np.nan, where=missing(cells))
        else:
            rows[:, self.columns] = np.where(missing(cells), np.nan, cells)


class KeptChunks:
    """The inflated chunks that were read last, of any number of datasets, at most `limit` bytes of them."""

    def __init__(self, limit: int) -> None:
        self._limit, self._nbytes = limit, 0
        self._chunks: OrderedDict[object, NDArray[np.float64]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: object, load: Callable[[], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return a chunk, which can't be changed; load() is called if it is not kept."""
        with self._lock:
            found = self._chunks.pop(key, None)
            if found is not None:
                self._chunks[key] = found
                return found
        found = load()
        found.flags.writeable = False
        with self._lock:
            self._nbytes += found.nbytes - (self._chunks.pop(key).nbytes if key in self._chunks else 0)
            self._chunks[key] = found
            while self._nbytes > self._limit:
                self._nbytes -= self._chunks.popitem(last=False)[1].nbytes
        return found

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._chunks.clear()
            self._nbytes = 0


class Cells:
    """The cells of a dataset, [rows, columns]. columns: how many have a name; a foreign file may have others after them.

    dataset: of h5py, which locates the cells now; fd: a descriptor of the same file, open as long as this object is used; reopened: gives
    the dataset for layouts that HDF5 reads; kept: chunks that stay inflated. Its methods raise Damaged, and what HDF5 raises.
    """

    def __init__(
        self, dataset: Any, columns: int, fd: int, reopened: Callable[[], AbstractContextManager[Any]], kept: KeptChunks | None = None
    ) -> None:
        self._columns, self._fd, self._reopened, self._kept = columns, fd, reopened, kept
        self._width: int = dataset.shape[1]
        is_plain = isinstance(dataset, h5py.Dataset) and bool(dataset.dtype == np.dtype("<f8")) and np.little_endian
        self._offset = _offset_of(dataset) if is_plain else None
        self._chunks = _Chunks.of(dataset) if is_plain else None

    def read(self, first: int, last: int, columns: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
        """Return rows [first, last) of columns by number (None: all), NaN where missing."""
        values = np.empty((last - first, self._columns if columns is None else len(columns)))
        for _ in in_threads(partial(Piece.place, values=values), self.pieces(first, last, columns)):
            pass
        return values

    def pieces(self, first: int, last: int, columns: NDArray[np.intp] | None = None) -> list[Piece]:
        """Cut rows [first, last) of columns by number (None: all) into what is read at once, oldest first."""
        if first >= last or not self._columns or (columns is not None and not len(columns)):
            return []
        if self._offset is not None:
            return list(self._strips(first, last, columns, self._contiguous))
        if self._chunks is not None:
            return list(self._chunked(self._chunks, first, last, columns))
        return list(self._strips(first, last, columns, self._by_hdf5))

    def _chunked(self, chunks: _Chunks, first: int, last: int, columns: NDArray[np.intp] | None) -> Iterator[Piece]:
        height, width = chunks.shape
        bands = list(_bands(self._columns, width, columns))
        for row in range(first // height, -(-last // height)):
            top, bottom = max(first, row * height), min(last, (row + 1) * height)
            rows, inside = slice(top - first, bottom - first), slice(top - row * height, bottom - row * height)
            for band, target, local in bands:
                yield Piece(rows, target, partial(self._chunk, chunks, row, band, inside, local))

    def _chunk(self, chunks: _Chunks, row: int, band: int, rows: slice, columns: Columns) -> NDArray[np.float64]:
        if self._kept is None:
            return self._inflated(chunks, row, band, rows, columns)
        everything = slice(None)
        whole = self._kept.get((self, row, band), lambda: self._inflated(chunks, row, band, everything, everything))
        return whole[rows, columns]

    def _inflated(self, chunks: _Chunks, row: int, band: int, rows: slice, columns: Columns) -> NDArray[np.float64]:
        offset, size = (int(one) for one in chunks.places[row, band])
        return chunks.cells(_exactly(self._fd, size, offset), rows, columns)

    def _strips(self, first: int, last: int, columns: NDArray[np.intp] | None, load: Any) -> Iterator[Piece]:
        height = max(1, PIECE_BYTES // (CELL_BYTES * self._width))
        for top, bottom in pairwise([*range(first, last, height), last]):
            yield Piece(slice(top - first, bottom - first), slice(None), partial(load, top, bottom, columns))

    def _contiguous(self, top: int, bottom: int, columns: NDArray[np.intp] | None) -> NDArray[np.float64]:
        row_bytes = self._width * CELL_BYTES
        stored = _exactly(self._fd, (bottom - top) * row_bytes, (self._offset or 0) + top * row_bytes)
        cells = np.frombuffer(stored, "<f8").reshape(bottom - top, self._width)
        return cells[:, : self._columns] if columns is None else cells[:, columns]

    def _by_hdf5(self, top: int, bottom: int, columns: NDArray[np.intp] | None) -> NDArray[np.float64]:
        with self._reopened() as dataset:
            cells: NDArray[np.float64] = dataset[top:bottom, : self._columns].astype(np.float64, copy=False)
        return cells if columns is None else cells[:, columns]


@dataclass(frozen=True, slots=True, eq=False)
class _Chunks:
    """places: i8[chunks down, chunks across, (offset, size)]; shape: rows and columns of a chunk; filters: in the order of writing."""

    places: NDArray[np.int64]
    shape: tuple[int, int]
    filters: tuple[int, ...]

    @classmethod
    def of(cls, dataset: Any) -> _Chunks | None:
        """Return the places of the chunks, None unless all exist and have the filters of a sealed file or of pytokio."""
        plist = dataset.id.get_create_plist()
        if plist.get_layout() != h5py.h5d.CHUNKED:
            return None
        filters = tuple(plist.get_filter(i)[0] for i in range(plist.get_nfilters()))
        height, width = plist.get_chunk()
        if filters not in _KNOWN_FILTERS or height * width * CELL_BYTES > MAX_CHUNK_BYTES:
            return None
        grid = (-(-dataset.shape[0] // height), -(-dataset.shape[1] // width))
        if dataset.id.get_num_chunks() != grid[0] * grid[1]:
            return None
        places = np.zeros((*grid, 2), np.int64)

        def note(info: Any) -> None:
            row, column = info.chunk_offset
            # No program here leaves out the filters of single chunks: HDF5 reads such a dataset.
            places[row // height, column // width] = (info.byte_offset, 0 if info.filter_mask else info.size)

        dataset.id.chunk_iter(note)
        return cls(places, (height, width), filters) if places[..., 1].all() else None

    def cells(self, stored: bytearray, rows: slice, columns: Columns) -> NDArray[np.float64]:
        """Decode a chunk and return some of its cells."""
        height, width = self.shape
        data: Any = stored
        if _DEFLATE in self.filters:
            data = _inflated(stored, height * width * CELL_BYTES)
        if len(data) != height * width * CELL_BYTES:
            raise Damaged(f"a chunk of {len(data)} bytes instead of {height * width * CELL_BYTES}")
        if _SHUFFLE not in self.filters:
            cells: NDArray[np.float64] = np.frombuffer(data, "<f8").reshape(height, width)[rows, columns].copy()
            return cells
        planes = np.frombuffer(data, np.uint8).reshape(CELL_BYTES, height, width)[:, rows, columns]
        cells = np.empty(planes.shape[1:])
        for i, plane in enumerate(planes):  # half the time that a transposition takes
            cells.view(np.uint8).reshape(*cells.shape, CELL_BYTES)[..., i] = plane
        return cells


def _offset_of(dataset: Any) -> int | None:
    """Return the place of contiguous cells in the file, None for other layouts."""
    is_contiguous = dataset.id.get_create_plist().get_layout() == h5py.h5d.CONTIGUOUS and not dataset.external
    offset: int | None = dataset.id.get_offset() if is_contiguous else None
    return offset


def _inflated(stored: bytearray, nbytes: int) -> bytes:
    """Inflate at most nbytes: a damaged chunk may expand a thousandfold."""
    try:
        data: bytes = _inflater().decompress(stored, nbytes)
    except _deflate_errors as error:
        raise Damaged(f"a chunk can't be decompressed: {error}") from error
    return data


def _exactly(fd: int, size: int, offset: int) -> bytearray:
    """Read bytes, without ever asking for more than the file has: a damaged size must not take the memory."""
    if offset < 0 or size < 0 or offset + size > os.fstat(fd).st_size:
        raise Damaged(f"{size} bytes at {offset} are beyond its end")
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        count = os.preadv(fd, [view[done:]], offset + done)
        if not count:
            raise Damaged(f"it ended at {offset + done} while it was read")
        done += count
    return data


def _bands(width: int, chunk: int, columns: NDArray[np.intp] | None) -> Iterator[tuple[int, Columns, Columns]]:
    """Yield each column of chunks that is needed, the places of its columns in the result, and in the chunk."""
    if columns is None:
        for left in range(0, width, chunk):
            right = min(left + chunk, width)
            yield left // chunk, slice(left, right), slice(0, right - left)
        return
    bands = columns // chunk
    for band in np.unique(bands):
        places = np.flatnonzero(bands == band)
        yield int(band), places, columns[places] - band * chunk


_pool: ThreadPoolExecutor | None = None
_threads = THREADS


def use_one_thread() -> None:
    """Read in the calling thread alone, in this process: one of several that share the cores."""
    global _threads  # noqa: PLW0603 - threads are shared by all readers of a process
    _threads = 1


def in_threads(work: Callable[[Piece], T], pieces: list[Piece]) -> Iterator[T]:
    """Yield work(piece) in order, computed in THREADS threads where there is enough of it."""
    if _threads == 1 or len(pieces) <= _threads:
        return map(work, pieces)
    global _pool  # noqa: PLW0603 - threads are shared by all readers of a process, and a forked child has none
    if _pool is None:
        _pool = ThreadPoolExecutor(_threads, "tokiod-reader")
    # Several at once: to hand one over takes as long as to inflate a small one.
    size = max(1, min(MAX_PIECES, len(pieces) // (2 * _threads)))
    groups = [pieces[first : first + size] for first in range(0, len(pieces), size)]
    return chain.from_iterable(_pool.map(lambda group: [work(piece) for piece in group], groups))


def _forget_threads() -> None:
    global _pool  # noqa: PLW0603 - threads are shared by all readers of a process, and a forked child has none
    _pool = None


os.register_at_fork(after_in_child=_forget_threads)
