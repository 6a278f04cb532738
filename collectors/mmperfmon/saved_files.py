"""Saved outputs of `mmperfmon query`: files, directories and archives of them."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections import defaultdict, deque
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from collectors.mmperfmon.datasets import maps
from collectors.mmperfmon.parse import parse_all
from collectors.mmperfmon.saved_inputs import outputs, pieces
from collectors.mmperfmon.series import Series
from collectors.mmperfmon.to_batches import Buckets, Rows, batches, measured
from tokiod.dropped import Dropped, sentence
from tokiod.errors import Fatal, TokiodError
from tokiod.sample_spans import spans_of
from tokiod.toolkit.saved_files import Loading, readable, spooled
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from collectors.mmperfmon.config import Saved
    from collectors.mmperfmon.datasets import Maps
    from collectors.mmperfmon.parse_legend import Output
    from tokiod.collector import SavedCollector, Site
    from tokiod.window import Window

MIN_BYTES_FOR_WORKERS = 64 << 20
"""Smaller inputs, packed or not, do not use workers: these take a third of a second of a processor to start."""

BEGINNING = 200
"""Bytes of an output that show of which form it is."""
NO_DATA = "answer without data"
PLAIN = "save what `mmperfmon query` prints, without --csv and --raw"
NO_DATA_REMEDY = "query a time in which the sensors ran; `mmhealth node show PERFMON` shows whether they do"
OTHER_FORMS = (
    (re.compile(rb"[\[{]"), "file in JSON, as the performance collector and the REST API return it"),
    (re.compile(rb"\"?Row\"?[ \t]*[;,]|[^\n|]{1,80}[;,]\"?Timestamp"), "file in CSV"),
    (re.compile(rb"(?i)[^\n]{0,80}no data "), NO_DATA),
    (re.compile(rb""), "file without a legend"),
)


def opened(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved outputs. Raises TokiodError for a file that cannot be read, and for invalid options."""
    try:
        known = maps(options.lun_map, options.server_map)
    except TokiodError as error:
        raise TokiodError(f"--{str(error).replace('_', '-', 1)}") from None
    return SavedOutputs(readable(inputs, directories=True), Buckets(site.calendar.zone, options.step), known, options.cpu_scale, site.read)


class SavedOutputs:
    """The collector of saved outputs. The first call reads all of them into the spool, which every window is taken from."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, paths: Sequence[Path], buckets: Buckets, known: Maps, cpu_scale: float, on_read: Callable[[int], None]) -> None:
        self.step = buckets.step
        self._paths = paths
        self._buckets = buckets
        self._cpu_scale = cpu_scale
        self._on_read = on_read
        self._series = Series(known)
        self._files = Loading(self._load)
        self._dropped = Dropped()
        self._stopping = threading.Event()

    async def collect(self, window: Window) -> WindowData:
        """Return a batch per dataset. Dropped values are counted with the first window. Raises Fatal for a broken file."""
        spool = await self._files.loaded()
        dropped, self._dropped = self._dropped, Dropped()
        rows = list(spool.within(window))
        found = list(batches(rows, window, self.step, self._series, self._cpu_scale))
        return WindowData(found, sum(int(part.records.sum()) for part in rows), dropped.counts, why=dropped.why)

    async def count(self, window: Window) -> int | None:  # noqa: ARG002 - the contract's
        """Return None: files do not grow, so there is nothing to compare."""
        return None

    async def spans(self) -> list[Window]:
        """Return the spans with rows."""
        return (await self._files.loaded()).spans(self.step)

    async def close(self) -> None:
        """Stop reading, and delete the rows."""
        self._stopping.set()
        if (spool := await self._files.close()) is not None:
            spool.close()

    def _load(self) -> Spool:
        return spooled(Spool(), self._fill)

    def _fill(self, spool: Spool) -> None:
        for path in self._paths:
            self._read(path, spool)

    def _read(self, path: Path, spool: Spool) -> None:
        """Read a path's outputs. Raises Fatal if none of them has a legend, or all values were dropped."""
        dropped, has_legend, kept, given = Dropped(), False, 0, deque[tuple[float | None, bytes]]()
        with closing(self._parsed(path, given)) as parsed:
            for output in parsed:
                written, beginning = given.popleft()
                has_legend = has_legend or bool(output.legends)
                if output.legends:
                    dropped.take(output.dropped)
                else:
                    dropped.add(*other_form(beginning))
                for table in output.tables:
                    rows = measured(table, self._buckets, self._series, None, dropped, written)
                    kept += int(np.count_nonzero(~np.isnan(rows.value)))
                    spool.add(rows)
        if not kept and (dropped.counts or not has_legend):
            raise Fatal(f"{path}: {sentence(dropped.counts, dropped.why, 0) or 'it has no outputs'}")
        self._dropped.take(dropped)

    def _parsed(self, path: Path, given: deque[tuple[float | None, bytes]]) -> Generator[Output]:
        """Yield the outputs of a path. given: receives when each was written, and its beginning, before it is yielded."""
        coming = (self._unless_stopped(data, written, given) for data, written in outputs(path, self._on_read))
        if (count := worker_count()) and _size(path) >= MIN_BYTES_FOR_WORKERS:
            from collectors.mmperfmon.parse_workers import parsed  # noqa: PLC0415 - multiprocessing is for large inputs alone

            yield from parsed(path, coming, count)
        else:
            yield from (output for piece in pieces(coming) for output in parse_all(piece))

    def _unless_stopped(self, data: bytes, written: float | None, given: deque[tuple[float | None, bytes]]) -> bytes:
        if self._stopping.is_set():
            raise Fatal("stopped while reading saved outputs")
        given.append((written, data[:BEGINNING].lstrip()))
        return data


