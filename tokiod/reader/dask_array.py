"""Arrays of dask over a span, made only on request: their chunks begin and end where those of sealed files do."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.reader.errors import NotInstalled
from tokiod.reader.stitched import CHUNK_ROWS, MAX_BLOCK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.reader.stitched import Stitched


def dask_array(matrix: Stitched) -> Any:
    """Return a matrix as a dask.array.Array f8[rows, columns]; each task reads rows of one file, at most MAX_BLOCK_BYTES.

    A worker of another host opens the files by the same paths. Raises NotInstalled without dask.
    """
    try:
        import dask.array as da  # noqa: PLC0415 - optional, or slow to import
    except ModuleNotFoundError as error:
        otherwise = "array() returns a lazy array, and reduce() reads with flat memory"
        raise NotInstalled("an array of dask", "'dask[array]'", otherwise) from error
    # name=False: a live file gets other cells, so two arrays of one dataset are never taken for the same.
    chunks = (row_chunks(matrix), (len(matrix.columns),))
    from_array: Any = da.from_array  # without type information
    return from_array(matrix, chunks=chunks, name=False, asarray=False, fancy=False, meta=np.empty((0, 0)))


def row_chunks(matrix: Stitched) -> tuple[int, ...]:
    """Return how many rows each chunk has: a file's sealed chunks are in one of them, so that none is inflated twice."""
    height = max(MAX_BLOCK_BYTES // (8 * max(1, len(matrix.columns))) // CHUNK_ROWS, 1) * CHUNK_ROWS
    edges = [edge for stretch in _edges(matrix, height) for edge in stretch]
    return tuple(after - before for before, after in pairwise([*edges, matrix.rows]) if after > before)


def _edges(matrix: Stitched, height: int) -> Iterator[range]:
    """Yield the first rows of the chunks of each file, or of each time without one."""
    for one in matrix.stretches:
        row = 0 if one.path is None else matrix.located(one)[2]
        yield range(one.first, one.first + 1)
        yield range(one.first + height - row % height, one.first + one.rows, height)
