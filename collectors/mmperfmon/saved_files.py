"""Saved outputs of `mmperfmon query`: files, directories and archives of them."""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar

from collectors.mmperfmon.datasets import maps
from collectors.mmperfmon.parse import parse
from collectors.mmperfmon.saved_inputs import outputs
from collectors.mmperfmon.series import Series
from collectors.mmperfmon.spool import Spool
from collectors.mmperfmon.to_batches import Buckets, batches, measured
from tokiod.errors import Fatal, TokiodError
from tokiod.toolkit.saved_files import Loading, readable, spooled
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from collectors.mmperfmon.config import Saved
    from collectors.mmperfmon.datasets import Maps
    from collectors.mmperfmon.parse_legend import Output
    from tokiod.collector import SavedCollector, Site
    from tokiod.window import Window

FEW = 4 << 20
"""Bytes of an input that is not worth a process."""

NO_OUTPUT = "file without a legend"


def opened(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved outputs. Raises TokiodError for a file that can't be read, and options that can't be."""
    try:
        known = maps(options.lun_map, options.server_map)
    except TokiodError as error:
        raise TokiodError(f"--{str(error).replace('_', '-', 1)}") from None
    return SavedOutputs(readable(inputs, directories=True), Buckets(site.calendar.zone, options.step), known, options.cpu_scale, site.read)


class SavedOutputs:
    """The collector of saved outputs: they are read once, when the first window is asked for, and from then on a window is its rows."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, paths: Sequence[Path], buckets: Buckets, known: Maps, cpu_scale: float, told: Callable[[int], None]) -> None:
        self.step = buckets.step
        self._paths = paths
        self._buckets = buckets
        self._cpu_scale = cpu_scale
        self._told = told
        self._series = Series(known)
        self._files = Loading(self._load)
        self._dropped: Counter[str] = Counter()
        self._stopping = threading.Event()

    async def collect(self, window: Window) -> WindowData:
        """Return a batch per dataset. What gave no row is counted with the first window. Raises Fatal for a file that is broken."""
        spool = await self._files.loaded()
        dropped, self._dropped = self._dropped, Counter()
        rows = list(spool.within(window))
        found = list(batches(rows, window, self.step, self._series, self._cpu_scale))
        return WindowData(found, sum(int(part.records.sum()) for part in rows), +dropped)

    async def count(self, window: Window) -> int | None:  # noqa: ARG002 - the contract's
        """Return None: files don't grow, so there is nothing to compare."""
        return None

    async def spans(self) -> list[Window]:
        """Return where there are rows."""
        return (await self._files.loaded()).spans(self.step)

    async def close(self) -> None:
        """Stop reading, and let go of the rows."""
        self._stopping.set()
        if (spool := await self._files.close()) is not None:
            spool.close()

    def _load(self) -> Spool:
        return spooled(Spool(), self._fill)

    def _fill(self, spool: Spool) -> None:
        for path in self._paths:
            self._read(path, spool)

    def _read(self, path: Path, spool: Spool) -> None:
        has_legend = False
        with closing(self._parsed(path)) as parsed:
            for output in parsed:
                has_legend = has_legend or bool(output.legends)
                self._dropped.update(output.dropped if output.legends else {NO_OUTPUT: 1})
                for table in output.tables:
                    spool.add(measured(table, self._buckets, self._series, None, self._dropped))
        if not has_legend:
            raise Fatal(f"{path}: no output of `mmperfmon query`: there is no legend in it")

    def _parsed(self, path: Path) -> Generator[Output]:
        coming = (self._unless_stopped(data) for _, data in outputs(path, self._told))
        if (count := others()) and _size(path) >= FEW:
            from collectors.mmperfmon.parse_workers import parsed  # noqa: PLC0415 - multiprocessing is for large inputs alone

            yield from parsed(path, coming, count)
        else:
            yield from map(parse, coming)

    def _unless_stopped(self, data: bytes) -> bytes:
        if self._stopping.is_set():
            raise Fatal("stopped while reading saved outputs")
        return data


def others() -> int:
    """Return how many processes beside ours are worth while."""
    return min(4, len(os.sched_getaffinity(0))) - 1


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*")) if path.is_dir() else path.stat().st_size
