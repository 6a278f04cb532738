"""Samples of files on their way to windows: on disk, by time, so that memory does not grow with the input."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from tokiod.sample_spans import spans_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokiod.window import Window

BUCKET_MILLISECONDS = 300_000
"""Of 288 hosts with 16 cores, a bucket holds some half a million samples: 11 MB."""

Columns = tuple["NDArray[np.int64]", "NDArray[np.uint32]", "NDArray[np.float64]"]
_DTYPES = (np.dtype(np.int64), np.dtype(np.uint32), np.dtype(np.float64))


# The pages of a file are in any order of time, and a window needs all of its samples at once. Each sample takes 20 bytes in a file without
# a name, which disappears with the process; its document, which was read for it, takes 300.
class Spool:
    """Samples (time i8 UTC epoch milliseconds, series u4, value f8), added in any order, returned by window. Raises OSError."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="tokiod-spool-", buffering=0)  # noqa: SIM115 - close() closes it
        self._parts: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._end = 0

    def add(self, time: NDArray[np.int64], series: NDArray[np.uint32], value: NDArray[np.float64]) -> None:
        """Add samples."""
        bucket = time // BUCKET_MILLISECONDS
        if not len(bucket):
            return
        if (bucket != bucket[0]).any():
            order = np.argsort(bucket, kind="stable")
            bucket, time, series, value = bucket[order], time[order], series[order], value[order]
        edges = np.flatnonzero(np.diff(bucket)) + 1
        for first, last in zip([0, *edges.tolist()], [*edges.tolist(), len(bucket)], strict=True):
            self._write(int(bucket[first]), (time[first:last], series[first:last], value[first:last]))

    def within(self, window: Window) -> Iterator[Columns]:
        """Yield the samples of a window, in parts."""
        start, end = window.start * 1000, window.end * 1000
        for bucket in range(start // BUCKET_MILLISECONDS, -(-end // BUCKET_MILLISECONDS)):
            for offset, count in self._parts.get(bucket, ()):
                time, series, value = self._read(offset, count)
                inside = (time >= start) & (time < end)
                yield (time, series, value) if inside.all() else (time[inside], series[inside], value[inside])

    def spans(self) -> list[Window]:
        """Return where there are samples, in whole buckets."""
        return spans_of(np.array(list(self._parts), np.int64) * (BUCKET_MILLISECONDS // 1000), BUCKET_MILLISECONDS // 1000)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, bucket: int, columns: Columns) -> None:
        data = b"".join(column.tobytes() for column in columns)
        self._parts[bucket].append((self._end, len(columns[0])))
        written = 0
        while written < len(data):
            written += self._file.write(memoryview(data)[written:]) or 0
        self._end += len(data)

    def _read(self, offset: int, count: int) -> Columns:
        size = count * sum(dtype.itemsize for dtype in _DTYPES)
        self._file.seek(offset)
        data = bytearray(size)
        self._file.readinto(data)
        time = np.frombuffer(data, _DTYPES[0], count)
        series = np.frombuffer(data, _DTYPES[1], count, offset=8 * count)
        return time, series, np.frombuffer(data[12 * count :], _DTYPES[2], count)
