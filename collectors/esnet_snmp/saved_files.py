"""Saved rates: {router: {interface: {"in": {epoch: rate}, "out": {epoch: rate}, "units": "bytes/sec"}}}, as pytokio writes them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from collectors.esnet_snmp.datasets import service_name
from collectors.esnet_snmp.parse import OTHER_INTERFACE, Points, parse_saved
from collectors.esnet_snmp.to_batches import batches, count
from tokiod.dropped import Dropped
from tokiod.errors import TokiodError
from tokiod.sample_spans import spans_of
from tokiod.toolkit.saved_files import Loading, content, readable
from tokiod.tts.schema import natural_key
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from collectors.esnet_snmp.config import Saved
    from collectors.esnet_snmp.to_batches import Series
    from tokiod.collector import SavedCollector, Site
    from tokiod.window import Window


def opened(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved rates. Raises TokiodError for a file that cannot be read, and for invalid options."""
    for fault in options.faults():
        raise TokiodError(f"--{fault}")
    return SavedRates(readable(inputs), options, site.read)


class SavedRates:
    """The collector of files of rates, all of them in memory: a day of an interface takes 90 KB."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, paths: Sequence[Path], options: Saved, on_read: Callable[[int], None]) -> None:
        self.step = options.step
        self._paths = paths
        self._options = options
        self._on_read = on_read
        self._files = Loading(self._load)

    async def collect(self, window: Window) -> WindowData:
        """Return both directions. Dropped points are counted with the first window. Raises Fatal for a file of another form."""
        loaded = await self._files.loaded()
        dropped, loaded.dropped = loaded.dropped, Dropped()
        points = loaded.within(window)
        found = list(batches(points, loaded.columns, loaded.interval, self.step, window))
        return WindowData(found, count(points, loaded.interval, self.step, window), dropped.counts, why=dropped.why)

    async def count(self, window: Window) -> int | None:
        """Return how many rows of a window have known points."""
        loaded = await self._files.loaded()
        return count(loaded.within(window), loaded.interval, self.step, window)

    async def spans(self) -> list[Window]:
        """Return the spans with points."""
        loaded = await self._files.loaded()
        times = [np.empty(0, np.int64), *(points.time for points in loaded.points.values())]
        return spans_of(np.concatenate(times), max(self.step, loaded.interval))

    async def close(self) -> None:
        """Wait until a read that has begun ends."""
        await self._files.close()

    def _load(self) -> _Loaded:
        # An interface may be written as the service spells it in one file, and as it is configured in another.
        wanted = {name.partition(":")[0] + ":" + service_name(name.partition(":")[2]): name for name in self._options.interface}
        found: defaultdict[Series, list[Points]] = defaultdict(list)
        dropped = Dropped()
        for path in self._paths:
            data = content(path)
            self._on_read(path.stat().st_size)
            for (name, direction), points in parse_saved(data, str(path), dropped).items():
                found[wanted.get(name, name), direction].append(points)
        series = {one: _joined(parts) for one, parts in found.items()}
        columns = tuple(dict.fromkeys(self._options.interface)) or tuple(sorted({name for name, _ in series}, key=natural_key))
        chosen = {one: points for one, points in series.items() if one[0] in columns}
        if not chosen:
            dropped.add(OTHER_INTERFACE, len(series), "".join(name for name, _ in list(series)[:1]), "name it with --interface")
        for one in chosen.values():
            dropped.take(one.dropped)
        return _Loaded(chosen, columns, self._options.interval or _most_common(chosen.values()) or self.step, dropped)


@dataclass(slots=True)
class _Loaded:
    """points: in the order of their times."""

    points: dict[Series, Points]
    columns: tuple[str, ...]
    interval: int
    dropped: Dropped

    def within(self, window: Window) -> dict[Series, Points]:
        """Return the points that cover a part of a window."""
        found = {}
        for one, points in self.points.items():
            first, last = np.searchsorted(points.time, [window.start - self.interval + 1, window.end]).tolist()
            found[one] = Points(points.time[first:last], points.rate[first:last])
        return found


def _joined(parts: list[Points]) -> Points:
    dropped = Dropped()
    for part in parts:
        dropped.take(part.dropped)
    time, rate = np.concatenate([part.time for part in parts]), np.concatenate([part.rate for part in parts])
    order = np.argsort(time, kind="stable")  # of two points of one time the later one counts
    return Points(time[order], rate[order], None, dropped)


def _most_common(points: Iterable[Points]) -> int:
    apart = [np.diff(np.unique(one.time)) for one in points]
    lengths, counts = np.unique(np.concatenate([np.empty(0, np.int64), *apart]), return_counts=True)
    return int(lengths[np.argmax(counts)]) if len(lengths) else 0
