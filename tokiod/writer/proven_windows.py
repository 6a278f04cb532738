"""Which windows the cells of an archive prove to be stored: a pure function of the configuration and the files, for a lost ledger.

For a replayable source, a window is proven when each of its steps holds a number in every dataset of the source that the day's file has;
in a sealed file, in the narrowest dataset of every group, and its hour in the others. Windows that a source leaves empty are thus not
proven and are queried again: that costs queries, never cells. For a source that is not replayable, any number in a window proves it,
because the source can't be queried again; but a kill or a power loss may have torn what was written last. So a step of the newest hour
that holds numbers must hold one in each column that has one in the last such step before it, which may be one of the day before.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog

from tokiod.jobs.rows import directory_of
from tokiod.jobs.rows import stored_windows as table_windows
from tokiod.ledger.known_files import KnownFile
from tokiod.ranges import Ranges
from tokiod.tts.layout import column_names, form_of, is_counter, open_for_reading
from tokiod.tts.schema import ABSENT, group_of, missing
from tokiod.tts.sealed.chunks import pack
from tokiod.window import Calendar, Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.collector import SourceConfig
    from tokiod.config.load import Config
    from tokiod.window import Day

    Rows = NDArray[np.bool_]
    Spans = list[tuple[int, int]]
    Proven = tuple[SourceConfig, Spans, Spans]

log = structlog.get_logger()

TORN_SECONDS = 3600
"""The newest part of the numbers of a source that is not replayable, of which a part may be missing."""
BLOCK_SECONDS = 4 * 3600
"""How much of a dataset is in memory at once: four rows of a sealed file's chunks."""
LAST_ROWS = 720
"""Of the day before, read at once: one row of a sealed file's chunks."""
FIRST_COLUMNS, MORE_COLUMNS = 32, 256
"""Columns that are read first: one chunk of a sealed file, which mostly proves every row; and columns that are read at once after that."""


@dataclass(slots=True)
class Proof:
    """What the files prove: the stored seconds by source, in whole windows; the files that were read, how many windows are proven.

    torn: the seconds, by source, of windows of which the files hold a part.
    """

    stored: dict[str, Ranges] = field(default_factory=dict)
    torn: dict[str, Ranges] = field(default_factory=dict)
    files: list[KnownFile] = field(default_factory=list)
    windows: int = 0


def proof(config: Config, now: float, sources: Sequence[SourceConfig] | None = None, since: float | None = None) -> Proof:
    """Read the files of the days from `since` to `now`, epoch seconds; by default for all polled sources and the longest retention.

    A file that can't be read, or that tokiod did not make, proves nothing; no file proves a window that has not begun.
    """
    if sources is None:
        sources = [source for source in config.source if source.polled]
    if since is None:
        since = now - max((int(source.retention) for source in sources), default=0)
    found = Proof({source.name: Ranges() for source in sources}, {source.name: Ranges() for source in sources})
    _read_tables(config, [source for source in sources if source.tables], found, now, since)
    for day in _days(Calendar(config.timezone), now, since):
        for system in dict.fromkeys(source.system for source in sources):
            file = KnownFile(config.archive.file(day, system), system, Window(day.start, day.end))
            before = config.archive.file(Calendar(config.timezone).day(day.start - 1), system)
            windows = _read_file(file, before, day, [source for source in sources if source.system == system], now)
            if windows is not None:
                found.files.append(file)
                _note(found, windows)
    return found


def _read_tables(config: Config, sources: list[SourceConfig], found: Proof, now: float, since: float) -> None:
    """Add the windows that the job table holds; it names each of them, so nothing is inferred from its rows."""
    systems = {source.name: source.system for source in sources}
    for day in _days(Calendar(config.timezone), now, since) if sources else ():
        for system in dict.fromkeys(systems.values()):
            directory = directory_of(config.archive.jobs, system, day.date)
            for name, start, end in table_windows(directory):
                if systems.get(name) == system and start < now:
                    found.windows += 1
                    found.stored[name].add(start, end)


def _days(calendar: Calendar, now: float, since: float) -> Iterator[Day]:
    """Yield the days that end after `since`, newest first; the newest may be tomorrow."""
    day = calendar.day(calendar.day(int(now)).end)
    while day.end > since:
        yield day
        day = calendar.day(day.start - 1)


