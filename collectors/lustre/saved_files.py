"""Saved outputs of lfs df and lctl dl -t: plain ones, and files of many, each after a line `BEGIN <epoch seconds>`."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np

from collectors.lustre import parse_df, parse_dl
from collectors.lustre.datasets import INODES, Cells, failover, fullness
from collectors.lustre.homes import Homes
from collectors.lustre.to_batches import Columns, batches
from tokiod.dropped import Dropped, escaped, sentence
from tokiod.errors import Fatal, TokiodError
from tokiod.sample_spans import spans_of
from tokiod.toolkit.saved_files import Loading, content, readable
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
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
BAD_BEGIN = "line after a malformed BEGIN, or before the first one"
OTHER_SYSTEM = "target of a file system that --filesystem does not name"
STATES = (*parse_df.STATES, *parse_dl.STATES)
MIN_EPOCH, MAX_EPOCH = 1_000_000_000, 253_000_000_000
"""Of 2001, and 9999: an epoch that was cut has fewer digits."""


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
        dropped = Dropped()
        for _, moment in moments:
            dropped.take(moment.dropped)
        return WindowData(found, sum(moment.records for _, moment in moments), dropped.counts, why=dropped.why)

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
        moments = [one for path in self._paths for one in _moments(path, self._options.time)]
        moments.sort(key=lambda one: one[0])
        homes = Homes(dict(one.split("=", 1) for one in self._options.home))
        for _, moment in moments:
            moment.served = self._wanted(moment.served, moment.dropped)
            moment.targets = self._wanted(moment.targets, moment.dropped)
            moment.inodes = self._wanted(moment.inodes, moment.dropped)
            homes.learn(moment.served)
        seen_cells: Cells = {}
        for _, moment in moments:
            moment.cells = fullness(moment.targets) | fullness(moment.inodes, INODES)
            moment.cells |= failover(homes.away(moment.served), moment.served, moment.dropped)
            for dataset, values in moment.cells.items():
                seen_cells.setdefault(dataset, {}).update(values)
        self._columns.add(seen_cells)
        return moments

    def _wanted(self, targets: Mapping[str, T], dropped: Dropped) -> dict[str, T]:
        chosen = self._options.filesystem
        others = [name for name in targets if chosen and name[:-8] not in chosen]
        dropped.add(OTHER_SYSTEM, len(others), others[0] if others else "")
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


@dataclass(slots=True)
class _Moment:
    """What one output showed. dropped: the rest of it, by reason."""

    served: dict[str, str]
    targets: dict[str, tuple[float, float]]
    inodes: dict[str, tuple[float, float]]
    dropped: Dropped
    cells: Cells = field(default_factory=dict)

    @property
    def records(self) -> int:
        """How many targets and devices were seen."""
        return len(self.served) + len(self.targets) + len(self.inodes)


def _moments(path: Path, given: int | None) -> list[tuple[int, _Moment]]:
    """Return each output in a file with its time, epoch seconds. Raises Fatal for a file in which nothing can be read."""
    try:
        text, time = content(path), int(path.stat().st_mtime) if given is None else given
    except OSError as error:
        raise Fatal(f"{path} cannot be read: {error.strerror}") from None
    parts, lost = _parts(text, time)
    units, is_known, all_dropped = parse_df.units(text), False, Dropped()
    all_dropped.take(lost)
    found = []
    for at, part in parts:
        devices = parse_dl.parse(part)
        listing = parse_df.parse(devices.rest, units, UNRECOGNISED)
        is_known = is_known or listing.headers > 0 or len(devices.rest) < len(part)
        dropped = listing.dropped
        dropped.take(devices.dropped)
        all_dropped.take(dropped)
        found.append((at, _Moment(devices.served, listing.targets, listing.inodes, dropped)))
    if not any(moment.records for _, moment in found) and not all_dropped.counts.keys() & set(STATES):
        raise Fatal(_refusal(path, text, all_dropped, is_known=is_known))
    if found:
        min(found, key=lambda one: one[0])[1].dropped.take(lost)
    return found


def _parts(text: bytes, time: int) -> tuple[list[tuple[int, bytes]], Dropped]:
    """Return the outputs in a text with their times, which BEGIN lines give; and the lines whose time is not known."""
    begins, lost = list(_BEGIN.finditer(text)), Dropped()
    if not begins:
        return [(time, text)], lost
    parts = [(MAX_EPOCH, text[: begins[0].start()])]
    ends = [*(begin.start() for begin in begins[1:]), len(text)]
    parts += [(_epoch(begin), text[begin.end() : end]) for begin, end in zip(begins, ends, strict=True)]
    for line in (line for at, part in parts if at >= MAX_EPOCH for line in _NOT_BLANK.finditer(part)):
        lost.add(BAD_BEGIN, 1, line[0], "write `BEGIN <epoch seconds>`")
    return [(at, part) for at, part in parts if at < MAX_EPOCH], lost


def _refusal(path: Path, text: bytes, dropped: Dropped, *, is_known: bool) -> str:
    """Return why a file gives nothing."""
    if is_known or dropped.counts.keys() - {UNRECOGNISED}:
        return f"{path}: {sentence(dropped.counts, dropped.why, 0) or 'nothing could be read'}"
    first = _NOT_BLANK.search(text)
    beginning = f'it begins with "{escaped(first[0])}"' if first else "it is empty"
    return f"{path} is not an output of lfs df or lctl dl -t, nor a file of such outputs after BEGIN lines: {beginning}"


def _epoch(begin: re.Match[bytes]) -> int:
    """Return the time of a BEGIN line, MAX_EPOCH for a malformed one, so that the output after it is skipped."""
    given = _EPOCH.fullmatch(begin["rest"])
    return int(given[1]) if given and int(given[1]) >= MIN_EPOCH and begin[0].startswith(b"BEGIN") else MAX_EPOCH
