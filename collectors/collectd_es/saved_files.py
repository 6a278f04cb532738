"""Saved pages of hits, as pytokio's --output writes them, read as one index."""

from __future__ import annotations

import re
import tempfile
import threading
from collections import defaultdict
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from collectors.collectd_es.datasets import Fields
from collectors.collectd_es.datasets import faults as field_faults
from collectors.collectd_es.parse import Samples
from collectors.collectd_es.parse_workers import NameRules, Parsing
from collectors.collectd_es.plausible import Rules
from collectors.collectd_es.to_batches import batches
from tokiod.batch import Batch
from tokiod.dropped import Dropped
from tokiod.errors import Fatal, TokiodError
from tokiod.sample_spans import spans_of
from tokiod.toolkit.saved_files import Loading, readable, spooled
from tokiod.window import Window
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from collectors.collectd_es.config import Saved
    from tokiod.collector import SavedCollector, Site


def opened(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved pages. Raises TokiodError for a file that cannot be read, and for invalid options."""
    paths = readable(inputs)
    fields = Fields(**{role: getattr(options, f"{role}_field") for role in Fields.__struct_fields__})
    for fault in field_faults(fields):
        raise TokiodError(f"--{fault.replace('_', '-').replace(':', '-field:', 1)}")
    counters = options.values == "counters"
    names = NameRules(_pattern("hosts", options.hosts), _pattern("devices", options.devices), fields, counters)
    rules = Rules(counters, options.max_rate.bytes, options.max_rate.operations)
    return (SavedCounters if counters else SavedPages)(paths, options, names, rules, site.read)


def _pattern(option: str, text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise TokiodError(f"--{option}: {text!r} is not a regular expression: {error}") from None


class SavedPages:
    """The collector of saved pages. The first call reads all of them into the spool, which every window is taken from."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, paths: Sequence[Path], options: Saved, names: NameRules, rules: Rules, read: Callable[[int], None]) -> None:
        self.step = options.step
        self._paths = paths
        self._on_read = read
        self._rules = rules
        self._series = names.series()
        self._parsing = Parsing(names, self._series, options.parse_workers)
        self._parsing.start(paths)
        self._pages = Loading(self._load)
        self._dropped = Dropped()
        self._stopping = threading.Event()

    async def collect(self, window: Window) -> WindowData:
        """Return a batch per dataset. Dropped documents are counted with the first window. Raises Fatal for a broken file."""
        spool = await self._pages.loaded()
        dropped, self._dropped = self._dropped, Dropped()
        parts = [self._cells(part, spool, dropped) for part in _parts(window, self.step)]
        return WindowData(list(_joined(parts)), None, dropped.counts, why=dropped.why)

    async def count(self, window: Window) -> int | None:  # noqa: ARG002 - the contract's
        """Return None: files do not grow, so there is nothing to compare."""
        return None

    async def spans(self) -> list[Window]:
        """Return the spans with samples, in buckets of the spool."""
        return (await self._pages.loaded()).spans()

    async def close(self) -> None:
        """Stop reading, and delete the samples."""
        self._stopping.set()
        if (spool := await self._pages.close()) is not None:
            spool.close()
        self._parsing.close()

    def _load(self) -> Spool:
        return spooled(Spool(), self._fill)

    def _fill(self, spool: Spool) -> None:
        with closing(self._parsing):
            for path in self._paths:
                self._read(path, spool)

    def _read(self, path: Path, spool: Spool) -> None:
        for samples in self._parsing.parsed(path, self._on_read):
            if self._stopping.is_set():
                raise Fatal("stopped while reading saved pages")
            spool.add(samples.time, samples.series, samples.value)
            self._dropped.take(samples.dropped)

    def _cells(self, window: Window, spool: Spool, dropped: Dropped) -> list[Batch]:
        samples = [Samples(*columns, 0, Dropped()) for columns in spool.within(window)]
        cells = batches(samples, window, self.step, self._series, self._rules)
        dropped.take(cells.dropped)
        return cells.batches


class SavedCounters(SavedPages):
    """Saved pages whose disks have counters."""

    needs_sample_at_end: ClassVar[bool] = True


def _parts(window: Window, step: int) -> Iterator[Window]:
    """Split a window at its rows into parts of about a bucket, whose cells take a small multiple of a bucket's memory."""
    length = max(1, BUCKET_MILLISECONDS // 1000 // step) * step
    for start in range(window.start, window.end, length):
        yield Window(start, min(start + length, window.end))


def _joined(parts: list[list[Batch]]) -> Iterator[Batch]:
    """Concatenate the parts of each dataset; columns only grow from part to part."""
    for of_dataset in zip(*parts, strict=True):
        last = of_dataset[-1]
        time, column, value = (np.concatenate([getattr(batch, name) for batch in of_dataset]) for name in ("time", "column", "value"))
        yield Batch(last.dataset, last.form, last.step, last.columns, time, column, value)


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
        """Return the spans with samples, in whole buckets."""
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
