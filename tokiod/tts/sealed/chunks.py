"""The chunks of a sealed file: cut, shuffled, compressed and compared here, in threads.

HDF5's own filter pipeline does one chunk after the other; isal, zlib and numpy let go of the GIL, so two threads halve the time. What
they make is exactly what HDF5's shuffle and deflate filters read. Chunks are compressed by ISA-L, four times as fast as by zlib and to
the same size within a twentieth, and read back by zlib, as HDF5 does: a fault of one is no fault of the other.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from isal import isal_zlib

from tokiod.tts.live.matrix import BLOCK, SCRATCH
from tokiod.tts.schema import ABSENT, natural_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor, Future

    from numpy.typing import NDArray

    from tokiod.tts.live.matrix import Matrix

    Bits = NDArray[np.int64]

CHUNK_ROWS = 720
CHUNK_COLUMNS = 32
LEVEL = 2
"""Of ISA-L's: 3 is slower than zlib at its best on what repeats, and its files are larger."""
AHEAD = 32
"""Chunks on their way at once, so that memory does not grow with the day."""

Corner = tuple[int, int]
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Chunks:
    """A matrix in its sealed form: columns in natural order (`order` indexes the live ones), cut in pieces of shape `chunk`."""

    matrix: Matrix
    order: NDArray[np.intp]
    chunk: tuple[int, int]

    @classmethod
    def of(cls, matrix: Matrix) -> Chunks:
        """Cut into pieces of 184 KB, clipped to the matrix: an hour of 5 s x 32 columns, where steps are longer as many rows."""
        order = sorted(range(matrix.width), key=lambda i: natural_key(matrix.columns[i]))
        height = min(CHUNK_ROWS, matrix.rows)
        return cls(matrix, np.array(order, np.intp), (height, min(CHUNK_COLUMNS, matrix.width)))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names in the order of the sealed file."""
        return tuple(self.matrix.columns[i] for i in self.order)

    def pieces(self) -> Iterator[tuple[Corner, Bits]]:
        """Yield first row and column, and the bits, of each chunk; what reaches beyond the matrix is missing."""
        height, width = self.chunk
        # Of a narrow matrix several chunks at a time: what each strip costs by itself is then more than what its cells do.
        tall = height * max(1, SCRATCH // (height * self.matrix.width))
        for start in range(0, self.matrix.rows, tall):
            strip = self._strip(start, min(tall, -(-(self.matrix.rows - start) // height) * height))
            for top in range(0, len(strip), height):
                for left in range(0, self.matrix.width, width):
                    yield (start + top, left), strip[top : top + height, left : left + width].copy()
            del strip

    def _strip(self, top: int, height: int) -> Bits:
        width = self.chunk[1]
        strip = np.full((height, -(-self.matrix.width // width) * width), ABSENT)
        bottom, few = min(top + height, self.matrix.rows), max(1, BLOCK // self.matrix.width)
        for start in range(top, bottom, few):
            rows = self.matrix.read(start, min(start + few, bottom)).view(np.int64)
            strip[start - top :][: len(rows), : self.matrix.width] = rows[:, self.order]
        return strip


def pack(bits: Bits) -> bytes:
    """Shuffle and compress a chunk: first all lowest bytes of the little-endian cells, last all highest, then deflate."""
    return isal_zlib.compress(bits.astype("<i8", copy=False).view(np.uint8).reshape(-1, 8).T.tobytes(), LEVEL)


def holds(packed_bits: tuple[bytes, Bits]) -> bool:
    """Return whether a stored chunk reads back as these bits."""
    packed, bits = packed_bits
    try:
        shuffled = np.frombuffer(zlib.decompress(packed), np.uint8)
    except zlib.error:
        return False
    return shuffled.size == bits.size * 8 and np.array_equal(
        np.ascontiguousarray(shuffled.reshape(8, -1).T).view("<i8").reshape(bits.shape), bits
    )


def ahead(pool: Executor, work: Callable[[T], R], items: Iterable[tuple[Corner, T]]) -> Iterator[tuple[Corner, R]]:
    """Yield (corner, work(item)) in order, a few items ahead in a pool."""
    pending: deque[tuple[Corner, Future[R]]] = deque()
    for corner, item in items:
        pending.append((corner, pool.submit(work, item)))
        if len(pending) > AHEAD:
            first, result = pending.popleft()
            yield first, result.result()
    for first, result in pending:
        yield first, result.result()
