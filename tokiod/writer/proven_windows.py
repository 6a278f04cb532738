"""Which windows the cells of an archive prove to be stored: a function of the configuration and the files alone, for a lost ledger.

For a replayable source, a window is proven when each of its steps holds a number in every dataset of the source that the day's file has;
in a sealed file, in the narrowest dataset of every group, and its hour in the others. Windows that a source leaves empty are thus not
proven and are queried again: that costs queries, never cells. For a source that is not replayable, any number in a window proves it,
because the source can't be queried again; but a kill, a power loss or a failed write may have torn it. So a window is torn where a column
has no number in steps in which others have one, an hour or three of such steps at most: until it is back, or up to the newest number.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import structlog

from tokiod.jobs.rows import directory_of
from tokiod.jobs.rows import stored_windows as table_windows
from tokiod.ledger.known_files import KnownFile
from tokiod.ranges import Ranges
from tokiod.tts.layout import column_names, form_of, is_counter, open_for_reading
from tokiod.tts.live.files import REAL, sync_content
from tokiod.tts.schema import ABSENT, group_of, missing
from tokiod.tts.sealed.chunks import pack
from tokiod.window import Calendar, Window

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.collector import SourceConfig
    from tokiod.config.schema import Config
    from tokiod.tts.live.files import Files
    from tokiod.window import Day

    Rows = NDArray[np.bool_]
    Spans = list[tuple[int, int]]

log = structlog.get_logger()

TORN_SECONDS, TORN_STEPS = 3600, 3
"""Of steps with numbers, the longer of the two, in which a column may lack them because windows were torn: the component may have been away
just before, too. One that is away for longer was away."""
BLOCK_SECONDS = 4 * 3600
"""How much of a dataset is in memory at once: four rows of a sealed file's chunks."""
NEVER = -(1 << 60)
FIRST_COLUMNS, MORE_COLUMNS = 32, 256
"""Columns that are read first: one chunk of a sealed file, which mostly proves every row; and columns that are read at once after that."""


class Proof(msgspec.Struct):
    """What the files prove: the stored seconds by source, in whole windows; the files that were read, how many windows are proven.

    torn: the seconds, by source, of windows of which the files hold a part.
    """

    stored: dict[str, Ranges] = msgspec.field(default_factory=dict)
    torn: dict[str, Ranges] = msgspec.field(default_factory=dict)
    files: list[KnownFile] = msgspec.field(default_factory=list)
    windows: int = 0


