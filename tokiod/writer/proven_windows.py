"""What the cells of an archive prove to be stored: a pure function of the configuration and the files, for a ledger that was lost.

Of a source that can be asked again, a window is proved when each of its steps holds a number in every dataset of the source that the
day's file has; in a sealed file, in the narrowest dataset of every group, and its hour in the others. What a source leaves empty is
thereby not proved, and asked for again: that costs questions, never cells. Of a source without a past, any number in a window proves
it, for nobody can ask.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog

from tokiod.ranges import Ranges
from tokiod.tts.layout import column_names, form_of, is_counter, open_for_reading
from tokiod.tts.schema import ABSENT, group_of, missing
from tokiod.tts.sealed.chunks import pack
from tokiod.window import Calendar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.collector import SourceConfig
    from tokiod.config.load import Config
    from tokiod.window import Day

    Rows = NDArray[np.bool_]

log = structlog.get_logger()

SECONDS = 4 * 3600
"""Of a dataset in memory at once: four rows of a sealed file's chunks."""
FIRST, NEXT = 32, 256
"""Columns that are looked at first, a chunk of a sealed file, which mostly prove all; and then at once."""


@dataclass(slots=True)
class Proof:
    """What was found: the stored seconds by source, whole windows; how many files were read, and how many windows proved."""

    stored: dict[str, Ranges] = field(default_factory=dict)
    files: int = 0
    windows: int = 0


def proof(config: Config, now: float, sources: Sequence[SourceConfig] | None = None, since: float | None = None) -> Proof:
    """Read the files of the days from `since` to `now`, epoch seconds; of all polled sources as far as any retention reaches by default.

    A file that can't be read, or that tokiod did not make, proves nothing, and none proves a window that has not begun.
    """
    if sources is None:
        sources = [source for source in config.source if source.polled]
    if since is None:
        since = now - max((int(source.retention) for source in sources), default=0)
    found = Proof({source.name: Ranges() for source in sources})
    for day in _days(Calendar(config.timezone), now, since):
        for system in dict.fromkeys(source.system for source in sources):
            _look_at(config.archive.file(day, system), day, [source for source in sources if source.system == system], found, now)
    return found


def _days(calendar: Calendar, now: float, since: float) -> Iterator[Day]:
    """Yield the days that end behind `since`, the newest, which may be tomorrow, first."""
    day = calendar.day(calendar.day(int(now)).end)
    while day.end > since:
        yield day
        day = calendar.day(day.start - 1)


def _look_at(path: Path, day: Day, sources: list[SourceConfig], found: Proof, now: float) -> None:
    try:
        with open_for_reading(path) as file:
            if form_of(file) == "foreign" or (int(file.attrs["start"]), int(file.attrs["end"])) != (day.start, day.end):
                return
            windows = [(source, list(_windows(file, source, day, now))) for source in sources]
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:  # whatever HDF5 makes of a file that is broken
        log.warning("ledger.file_skipped", path=str(path), error=str(error))
        return
    found.files += 1
    for source, spans in windows:
        for start, end in spans:
            found.windows += -(-(end - start) // source.window)
            found.stored[source.name].add(start, end)


def _windows(file: Any, source: SourceConfig, day: Day, now: float) -> Iterator[tuple[int, int]]:
    """Yield the spans of a day, in epoch seconds, whose windows are all proved."""
    rows = _rows(file, source, day)
    if rows is None:
        return
    starts = np.arange(day.start, day.end, int(source.window))
    whole = np.logical_and if source.replayable else np.logical_or
    # What stands there for the future was not measured: it would keep a source from being asked until then.
    proved = whole.reduceat(rows, (starts - day.start) // source.step) & (starts < now)
    turns = np.flatnonzero(np.diff(np.concatenate([[False], proved, [False]])))
    edges = np.append(starts, day.end)[turns].tolist()
    yield from zip(edges[::2], edges[1::2], strict=True)


def _rows(file: Any, source: SourceConfig, day: Day) -> Rows | None:
    """Return bool[rows], which steps of a day hold what proves them; None where the file has nothing of the source in its steps."""
    names = [name for name in source.datasets() if name in file and column_names(file[name])]
    stamps = np.arange(day.start, day.end, source.step)
    if not names or not all(np.array_equal(file[f"{group_of(name)}/timestamps"][...], stamps) for name in names):
        return None
    # Narrow ones first: what they don't prove needs no look at the wide ones, and the other way about.
    nodes = sorted((file[name] for name in names), key=lambda node: (node.shape[1], node.name))
    tall = max(1, SECONDS // source.step)
    if not source.replayable:
        every = np.ones(len(stamps), bool)
        any_of: Rows = np.logical_or.reduce([_sampled(file, node, _filled(node, every, tall)) for node in nodes])
        return any_of
    return _everywhere(file, nodes, len(stamps), tall)


# To unpack every dataset of ninety sealed days takes minutes. A window that was cut short by a kill is collected again long before its
# day is sealed, so there one dataset tells of each step, and of the others it is enough that they were collected at all.
def _everywhere(file: Any, nodes: list[Any], rows: int, tall: int) -> Rows:
    """Return bool[rows], which steps were sampled in all of the datasets, the narrowest first."""
    proved, groups = np.ones(rows, bool), set()
    for node in nodes:
        if form_of(file) == "sealed" and node.parent.name in groups:
            proved &= _packed(node, rows)
            continue
        groups.add(node.parent.name)
        around: Rows = proved | np.append(proved[1:], False)
        proved &= _sampled(file, node, _filled(node, around, tall))
    return proved


def _packed(node: Any, rows: int) -> Rows:
    """Return bool[rows], which steps of a sealed dataset lie in chunks that are larger than chunks of nothing are."""
    (height, width), filled = node.chunks, np.zeros(rows, bool)
    for top in range(0, rows, height):
        sizes = (node.id.get_chunk_info_by_coord((top, left)).size for left in range(0, node.shape[1], width))
        filled[top : top + height] = any(size > _empty(height, width) for size in sizes)
    return filled


@cache
def _empty(height: int, width: int) -> float:
    """Return more bytes than a chunk of nothing takes, by whichever zlib."""
    return 1.5 * len(pack(np.full((height, width), ABSENT)))


def _sampled(file: Any, node: Any, filled: Rows) -> Rows:
    """Return bool[rows], which steps were sampled themselves.

    A difference stands in the step before its later sample: the number in the last step of a gap comes from behind the gap. So a
    step of a counter was sampled where the step before it holds a number.
    """
    if not is_counter(file, node.name.lstrip("/")):
        return filled
    before: Rows = np.concatenate([filled[:1], filled[:-1]])
    return filled & before


def _filled(node: Any, wanted: Rows, tall: int) -> Rows:
    """Return bool[rows], which of the wanted rows hold a number; no more columns are read than it takes to know."""
    filled = np.zeros(len(wanted), bool)
    for top in range(0, len(wanted), tall):
        some = slice(top, top + tall)
        left, width = 0, FIRST
        while left < node.shape[1] and (wanted[some] & ~filled[some]).any():
            filled[some] |= (~missing(node[some, left : left + width])).any(axis=1)
            left, width = left + width, NEXT
    return filled
