"""Rows of files on their way to windows: on disk, so that memory does not grow with the input."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collectors.mmperfmon.to_batches import Rows
from tokiod.sample_spans import spans_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokiod.window import Window


BUCKET_SECONDS = 3600


class _Part(NamedTuple):
    """Rows in the order of time; their values are at `offset` of the file."""

    time: NDArray[np.int64]
    series: NDArray[np.int64]
    records: NDArray[np.int64]
    offset: int


# Files are read in any order, and a window needs the rows of all of them. Values take eight bytes each, in a file without a name that
# disappears with the process; times and columns stay in memory, because files of one hour share theirs.
class Spool:
    """Rows, added in any order of time, returned by window in the order of addition. Raises OSError."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="tokiod-spool-")  # noqa: SIM115 - close() closes it
        self._parts: dict[int, dict[int, _Part]] = defaultdict(dict)
        self._count = 0
        self._end = 0

    def add(self, rows: Rows) -> None:
        """Add rows."""
        time, value, records = rows.time, rows.value, rows.records
        if not len(time):
            return
        if (time[1:] < time[:-1]).any():
            order = np.argsort(time, kind="stable")
            time, value, records = time[order], value[order], records[order]
        part = _Part(time, rows.series, records, self._end)
        for bucket in sorted(set((time // BUCKET_SECONDS).tolist())):
            self._parts[bucket][self._count] = part
        self._count += 1
        self._end += self._file.write(value.tobytes())

    def within(self, window: Window) -> Iterator[Rows]:
        """Yield the rows of a window."""
        found: dict[int, _Part] = {}
        for bucket in range(window.start // BUCKET_SECONDS, -(-window.end // BUCKET_SECONDS)):
            found |= self._parts.get(bucket, {})
        for _, part in sorted(found.items()):
            first, last = np.searchsorted(part.time, [window.start, window.end]).tolist()
            if first < last:
                yield Rows(part.time[first:last], part.series, self._read(part, first, last), part.records[first:last])

    def spans(self, step: int) -> list[Window]:
        """Return where there are rows."""
        times = [part.time for parts in self._parts.values() for part in parts.values()]
        return spans_of(np.unique(np.concatenate(times)), step) if times else []

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self, part: _Part, first: int, last: int) -> NDArray[np.float64]:
        width = len(part.series)
        self._file.seek(part.offset + 8 * width * first)
        return np.frombuffer(self._file.read(8 * width * (last - first)), np.float64).reshape(last - first, width)
