"""Saved outputs of lfs df and lctl dl -t: plain ones, and files of many, each after a line `BEGIN <epoch seconds>`."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np

from collectors.lustre import parse_df, parse_dl
from collectors.lustre.datasets import INODES, Cells, failover, fullness
from collectors.lustre.homes import Homes
from collectors.lustre.to_batches import Columns, batches
from tokiod.errors import Fatal, TokiodError
from tokiod.sample_spans import spans_of
from tokiod.toolkit.saved_files import Loading, content, readable
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from collectors.lustre.config import Saved
    from tokiod.collector import SavedCollector, Site
    from tokiod.window import Window

T = TypeVar("T")

# The lookahead finds the end of the line first: without it, each BEGIN of a line without an end scans the rest of the file.
_BEGIN = re.compile(rb"^(?=[^\n]*+\n)[^\n]*BEGIN(?P<rest>[^\n]*+)\n", re.MULTILINE)
_NOT_BLANK = re.compile(rb"\S[^\n]*")
_EPOCH = re.compile(rb"[ \t]+(\d{1,12})(?:[ \t][ -~]*)?\r?")
UNRECOGNISED = "unrecognised line"
MAX_EPOCH = 253_000_000_000


def opened(inputs: Sequence[str | Path], options: Saved, _site: Site) -> SavedCollector:
    """Return the collector of saved outputs. Raises TokiodError for a file that cannot be read, and for invalid options."""
    for fault in options.faults():
        raise TokiodError(f"--{fault}")
    return SavedOutputs(readable(inputs), options)


class SavedOutputs:
    """The collector of saved outputs. They are few and small: the first call reads all, and homes are learned from all of them."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, paths: Sequence[Path], options: Saved) -> None:
        self.step = options.step
        self._paths = paths
        self._options = options
        self._columns = Columns()
        self._files = Loading(self._load)

    async def collect(self, window: Window) -> WindowData:
        """Return a batch per dataset. Raises Fatal for a file with neither output."""
        moments = _within(await self._files.loaded(), window)
        cells = _rows(moments, window, self.step)
        found = list(batches(cells, self.step, self._columns, sorted(self._options.datasets())))
        dropped = sum((moment.dropped for _, moment in moments), Counter[str]())
        return WindowData(found, sum(moment.records for _, moment in moments), dropped)

    async def count(self, window: Window) -> int | None:
        """Return how many targets and devices were seen in a window."""
        return sum(moment.records for _, moment in _within(await self._files.loaded(), window))

    async def spans(self) -> list[Window]:
        """Return the spans with outputs."""
        return spans_of(np.array([time for time, _ in await self._files.loaded()], np.int64), 1)

    async def close(self) -> None:
        """Wait until a read that has begun ends."""
        await self._files.close()

    def _load(self) -> list[tuple[int, _Moment]]:
        """Read all outputs, oldest first, with their times."""
        outputs = sorted((one for path in self._paths for one in _outputs(path, self._options.time)), key=lambda one: one[0])
        homes = Homes(dict(one.split("=", 1) for one in self._options.home))
        moments: list[tuple[int, _Moment]] = []
        served = []
        for time, text in outputs:
            moments.append((time, moment := _Moment()))
            listing, devices = parse_df.parse(text), parse_dl.parse(text)
            seen, targets, inodes = self._wanted(devices.served), self._wanted(listing.targets), self._wanted(listing.inodes)
            served.append((moment, seen))
            homes.learn(seen)
            records = len(seen) + len(targets) + len(inodes)
            moment.take(records, _dropped(text, listing.dropped, devices.dropped), fullness(targets) | fullness(inodes, INODES))
        for moment, seen in served:
            moment.take(0, Counter(), failover(homes.away(seen), seen, moment.dropped))
        seen_cells: Cells = {}
        for _, moment in moments:
            for dataset, values in moment.cells.items():
                seen_cells.setdefault(dataset, {}).update(values)
        self._columns.add(seen_cells)
        return moments

    def _wanted(self, targets: Mapping[str, T]) -> dict[str, T]:
        chosen = self._options.filesystem
        return {name: value for name, value in targets.items() if not chosen or name[:-8] in chosen}


def _within(moments: list[tuple[int, _Moment]], window: Window) -> list[tuple[int, _Moment]]:
    first, last = (bisect_left(moments, edge, key=lambda one: one[0]) for edge in (window.start, window.end))
    return moments[first:last]


def _rows(moments: list[tuple[int, _Moment]], window: Window, step: int) -> list[tuple[int, Cells]]:
    """Return the cells of each row, counted from the window's start; of outputs in one row the last in time counts."""
    rows: dict[int, Cells] = defaultdict(dict)
    for time, moment in moments:
        row = rows[window.start + (time - window.start) // step * step]
        for dataset, values in moment.cells.items():
            row.setdefault(dataset, {}).update(values)
    return list(rows.items())


class _Moment:
    """What one output showed."""

    def __init__(self) -> None:
        self.records = 0
        self.dropped: Counter[str] = Counter()
        self.cells: Cells = {}

    def take(self, records: int, dropped: Counter[str], cells: Cells) -> None:
        self.records += records
        self.dropped.update(dropped)
        for dataset, values in cells.items():
            self.cells.setdefault(dataset, {}).update(values)


def _dropped(text: bytes, of_df: Counter[str], of_dl: Counter[str]) -> Counter[str]:
    """Return the dropped lines of a text that may contain both outputs: a line is unrecognised if both parsers do not recognise it."""
    lines = sum(1 for _ in _NOT_BLANK.finditer(text))
    unrecognised = of_df.pop(parse_df.UNRECOGNISED, 0) + of_dl.pop(parse_dl.UNRECOGNISED, 0) - lines
    return +(of_df + of_dl + Counter({UNRECOGNISED: unrecognised}))


def _outputs(path: Path, given: int | None) -> Iterator[tuple[int, bytes]]:
    """Yield each output in a file with its time, epoch seconds. Raises Fatal for a file with neither output."""
    try:
        text, time = content(path), int(path.stat().st_mtime) if given is None else given
    except OSError as error:
        raise Fatal(f"{path} cannot be read: {error.strerror}") from None
    begins = list(_BEGIN.finditer(text))
    ends = [*(begin.start() for begin in begins[1:]), len(text)]
    parts = [(_epoch(begin), text[begin.end() : end]) for begin, end in zip(begins, ends, strict=True)] if begins else [(time, text)]
    if not any(parse_df.is_df(part) or parse_dl.is_dl(part) for _, part in parts):
        raise Fatal(f"{path} is not an output of lfs df or lctl dl -t, nor a file of such outputs after BEGIN lines")
    yield from ((time, part) for time, part in parts if time < MAX_EPOCH)


def _epoch(begin: re.Match[bytes]) -> int:
    """Return the time of a BEGIN line, MAX_EPOCH for a malformed one, so that the output after it is skipped."""
    given = _EPOCH.fullmatch(begin["rest"])
    return int(given[1]) if given and begin[0].startswith(b"BEGIN") else MAX_EPOCH
