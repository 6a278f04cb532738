"""The chunks of a sealed file: cut, shuffled, compressed and verified in threads.

HDF5's own filter pipeline handles one chunk at a time; isal, zlib and numpy release the GIL, so two threads halve the time. The result
is what HDF5's shuffle and deflate filters read. ISA-L compresses four times as fast as zlib, to the same size within 5 %. zlib verifies
the chunks, as it does in HDF5, so a fault of one library does not hide in the other.
"""

from __future__ import annotations

import zlib
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np
from isal import isal_zlib

from tokiod.tts.live.matrix import BLOCK_CELLS, SCRATCH_CELLS
from tokiod.tts.schema import ABSENT, natural_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor, Future

    from numpy.typing import NDArray

    from tokiod.tts.live.matrix import Matrix

    Bits = NDArray[np.int64]

CHUNK_ROWS = 720
CHUNK_COLUMNS = 32
COMPRESSION_LEVEL = 2
"""Level of ISA-L: 3 is slower than zlib at its best level on repetitive data, and its files are larger."""
SMALL_STRIP_CELLS = 1 << 18
MAX_PENDING_CHUNKS = 32
"""Chunks submitted to the pool at once; bounds the memory."""

Corner = tuple[int, int]
T = TypeVar("T")
R = TypeVar("R")


class Chunks(msgspec.Struct, frozen=True):
    """A matrix in its sealed form: columns in natural order (`order` indexes the live ones), cut into chunks of shape `chunk`."""

    matrix: Matrix
    order: NDArray[np.intp]
    chunk: tuple[int, int]

    @classmethod
    def of(cls, matrix: Matrix) -> Chunks:
        """Cut into chunks of 184 KB, clipped to the matrix: 720 rows (an hour of 5 s) x 32 columns."""
        height = min(CHUNK_ROWS, matrix.rows)
        return cls(matrix, _natural_order(matrix.columns), (height, min(CHUNK_COLUMNS, matrix.width)))

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names in the order of the sealed file."""
        return tuple(self.matrix.columns[i] for i in self.order)

    def pieces(self) -> Iterator[tuple[Corner, Bits]]:
        """Yield first row and column, and the bits, of each chunk; cells beyond the matrix are missing. The bits must not be changed."""
        height, width = self.chunk
        # Several chunks of a narrow matrix at a time: the fixed cost of a strip would exceed that of its cells.
        tall = height * max(1, SCRATCH_CELLS // (height * self.matrix.width))
        for start in range(0, self.matrix.rows, tall):
            strip = self._strip(start, min(tall, -(-(self.matrix.rows - start) // height) * height))
            # Parts of a small strip are copied where they are packed, in threads; a large strip must not wait for all of its parts.
            is_small = strip.size <= SMALL_STRIP_CELLS
            for top in range(0, len(strip), height):
                for left in range(0, self.matrix.width, width):
                    part = strip[top : top + height, left : left + width]
                    yield (start + top, left), part if is_small else part.copy()
            del strip

    def _strip(self, top: int, height: int) -> Bits:
        width = self.chunk[1]
        strip = np.full((height, -(-self.matrix.width // width) * width), ABSENT)
        bottom, few = min(top + height, self.matrix.rows), max(1, BLOCK_CELLS // self.matrix.width)
        for start in range(top, bottom, few):
            rows = self.matrix.read(start, min(start + few, bottom)).view(np.int64)
            strip[start - top :][: len(rows), : self.matrix.width] = rows[:, self.order]
        return strip


# The matrices of a group have the same columns, and sorting thousands of them takes longer than packing an hour of them.
@lru_cache(maxsize=4)
def _natural_order(columns: tuple[str, ...]) -> NDArray[np.intp]:
    order = np.array(sorted(range(len(columns)), key=lambda i: natural_key(columns[i])), np.intp)
    order.flags.writeable = False
    return order


def pack(bits: Bits) -> bytes:
    """Shuffle and compress a chunk."""
    return isal_zlib.compress(_shuffled(bits), COMPRESSION_LEVEL)


def holds(packed_bits: tuple[bytes, Bits]) -> bool:
    """Return whether a stored chunk decompresses to these bits."""
    packed, bits = packed_bits
    try:
        return zlib.decompress(packed, bufsize=bits.nbytes) == _shuffled(bits)
    except zlib.error:
        return False


def _shuffled(bits: Bits) -> bytes:
    """Return the lowest bytes of all little-endian cells first, the highest last."""
    return bits.astype("<i8", copy=False).view(np.uint8).reshape(-1, 8).T.tobytes()


def ahead(pool: Executor | None, work: Callable[[T], R], items: Iterable[tuple[Corner, T]]) -> Iterator[tuple[Corner, R]]:
    """Yield (corner, work(item)) in order, a few items ahead in a pool, if there is one."""
    if pool is None:
        yield from ((corner, work(item)) for corner, item in items)
        return
    pending: deque[tuple[Corner, Future[R]]] = deque()
    for corner, item in items:
        pending.append((corner, pool.submit(work, item)))
        if len(pending) > MAX_PENDING_CHUNKS:
            first, result = pending.popleft()
            yield first, result.result()
    for first, result in pending:
        yield first, result.result()