def _read_file(known: KnownFile, before: Path, day: Day, sources: list[SourceConfig], now: float) -> list[Proven] | None:
    """Return what the file of a day proves of each source, None if it is missing or can't be read. before: the file of the day before."""
    try:
        with open_for_reading(known.path) as file:
            if form_of(file) == "foreign" or (int(file.attrs["start"]), int(file.attrs["end"])) != (day.start, day.end):
                return None
            return [(source, *_windows(file, before, source, day, now)) for source in sources]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:  # what h5py raises for broken files
        log.warning("ledger.file_skipped", path=str(known.path), error=str(error))
        return None


def _note(found: Proof, windows: list[Proven]) -> None:
    for source, proven, torn in windows:
        for start, end in proven:
            found.windows += -(-(end - start) // source.window)
            found.stored[source.name].add(start, end)
        for start, end in torn:
            found.torn[source.name].add(start, end)


def _windows(file: Any, before: Path, source: SourceConfig, day: Day, now: float) -> tuple[Spans, Spans]:
    """Return the spans of a day whose windows are all proven, and those whose windows are torn. before: the file of the day before."""
    rows = _rows(file, before, source, day)
    if rows is None:
        return [], []
    filled, torn = rows
    starts = np.arange(day.start, day.end, int(source.window))
    firsts = (starts - day.start) // source.step
    whole = np.logical_and if source.replayable else np.logical_or
    # A number in the future was not measured: the source would not be queried until then.
    held = whole.reduceat(filled, firsts) & (starts < now)
    is_torn = held & np.logical_or.reduceat(torn, firsts)
    return _spans(held & ~is_torn, starts, day.end), _spans(is_torn, starts, day.end)


def _spans(chosen: Rows, starts: NDArray[np.int64], end: int) -> Spans:
    """Return the spans of windows that follow each other. starts: of all windows; end: of the last."""
    turns = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]])))
    edges = np.append(starts, end)[turns].tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _rows(file: Any, before: Path, source: SourceConfig, day: Day) -> tuple[Rows, Rows] | None:
    """Return bool[rows], which steps of a day are proven, and which are torn.

    None if the file holds no dataset of the source with its step. before: the file of the day before.
    """
    names = [name for name in source.datasets() if name in file and column_names(file[name])]
    stamps = np.arange(day.start, day.end, source.step)
    if not names or not all(np.array_equal(file[f"{group_of(name)}/timestamps"][...], stamps) for name in names):
        return None
    # Narrow datasets first: a row that they do not prove needs no read of the wide ones, and vice versa.
    nodes = sorted((file[name] for name in names), key=lambda node: (node.shape[1], node.name))
    height = max(1, BLOCK_SECONDS // source.step)
    if not source.replayable:
        every = np.ones(len(stamps), bool)
        any_of: Rows = np.logical_or.reduce([_sampled(file, node, _filled(node, every, height)) for node in nodes])
        return any_of, _torn(file, before, nodes, any_of, max(1, TORN_SECONDS // source.step))
    return _sampled_in_all(file, nodes, len(stamps), height), np.zeros(len(stamps), bool)


def _torn(file: Any, before: Path, nodes: list[Any], filled: Rows, newest: int) -> Rows:
    """Return bool[rows], which of the `newest` steps up to the last one with a number lack some of the columns of the one before them.

    before: the file of the day before; filled: bool[rows], which steps hold a number.
    """
    torn, held = np.zeros(len(filled), bool), np.flatnonzero(filled)
    if not held.size:
        return torn
    doubtful = int(np.searchsorted(held, held[-1] - newest + 1))
    compared = held[max(0, doubtful - 1) :]
    for node in nodes:
        # The last sample of a counter has no difference yet.
        if not is_counter(file, node.name.lstrip("/")):
            present = ~missing(node[compared[0] : compared[-1] + 1])[compared - compared[0]]
            torn[compared[1:]] |= (present[:-1] & ~present[1:]).any(axis=1)
            if not doubtful:
                torn[held[0]] |= bool(_last_columns(before, node.name) - _named(node, present[0]))
    return torn


def _last_columns(path: Path, name: str) -> set[str]:
    """Return the columns of a dataset that hold a number in its last step with one; the empty set for a file that can't be read."""
    with suppress(OSError, ValueError, KeyError, TypeError, RuntimeError), open_for_reading(path) as file:
        node = file[name]
        for bottom in range(node.shape[0], 0, -LAST_ROWS):
            top = max(0, bottom - LAST_ROWS)
            present = ~missing(node[top:bottom])
            if present.any():
                return _named(node, present[np.flatnonzero(present.any(axis=1))[-1]])
    return set()


def _named(node: Any, present: Rows) -> set[str]:
    names = column_names(node)
    return {names[i] for i in np.flatnonzero(present[: len(names)])}


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