class Columns:
    """Which steps of a source without a past are torn: what its columns hold, day after day, the oldest first."""

    def __init__(self, step: int) -> None:
        self._most = max(TORN_STEPS, TORN_SECONDS // step)
        self._held: list[int] = []
        self._last: dict[tuple[str, str], int] = {}
        self._torn: set[int] = set()

    def add(self, file: Any, nodes: list[Any], stamps: NDArray[np.int64], held: NDArray[np.int64]) -> None:
        """Read a day. stamps: of all steps, epoch seconds; held: the rows in which any column has a number."""
        first, n = len(self._held), len(held)
        self._held += stamps[held].tolist()
        order = np.arange(first, first + n)[:, np.newaxis]
        for node in nodes:
            name = node.name.lstrip("/")
            if is_counter(file, name):
                continue  # its last sample has no difference yet
            columns = column_names(node)
            for left in range(0, len(columns), MORE_COLUMNS):
                keys = [(name, column) for column in columns[left : left + MORE_COLUMNS]]
                present = ~missing(node[:, left : left + len(keys)])[held]
                before = np.array([self._last.get(key, NEVER) for key in keys])
                last = np.maximum.accumulate(np.vstack([before, np.where(present, order, NEVER)]))
                gaps = np.where(present, order - last[:-1] - 1, 0)
                short = np.where(gaps <= self._most, gaps, 0).max(axis=1, initial=0)
                for row in np.flatnonzero(short).tolist():
                    self._torn.update(range(first + row - int(short[row]), first + row))
                self._last |= dict(zip(keys, last[-1].tolist(), strict=True))

    def torn(self) -> list[int]:
        """Return the times of the steps that are torn, epoch seconds."""
        end = len(self._held)
        ending = [last for last in self._last.values() if 0 < end - last - 1 <= self._most]
        return [self._held[i] for i in sorted(self._torn.union(*(range(last + 1, end) for last in set(ending))))]


def proof(config: Config, now: float, files: Files = REAL) -> Proof:
    """Read the files of the days within the longest retention before `now`, epoch seconds, for all polled sources.

    Each is synced first: a killed writer may not have, and a power loss would take what it proves. A file that can't be synced or read,
    or that tokiod did not make, proves nothing; no file proves a window that has not begun.
    """
    sources = [source for source in config.source if source.polled]
    since = now - max((int(source.retention) for source in sources), default=0)
    found = Proof({source.name: Ranges() for source in sources}, {source.name: Ranges() for source in sources})
    calendar, columns = config.calendar, {source.name: Columns(source.step) for source in sources if not source.replayable}
    for day in reversed(list(_days(calendar, now, since))):
        for system in dict.fromkeys(source.system for source in sources):
            file = KnownFile(config.archive.file(day, system), system, Window(day.start, day.end))
            of = [one for one in sources if one.system == system]
            windows = _read_file(file, day, of, columns, now) if _is_synced(file.path, files) else None
            if windows is not None:
                found.files.append(file)
                _note(found, windows)
    for source in sources:
        if source.tables:
            _prove_by_table(config, source, found, now, since)
        torn = columns[source.name].torn() if source.name in columns else ()
        for window in dict.fromkeys(calendar.window(time, int(source.window)) for time in torn):
            if found.stored[source.name].covers(window):
                found.windows -= 1
                found.stored[source.name].remove(window.start, window.end)
                found.torn[source.name].add(window.start, window.end)
    return found


def _prove_by_table(config: Config, source: SourceConfig, found: Proof, now: float, since: float) -> None:
    """Add the windows that the job table holds: it names each of them, so nothing is inferred from its rows.

    Of a source with datasets, those are proven that the files of both hold.
    """
    proven = Ranges()
    for day in _days(config.calendar, now, since):
        for name, start, end in table_windows(directory_of(config.archive.jobs, source.system, day.date)):
            if name == source.name and start < now:
                proven.add(start, end)
    if not source.datasets():
        found.windows += proven.total // source.window
        found.stored[source.name] = proven
        return
    both = Ranges()
    for start, end in found.stored[source.name]:
        for window in proven.within(start, end):
            both.add(window.start, window.end)
    found.windows -= (found.stored[source.name].total - both.total) // source.window
    found.stored[source.name] = both


def _days(calendar: Calendar, now: float, since: float) -> Iterator[Day]:
    """Yield the days that end after `since`, newest first; the newest may be tomorrow."""
    day = calendar.day(calendar.day(int(now)).end)
    while day.end > since:
        yield day
        day = calendar.day(day.start - 1)


def _is_synced(path: Path, files: Files) -> bool:
    try:
        sync_content(path, files)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            log.warning("ledger.file_skipped", path=str(path), error=str(error))
        return False
    return True


def _read_file(
    known: KnownFile, day: Day, sources: list[SourceConfig], columns: dict[str, Columns], now: float
) -> list[tuple[SourceConfig, Spans]] | None:
    """Return what the file of a day proves of each source, None if it is missing or can't be read."""
    try:
        with open_for_reading(known.path) as file:
            if form_of(file) == "foreign" or (int(file.attrs["start"]), int(file.attrs["end"])) != (day.start, day.end):
                return None
            return [(source, _windows(file, source, day, columns.get(source.name), now)) for source in sources]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:  # what h5py raises for broken files
        log.warning("ledger.file_skipped", path=str(known.path), error=str(error))
        return None


def _note(found: Proof, windows: list[tuple[SourceConfig, Spans]]) -> None:
    for source, proven in windows:
        for start, end in proven:
            found.windows += -(-(end - start) // source.window)
            found.stored[source.name].add(start, end)


def _windows(file: Any, source: SourceConfig, day: Day, columns: Columns | None, now: float) -> Spans:
    """Return the spans of a day whose windows are all proven."""
    filled = _rows(file, source, day, columns)
    if filled is None:
        return []
    starts = np.arange(day.start, day.end, int(source.window))
    whole = np.logical_and if source.replayable else np.logical_or
    # A number in the future was not measured: the source would not be queried until then, and the cells would stay wrong. By a clock that
    # is behind, windows of a source without a past are lost so; their cells stay.
    held = whole.reduceat(filled, (starts - day.start) // source.step) & (starts < now)
    # The edges of runs of windows that follow each other.
    turns = np.flatnonzero(np.diff(np.concatenate([[False], held, [False]])))
    edges = np.append(starts, day.end)[turns].tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _rows(file: Any, source: SourceConfig, day: Day, columns: Columns | None) -> Rows | None:
    """Return bool[rows], which steps of a day are proven; None if the file holds no dataset of the source with its step.

    columns: of a source without a past; receives the day.
    """
    names = [name for name in source.datasets() if name in file and column_names(file[name])]
    stamps = np.arange(day.start, day.end, source.step)
    if not names or not all(np.array_equal(file[f"{group_of(name)}/timestamps"][...], stamps) for name in names):
        return None
    # Narrow datasets first: a row that they do not prove needs no read of the wide ones, and vice versa.
    nodes = sorted((file[name] for name in names), key=lambda node: (node.shape[1], node.name))
    height = max(1, BLOCK_SECONDS // source.step)
    if columns is not None:
        every = np.ones(len(stamps), bool)
        any_of: Rows = np.logical_or.reduce([_sampled(file, node, _filled(node, every, height)) for node in nodes])
        columns.add(file, nodes, stamps, np.flatnonzero(any_of))
        return any_of
    return _sampled_in_all(file, nodes, len(stamps), height)


# Unpacking every dataset of ninety sealed days takes minutes. A window that a kill cut short is collected again long before its day is
# sealed, so there one dataset proves each step, and for the others it is enough that they were collected at all.
def _sampled_in_all(file: Any, nodes: list[Any], rows: int, height: int) -> Rows:
    """Return bool[rows], which steps were sampled in all of the datasets, the narrowest first."""
    proven, groups = np.ones(rows, bool), set()
    for node in nodes:
        if form_of(file) == "sealed" and node.parent.name in groups:
            proven &= _has_data(node, rows)
            continue
        groups.add(node.parent.name)
        around: Rows = proven | np.append(proven[1:], False)
        proven &= _sampled(file, node, _filled(node, around, height))
    return proven


def _has_data(node: Any, rows: int) -> Rows:
    """Return bool[rows], which steps of a sealed dataset lie in chunks that are larger than empty chunks."""
    (height, width), filled = node.chunks, np.zeros(rows, bool)
    for top in range(0, rows, height):
        sizes = (node.id.get_chunk_info_by_coord((top, left)).size for left in range(0, node.shape[1], width))
        filled[top : top + height] = any(size > _max_empty_bytes(height, width) for size in sizes)
    return filled


@cache
def _max_empty_bytes(height: int, width: int) -> float:
    """Return more bytes than an empty chunk takes with any zlib."""
    return 1.5 * len(pack(np.full((height, width), ABSENT)))


def _sampled(file: Any, node: Any, filled: Rows) -> Rows:
    """Return bool[rows], which steps were sampled.

    A difference is stored in the step before its later sample: the number in the last step of a gap comes from the sample after the gap.
    So a step of a counter was sampled if the step before it holds a number.
    """
    if not is_counter(file, node.name.lstrip("/")):
        return filled
    before: Rows = np.concatenate([filled[:1], filled[:-1]])
    return filled & before


def _filled(node: Any, wanted: Rows, height: int) -> Rows:
    """Return bool[rows], which of the wanted rows hold a number; reads no more columns than that takes."""
    filled = np.zeros(len(wanted), bool)
    for top in range(0, len(wanted), height):
        some = slice(top, top + height)
        left, width = 0, FIRST_COLUMNS
        while left < node.shape[1] and (wanted[some] & ~filled[some]).any():
            filled[some] |= (~missing(node[some, left : left + width])).any(axis=1)
            left, width = left + width, MORE_COLUMNS
    return filled
