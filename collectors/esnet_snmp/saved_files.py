"""Saved rates: {router: {interface: {"in": {epoch: rate}, "out": {epoch: rate}, "units": "bytes/sec"}}}, as pytokio writes them."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from collectors.esnet_snmp.datasets import DATASETS, is_name, service_name
from collectors.esnet_snmp.parse import Points
from collectors.esnet_snmp.to_batches import batches, count
from tokiod.errors import Fatal, TokiodError
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

UNITS = "bytes/sec"
ODD = "interface that is none"
_DIGITS = re.compile(r"[0-9]{1,12}")


def opened(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector over saved rates. Raises TokiodError for a file that can't be read, and options that can't be."""
    for fault in options.faults():
        raise TokiodError(f"--{fault}")
    return SavedRates(readable(inputs), options, site.read)


class SavedRates:
    """The collector of files of rates, all in memory: a day of an interface is 90 KB."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, paths: Sequence[Path], options: Saved, read: Callable[[int], None]) -> None:
        self.step = options.step
        self._paths = paths
        self._options = options
        self._read = read
        self._files = Loading(self._load)

    async def collect(self, window: Window) -> WindowData:
        """Return both directions. What gave no point is counted with the first window. Raises Fatal for a file that is none."""
        loaded = await self._files.loaded()
        dropped, loaded.dropped = loaded.dropped, Counter()
        found = list(batches(loaded.points, loaded.columns, loaded.interval, self.step, window))
        return WindowData(found, count(loaded.points, loaded.interval, self.step, window), dropped)

    async def count(self, window: Window) -> int | None:
        """Return of how many rows of a window points are known."""
        loaded = await self._files.loaded()
        return count(loaded.points, loaded.interval, self.step, window)

    async def spans(self) -> list[Window]:
        """Return where points lie."""
        loaded = await self._files.loaded()
        times = [np.empty(0, np.int64), *(points.time for points in loaded.points.values())]
        return spans_of(np.concatenate(times), max(self.step, loaded.interval))

    async def close(self) -> None:
        """Wait until the files are read, where that has begun."""
        await self._files.close()

    def _load(self) -> _Loaded:
        found: defaultdict[Series, list[Points]] = defaultdict(list)
        dropped: Counter[str] = Counter()
        for path in self._paths:
            data = content(path)
            self._read(path.stat().st_size)
            for (name, direction), points in parse(data, str(path), dropped).items():
                found[name, direction].append(points)
        wanted = {name.partition(":")[0] + ":" + service_name(name.partition(":")[2]): name for name in self._options.interface}
        told = {(wanted.get(name, name), direction): _joined(parts) for (name, direction), parts in found.items()}
        columns = tuple(dict.fromkeys(self._options.interface)) or tuple(sorted({name for name, _ in told}, key=natural_key))
        chosen = {one: points for one, points in told.items() if one[0] in columns}
        for one in chosen.values():
            dropped.update(one.dropped)
        return _Loaded(chosen, columns, self._options.interval or _most_common(chosen.values()) or self.step, dropped)


@dataclass(slots=True)
class _Loaded:
    points: dict[Series, Points]
    columns: tuple[str, ...]
    interval: int
    dropped: Counter[str]


def parse(data: bytes, place: str, dropped: Counter[str]) -> dict[Series, Points]:
    """Return the points of each ("ROUTER:IFNAME", "in" or "out"); what is none is counted. Raises Fatal for what is no such document."""
    try:
        document = _decoded(data)
    except (ValueError, RecursionError) as error:
        raise Fatal(f"{place}: no saved rates, which are JSON: {error}") from None
    if not isinstance(document, dict) or not all(isinstance(interfaces, dict) for interfaces in document.values()):
        raise Fatal(f"{place}: no saved rates: expected {{router: {{interface: {{direction: {{epoch: rate}}}}}}}}")
    found: dict[Series, Points] = {}
    for router, interfaces in document.items():
        for name, directions in interfaces.items():
            # A file that lost lines with braces may say that "in" is a router or an interface, with others in it.
            if not isinstance(directions, dict) or {router, name} & DATASETS.keys() or not is_name(f"{router}:{name}"):
                dropped[ODD] += 1
            elif directions.get("units") not in {None, UNITS}:
                dropped["interface whose rates are in other units"] += 1
            else:
                found |= {(f"{router}:{name}", way): _points(directions[way]) for way in DATASETS if isinstance(directions.get(way), dict)}
    return found


def _points(told: dict[str, Any]) -> Points:
    return Points.of((_epoch(epoch), rate) for epoch, rate in told.items())


def _epoch(text: str) -> int | None:
    return int(text) if _DIGITS.fullmatch(text) else None


# Python's own decoder knows the NaN that Python's own encoder writes.
def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return json.loads(data)


def _joined(parts: list[Points]) -> Points:
    dropped: Counter[str] = Counter()
    for part in parts:
        dropped.update(part.dropped)
    return Points(np.concatenate([part.time for part in parts]), np.concatenate([part.rate for part in parts]), None, dropped)


def _most_common(points: Iterable[Points]) -> int:
    apart = [np.diff(np.unique(one.time)) for one in points]
    lengths, counts = np.unique(np.concatenate([np.empty(0, np.int64), *apart]), return_counts=True)
    return int(lengths[np.argmax(counts)]) if len(lengths) else 0
