"""Saved rates: {router: {interface: {"in": {epoch: rate}, "out": {epoch: rate}, "units": "bytes/sec"}}}, as pytokio writes them."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
import numpy as np

from collectors.esnet_snmp.rows import latest, rows
from tokiod.collector import SavedOptions
from tokiod.errors import TokiodError
from tokiod.sample import Batch
from tokiod.spans import spans_of
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from numpy.typing import NDArray

    from tokiod.collector import Site, Tally
    from tokiod.window import Window

    Series = tuple[NDArray[np.int64], NDArray[np.float64]]

DATASETS = {"in": "datatargets/readrates", "out": "datatargets/writerates"}
"""Seen from ESnet's router: what comes in was read at the site."""

LARGEST = 1 << 30
"""Bytes of a file, unpacked."""
LAST = 250_000_000_000

_INTERFACE = re.compile(r"[^:\s]+:\S(.*\S)?")
_Document = dict[str, dict[str, dict[str, dict[str, float | str | None] | str | None]]]


class Saved(SavedOptions, kw_only=True, frozen=True):
    """Which interfaces, and how far apart points and rows are."""

    interface: Annotated[tuple[str, ...], msgspec.Meta(description="ROUTER:IFNAME; all that are in the files where none is named")] = ()
    timestep: Annotated[Duration, msgspec.Meta(description="between rows of the archive")] = Duration(30)
    interval: Annotated[Duration | None, msgspec.Meta(description="between points; the most common one by default")] = None

    @property
    def step(self) -> int:
        """Seconds between rows."""
        return int(self.timestep)

    def datasets(self) -> frozenset[str]:
        """Return both directions."""
        return frozenset(DATASETS.values())

    def faults(self) -> list[str]:
        """Return what is wrong with names and lengths."""
        lengths = {"timestep": self.timestep, "interval": self.interval}
        named = [f"interface: {name!r} is not ROUTER:IFNAME" for name in self.interface if not _INTERFACE.fullmatch(name)]
        return named + [f"{name}: must be longer than nothing" for name, length in lengths.items() if length is not None and length <= 0]


class SavedRates:
    """Files of rates, all in memory: a day of an interface is 90 KB."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, series: dict[tuple[str, str], Series], options: Saved, interval: int) -> None:
        self.step = options.step
        self.series = series
        self.columns = tuple(dict.fromkeys(options.interface)) or tuple(sorted({name for name, _ in series}, key=_natural))
        self.interval = interval

    async def collect(self, window: Window, tally: Tally) -> AsyncIterator[Batch]:
        """Yield both directions."""
        tally.records = await self.count(window)
        for direction, dataset in DATASETS.items():
            found = [self._rows(name, direction, window, tally) for name in self.columns]
            column = np.repeat(np.arange(len(found), dtype=np.uint32), [len(time) for time, _ in found])
            time, rate = (np.concatenate(part) if part else np.zeros(0) for part in (zip(*found, strict=True) if found else ((), ())))
            order = np.lexsort((column, time))
            yield Batch(dataset, "gauge", self.step, self.columns, time[order].astype(np.int64), column[order], rate[order])

    def _rows(self, name: str, direction: str, window: Window, tally: Tally) -> Series:
        time, rate = self.series.get((name, direction), (np.zeros(0, np.int64), np.zeros(0)))
        within = (time >= window.start) & (time < window.end)
        for reason, wrong in (("negative rate", (rate < 0) & np.isfinite(rate)), ("infinite rate", np.isinf(rate))):
            if counted := int(np.count_nonzero(wrong & within)):
                tally.dropped[reason] += counted
        good = np.isfinite(rate) & (rate >= 0)
        return rows(time[good], rate[good], self.interval, self.step, window)

    async def count(self, window: Window) -> int | None:
        """Return how many points that are not null lie in a window."""
        wanted = [time for (name, _), (time, _rate) in self.series.items() if name in self.columns]
        return sum(int(np.count_nonzero((time >= window.start) & (time < window.end))) for time in wanted)

    async def spans(self) -> list[Window]:
        """Return where points lie."""
        times = [time for (name, _), (time, _rate) in self.series.items() if name in self.columns]
        return spans_of(np.concatenate(times), max(self.step, self.interval)) if times else []

    async def close(self) -> None:
        """Nothing is open."""


def saved(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedRates:
    """Return the collector over saved rates. Raises TokiodError for a file that is missing or holds no such thing."""
    found: defaultdict[tuple[str, str], list[Series]] = defaultdict(list)
    for path in map(Path, inputs):
        data = _read(path)
        site.read(len(data))
        for key, points in parse(data, str(path)).items():
            found[key].append(points)
    joined = {key: latest(*(np.concatenate(part) for part in zip(*parts, strict=True))) for key, parts in found.items()}
    interval = options.interval or _most_common([np.unique(time) for parts in found.values() for time, _ in parts]) or options.step
    return SavedRates(joined, options, int(interval))


def parse(data: bytes, place: str) -> dict[tuple[str, str], Series]:
    """Return the points i8[n], f8[n] (NaN for null) of each ("ROUTER:IFNAME", "in" or "out"); raises TokiodError for anything else."""
    try:
        document = msgspec.convert(_decoded(data), _Document)
        return {
            (f"{router}:{name}", direction): _series(points)
            for router, interfaces in document.items()
            for name, directions in interfaces.items()
            for direction, points in directions.items()
            if direction in DATASETS and isinstance(points, dict) and _bytes_a_second(directions)
        }
    except (ValueError, OverflowError, RecursionError) as error:
        raise TokiodError(f"{place}: no saved rates, {{router: {{interface: {{direction: {{epoch: rate}}}}}}}}: {error}") from None


# Python's own decoder knows the NaN that Python's own encoder writes.
def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return json.loads(data)


def _bytes_a_second(directions: dict[str, Any]) -> bool:
    if directions.get("units") not in {None, "bytes/sec"}:
        raise ValueError(f"rates in {directions['units']!r}, expected bytes/sec")
    return True


def _series(points: dict[str, float | str | None]) -> Series:
    time = np.array([int(float(epoch)) for epoch in points], np.int64)
    if np.any((time < 0) | (time >= LAST)):
        raise ValueError("a time that no calendar has")
    return time, np.array(list(points.values()), np.float64)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TokiodError(f"{path}: can't be read: {error}") from None
    if len(data) > LARGEST:
        raise TokiodError(f"{path}: more than {LARGEST >> 20} MiB of saved rates; save them in smaller pieces")
    return data


# Nulls have their places too: without them points would seem to be further apart.
def _most_common(times: list[NDArray[np.int64]]) -> int:
    lengths, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *map(np.diff, times)]), return_counts=True)
    return int(lengths[np.argmax(counts)]) if len(lengths) else 0


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