def other_form(beginning: bytes) -> tuple[str, int, bytes, str]:
    """Return what a text is that has no legend: the reason, one, its first line, and what helps."""
    reason = next(reason for pattern, reason in OTHER_FORMS if pattern.match(beginning))
    return reason, 1, beginning.partition(b"\n")[0], NO_DATA_REMEDY if reason == NO_DATA else PLAIN


def worker_count() -> int:
    """Return how many processes to use in addition to this one."""
    return min(4, len(os.sched_getaffinity(0))) - 1


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*")) if path.is_dir() else path.stat().st_size


BUCKET_SECONDS = 3600
MAX_COLUMNS = 4096
"""Columns from which on rows are written, though more with the same times may follow."""


class _Part(NamedTuple):
    """Rows in the order of time; their values are at `offset` of the file."""

    time: NDArray[np.int64]
    series: NDArray[np.int64]
    records: NDArray[np.int64]
    offset: int


# Files are read in any order, and a window needs the rows of all of them. Values take eight bytes each, in a file without a name that
# disappears with the process; times and columns stay in memory, because files of one hour share theirs. Such files mostly come one after
# the other, so their rows become wider ones: their number is what later steps cost.
class Spool:
    """Rows, added in any order of time, returned by window in the order of addition. Raises OSError."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="tokiod-spool-")  # noqa: SIM115 - close() closes it
        self._parts: dict[int, dict[int, _Part]] = defaultdict(dict)
        self._count = 0
        self._end = 0
        self._alike: list[Rows] = []
        self._columns = 0

    def add(self, rows: Rows) -> None:
        """Add rows."""
        if not len(rows.time):
            return
        if self._alike and (rows.time is not self._alike[0].time or self._columns > MAX_COLUMNS):
            self._write()
        self._alike.append(rows)
        self._columns += len(rows.series)

    def _write(self) -> None:
        """Write rows that share their times."""
        rows, self._alike, self._columns = self._alike, [], 0
        if not rows:
            return
        time, records = rows[0].time, np.sum([one.records for one in rows], axis=0)
        series, value = np.concatenate([one.series for one in rows]), np.concatenate([one.value for one in rows], axis=1)
        if (time[1:] < time[:-1]).any():
            order = np.argsort(time, kind="stable")
            time, value, records = time[order], value[order], records[order]
        part = _Part(time, series, records, self._end)
        for bucket in sorted(set((time // BUCKET_SECONDS).tolist())):
            self._parts[bucket][self._count] = part
        self._count += 1
        self._end += self._file.write(np.ascontiguousarray(value).data)

    def within(self, window: Window) -> Iterator[Rows]:
        """Yield the rows of a window."""
        self._write()
        found: dict[int, _Part] = {}
        for bucket in range(window.start // BUCKET_SECONDS, -(-window.end // BUCKET_SECONDS)):
            found |= self._parts.get(bucket, {})
        for _, part in sorted(found.items()):
            first, last = np.searchsorted(part.time, [window.start, window.end]).tolist()
            if first < last:
                yield Rows(part.time[first:last], part.series, self._read(part, first, last), part.records[first:last])

    def spans(self, step: int) -> list[Window]:
        """Return the spans with rows."""
        self._write()
        times = [part.time for parts in self._parts.values() for part in parts.values()]
        return spans_of(np.unique(np.concatenate(times)), step) if times else []

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self, part: _Part, first: int, last: int) -> NDArray[np.float64]:
        width = len(part.series)
        self._file.seek(part.offset + 8 * width * first)
        return np.frombuffer(self._file.read(8 * width * (last - first)), np.float64).reshape(last - first, width)
