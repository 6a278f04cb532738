"""Saved pages of hits, as pytokio's --output writes them, read as one index."""

from __future__ import annotations

import re
import threading
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from collectors.collectd_es.datasets import Fields
from collectors.collectd_es.datasets import faults as field_faults
from collectors.collectd_es.parse import Samples
from collectors.collectd_es.parse_workers import NameRules, parsed
from collectors.collectd_es.series import Series
from collectors.collectd_es.spool import BUCKET_MILLISECONDS, Spool
from collectors.collectd_es.to_batches import batches
from tokiod.batch import Batch
from tokiod.errors import Fatal, TokiodError
from tokiod.toolkit.saved_files import Loading, readable, spooled
from tokiod.window import Window
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from collectors.collectd_es.config import Saved
    from tokiod.collector import SavedCollector, Site


def opened(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved pages. Raises TokiodError for a file that can't be read, and options that can't be."""
    paths = readable(inputs)
    fields = Fields(**{role: getattr(options, f"{role}_field") for role in Fields.__struct_fields__})
    for fault in field_faults(fields):
        raise TokiodError(f"--{fault.replace('_', '-').replace(':', '-field:', 1)}")
    rules = NameRules(_pattern("hosts", options.hosts), _pattern("devices", options.devices), fields)
    return SavedPages(paths, options.step, rules, options.parse_workers, site.read)


def _pattern(option: str, text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise TokiodError(f"--{option}: {text!r} is no regular expression: {error}") from None


class SavedPages:
    """The collector of saved pages: they are read once, when the first window is asked for, and from then on a window is its samples."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, paths: Sequence[Path], step: int, rules: NameRules, workers: int, read: Callable[[int], None]) -> None:
        self.step = step
        self._paths = paths
        self._rules = rules
        self._workers = workers
        self._told = read
        self._series = Series(rules.hosts, rules.devices)
        self._pages = Loading(self._load)
        self._dropped: Counter[str] = Counter()
        self._stopping = threading.Event()

    async def collect(self, window: Window) -> WindowData:
        """Return a batch per dataset. What gave no sample is counted with the first window. Raises Fatal for a file that is broken."""
        spool = await self._pages.loaded()
        dropped, self._dropped = self._dropped, Counter()
        parts = [self._cells(part, spool, dropped) for part in _parts(window, self.step)]
        return WindowData(list(_joined(parts)), None, dropped)

    async def count(self, window: Window) -> int | None:  # noqa: ARG002 - the contract's
        """Return None: files don't grow, so there is nothing to compare."""
        return None

    async def spans(self) -> list[Window]:
        """Return where there are samples, to within a bucket of the spool."""
        return (await self._pages.loaded()).spans()

    async def close(self) -> None:
        """Stop reading, and let go of the samples."""
        self._stopping.set()
        if (spool := await self._pages.close()) is not None:
            spool.close()

    def _load(self) -> Spool:
        return spooled(Spool(), self._fill)

    def _fill(self, spool: Spool) -> None:
        for path in self._paths:
            self._read(path, spool)

    def _read(self, path: Path, spool: Spool) -> None:
        for samples in parsed(path, self._rules, self._series, self._workers, self._told):
            if self._stopping.is_set():
                raise Fatal("stopped while reading saved pages")
            spool.add(samples.time, samples.series, samples.value)
            self._dropped.update(samples.dropped)

    def _cells(self, window: Window, spool: Spool, dropped: Counter[str]) -> list[Batch]:
        samples = [Samples(*columns, 0, Counter()) for columns in spool.within(window)]
        cellular = batches(samples, window, self.step, self._series)
        dropped.update(cellular.dropped)
        return cellular.batches


def _parts(window: Window, step: int) -> Iterator[Window]:
    """Cut a window at its rows into parts of about a bucket, whose cells take a small multiple of a bucket's memory."""
    length = max(1, BUCKET_MILLISECONDS // 1000 // step) * step
    for start in range(window.start, window.end, length):
        yield Window(start, min(start + length, window.end))


def _joined(parts: list[list[Batch]]) -> Iterator[Batch]:
    """Put the parts of each dataset behind one another; columns only grow from part to part."""
    for of_dataset in zip(*parts, strict=True):
        last = of_dataset[-1]
        time, column, value = (np.concatenate([getattr(batch, name) for batch in of_dataset]) for name in ("time", "column", "value"))
        yield Batch(last.dataset, last.form, last.step, last.columns, time, column, value)
