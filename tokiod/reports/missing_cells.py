"""Why cells of a dataset are missing: not collected, or the source had no sample, or its counter fell or rose faster than is plausible.

The ledger knows which time is not stored, and why. For the rest the samples of a counter are compared with its cells: a sample that closes
no cell is the first one, fell, or is implausible. A sealed file keeps each sample that its cells do not determine.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tokiod.ledger.known_sources import known_sources
from tokiod.ledger.ledger import Ledger
from tokiod.ledger.published_copy import readable_ledger
from tokiod.ranges import Ranges
from tokiod.reader.errors import NoSuchDataset, NoSuchSystem
from tokiod.reader.files import Templates
from tokiod.reader.part import Part
from tokiod.reader.span import Span
from tokiod.reports.gaps import Gap, State, clipped, gaps
from tokiod.tts.counters.difference_rule import BASE_ROW, CANDIDATE_ROW, REACH_SECONDS, ZERO_ROW, Differences
from tokiod.tts.layout import OWN, is_counter, own_name, read_spec
from tokiod.tts.schema import ABSENT
from tokiod.tts.sealed.kept_samples import fill_raw
from tokiod.tts.sealed.sealed_counter import SealedCounter
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokiod.collector import SourceConfig
    from tokiod.config.schema import Config
    from tokiod.tts.sealed.restore_raw import RestoredRaw

    Codes = NDArray[np.uint16]

BLOCK_ROWS = 720
PRESENT, NO_SAMPLE, FIRST, FELL, IMPLAUSIBLE, UNKNOWN = range(6)
_REASONS: dict[int, tuple[State, str]] = {
    NO_SAMPLE: ("no sample", "the source had no sample"),
    FIRST: ("first sample", f"the first sample of the counter, or after {REACH_SECONDS // 3600} h without one: a difference needs two"),
    FELL: ("fell", "the counter fell"),
    IMPLAUSIBLE: ("implausible", "the difference is above max_rate"),
    UNKNOWN: ("unknown", "the file has no samples that would show it"),
}
DAY_SECONDS = 86400
_DUE: tuple[State, str] = ("due", "no attempt yet")
_NOT_CONFIGURED: tuple[State, str] = ("not configured", "the source was not configured yet")


def missing_cells(config: Config, system: str, dataset: str, span: Span, now: float) -> list[Gap]:
    """Return the missing cells of a dataset in a span until now, each range of time with its columns, by time.

    A cell belongs to the time of its row. The cell of a counter is closed by the next row's sample: without this sample it is missing.
    Raises NoSuchSystem, NoSuchDataset, NotTts, and TokiodError for a ledger that can't be read.
    """
    source, calendar = _source(config, system, dataset), config.calendar
    span = Span(span.start, max(span.start + 1, min(span.end, int(now))))
    unstored = _Unstored.read(config, source, span, now)
    found: list[Gap] = []
    start = span.start
    for path in Templates(config.templates).paths(system, span, calendar):
        end = min(span.end, calendar.day(start).end)
        try:
            found += _of_file(Part(path), dataset, Span(start, end), unstored, source.name)
        except FileNotFoundError:
            found += unstored.without_file(Span(start, end), source.name, "the file of the day does not exist")
        start = end
    return sorted(_joined(found), key=lambda gap: (gap.start, gap.end, gap.columns))


def _source(config: Config, system: str, dataset: str) -> SourceConfig:
    sources = [source for source in config.source if source.system == system]
    if not sources:
        raise NoSuchSystem(system, {source.system for source in config.source}, [config.archive.path])
    for source in sources:
        if dataset in source.datasets():
            return source
    raise NoSuchDataset(dataset, {name for source in sources for name in source.datasets()}, f"no source of {system} fills")


class _Unstored:
    """The time that is not stored, and why.

    reasons: (state, reason) by number; at(times): the numbers for times, 0 where they are stored.
    """

    def __init__(self, stored: list[tuple[int, int]], found: list[Gap], since: int | None) -> None:
        self.reasons = dict(_REASONS)
        self._before, self._due = self._number(*_NOT_CONFIGURED), self._number(*_DUE)
        self._since = 2**62 if since is None else since
        self._gaps = found
        self._spans = [(start, end, PRESENT) for start, end in stored]
        self._spans += [(gap.start, gap.end, self._number(gap.state, gap.reason or _DUE[1])) for gap in found]

    @classmethod
    def read(cls, config: Config, source: SourceConfig, span: Span, now: float) -> _Unstored:
        """Read it from the ledger. A watched folder has no expected windows, and without a ledger all counts as stored."""
        everything = [(span.start, span.end + DAY_SECONDS)]
        path = readable_ledger(config.archive)
        if path is None or not source.polled:
            return cls(everything, [], 0)
        with Ledger.open_readonly(path) as ledger:
            if (known := known_sources([source], ledger).get(source.name)) is None:
                return cls([], [], None)
            stored = ledger.stored(source.name, Window(*everything[0])).within(*everything[0])
            return cls([(one.start, one.end) for one in stored], gaps([source], ledger, config.calendar, now), known.since)

    def _number(self, state: State, reason: str) -> int:
        for number, known in self.reasons.items():
            if known == (state, reason):
                return number
        number = len(self.reasons) + 1
        self.reasons[number] = (state, reason)
        return number

    def without_file(self, span: Span, source: str, why: str) -> Iterator[Gap]:
        """Yield the gaps of a span whose cells are in no file. why: the reason for what the ledger calls stored."""
        known = clipped(self._gaps, span.start, span.end)
        yield from (Gap(source, one.start, one.end, one.state, one.reason or _DUE[1]) for one in known)
        for rest in Ranges((one.start, one.end) for one in known).holes(span.start, span.end):
            yield Gap(source, rest.start, rest.end, "no file", why)

    def at(self, times: NDArray[np.int64]) -> Codes:
        codes = np.where(times < self._since, self._before, self._due).astype(np.uint16)
        for start, end, number in self._spans:
            codes[(times >= start) & (times < end)] = number
        return codes


def _of_file(part: Part, dataset: str, span: Span, unstored: _Unstored, source: str) -> Iterator[Gap]:
    """Yield the missing cells of one file's rows that begin in a span."""
    with part.opened() as file:
        if not part.has(dataset):
            yield from unstored.without_file(span, source, "the file of the day has no such dataset")
            return
        shape = part.shape(dataset)
        step = shape.step or 1
        first, last = (min(max(0, -(-(time - shape.start) // step)), shape.rows) for time in (span.start, span.end))
        counter = is_counter(file, dataset)
        codes = _counter_codes(part, file, dataset, first, last) if counter else _gauge_codes(part, dataset, first, last)
    times = shape.start + step * np.arange(first, last, dtype=np.int64)
    reasons = unstored.at(times + step if counter else times)
    codes = np.where((codes == NO_SAMPLE) & (reasons != PRESENT)[:, np.newaxis], reasons[:, np.newaxis], codes)
    for (start, end, code), places in _runs(codes).items():
        state, reason = unstored.reasons[code]
        columns = [shape.columns[place] for place in places]
        cells = (end - start) * len(columns)
        begins, ends = (shape.start + (first + row) * step for row in (start, end))
        yield Gap(source, begins, ends, state, reason, columns=columns, cells=cells)


def _gauge_codes(part: Part, dataset: str, first: int, last: int) -> Codes:
    return np.where(np.isnan(part.read(dataset, first, last)), NO_SAMPLE, PRESENT).astype(np.uint16)


def _counter_codes(part: Part, file: Any, dataset: str, first: int, last: int) -> Codes:
    """Return why cells [first, last) of a counter are missing, by its samples, which are followed from the day's first row on."""
    is_missing = np.isnan(part.read(dataset, first, last))
    codes = np.where(is_missing, UNKNOWN, PRESENT).astype(np.uint16)
    if part.form == "foreign":
        return codes
    begin, blocks = _samples(file, dataset, last + 1)
    rule = Differences(begin, 0, read_spec(file).rule(dataset))
    latest = begin[[BASE_ROW, CANDIDATE_ROW, ZERO_ROW]].max(axis=0)
    for start, raw in blocks:
        _, implausible = rule.feed(raw)
        rows = np.arange(start, start + len(raw))[:, np.newaxis]
        sampled = np.maximum.accumulate(np.vstack([latest, np.where(raw == ABSENT, ABSENT, rows)]), axis=0)
        # A sample that is out of reach is not compared with, so the counter may have risen since.
        why = np.where(raw == ABSENT, NO_SAMPLE, np.where(sampled[:-1] >= rows - rule.rule.reach, FELL, FIRST))
        why[implausible[0] - start, implausible[1]] = IMPLAUSIBLE
        latest = sampled[-1]
        # The sample of row r closes cell r - 1.
        low, high = max(start - 1, first), min(start + len(raw) - 1, last)
        if low < high:
            here = slice(low - first, high - first)
            codes[here] = np.where(is_missing[here], why[low + 1 - start : high + 1 - start], PRESENT)
    return codes


def _samples(file: Any, dataset: str, rows: int) -> tuple[NDArray[np.int64], Iterator[tuple[int, NDArray[np.int64]]]]:
    """Return the state before the day i8[5, columns], and blocks of its first samples: first row, i8[rows, columns]."""
    starts = range(0, rows, BLOCK_ROWS)
    if (name := f"{OWN}/raw/{dataset}") in file:
        raw = file[name]
        raw.id.refresh()
        return file[own_name("begin", dataset)][...], ((start, raw[start : min(start + BLOCK_ROWS, rows)]) for start in starts)
    counter = SealedCounter.read(file, dataset)
    return counter.begin, _restored(counter, counter.restored(file[dataset]), starts, rows)


def _restored(counter: SealedCounter, restored: RestoredRaw, starts: range, rows: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    for start in starts:
        raw = np.full((min(BLOCK_ROWS, rows - start), len(counter.names)), ABSENT)
        restored.fill(start, raw)
        fill_raw(counter.kept, start, raw)
        yield start, raw


def _runs(codes: Codes) -> dict[tuple[int, int, int], list[int]]:
    """Return the columns of each run of rows [start, end) with the same reason."""
    found: dict[tuple[int, int, int], list[int]] = {}
    for place in np.flatnonzero(codes.any(axis=0)):
        column = codes[:, place]
        edges = [0, *(np.flatnonzero(np.diff(column)) + 1).tolist(), len(column)]
        for start, end in pairwise(edges):
            if column[start]:
                found.setdefault((start, end, int(column[start])), []).append(int(place))
    return found


def _joined(found: list[Gap]) -> Iterator[Gap]:
    """Join what continues in the next day's file."""
    latest: dict[tuple[str, str, tuple[str, ...]], Gap] = {}
    for gap in found:
        key = gap.state, gap.reason, tuple(gap.columns)
        before = latest.get(key)
        if before is not None and before.end == gap.start:
            latest[key] = msgspec.structs.replace(before, end=gap.end, cells=before.cells + gap.cells)
            continue
        if before is not None:
            yield before
        latest[key] = gap
    yield from latest.values()
