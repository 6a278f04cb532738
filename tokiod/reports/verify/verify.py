"""Verify: what a source tells now, collected again into a scratch archive and held against what the archive has of it.

Only windows that the ledger calls stored are collected again, so the scratch is what the archive must be. Nothing of the archive is
written, whether a daemon runs or not.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING

import numpy as np

from tokiod.errors import Refusal, TokiodError
from tokiod.reports.verify.scratch_archive import Scratch
from tokiod.reports.verify.tts_diff import WindowDifferences, add_differences, compare_slice
from tokiod.tts.layout import NotLive
from tokiod.tts.read import Reader
from tokiod.window import Window, bulk_length

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from tokiod.config.load import ArchiveConfig
    from tokiod.ledger.counts import Counts
    from tokiod.ledger.ledger import Ledger
    from tokiod.ranges import Ranges
    from tokiod.reports.verify.scratch_archive import Source

_LONGEST_DAY = 2 * 86400
SLICE = 3600
"""Seconds of both files that are in memory at once: a row of a sealed file's chunks."""
LEAD = 12
"""Steps before the span that are collected for the counters: mostly their differences need no more."""


@dataclass(slots=True)
class Verified:
    """How much of a span was compared: cells, windows; not_stored: where the ledger says that nothing is."""

    cells: int = 0
    windows: int = 0
    not_stored: list[Window] = field(default_factory=list)


def _untold(_time: int) -> None:
    pass


@dataclass(frozen=True, slots=True, eq=False)
class Verification:
    """An archive, held against one of its sources.

    datasets: those that are compared; directory: where files as large as two of the archive's days may be made (None: the system's);
    progress is called with the epoch second up to which was collected.
    """

    archive: ArchiveConfig
    source: Source
    ledger: Ledger
    datasets: frozenset[str]
    directory: Path | None = None
    progress: Callable[[int], None] = _untold

    async def run(self, span: Window, verified: Verified) -> AsyncIterator[WindowDifferences]:
        """Yield each window of a span where archive and source differ, oldest first, a day at a time.

        span: on the edges of the source's windows, all of it settled. Raises CollectError where the source can't be asked, and
        TokiodError or OSError where a file can't be read or made.
        """
        stored = self.ledger.stored(self.source.config.name)
        days = list(self.source.calendar.split(span, _LONGEST_DAY))
        leads = self._leads(span)
        for lead in leads:
            whole = Window(lead, span.end + self.behind)
            with (
                TemporaryDirectory(prefix="tokiod-verify-", dir=self.directory) as directory,
                closing(Scratch(self.source, Path(directory), whole, self.archive.max_columns)) as scratch,
            ):
                going = _Going(self, scratch, stored, whole, verified)
                await going.collect(Window(lead, days[0].end), since=span.start)
                if lead == leads[-1] or not scratch.is_doubtful(self.source.calendar.day(span.start), span.start):
                    async for differing in going.through(days):
                        yield differing
                    return

    @property
    def behind(self) -> int:
        """How many seconds behind a span close its last differences."""
        return self.source.config.step if self.source.collector.needs_sample_at_end else 0

    def _leads(self, span: Window) -> list[int]:
        """Return where to begin to collect: where that is mostly enough, and earlier and earlier until nothing older matters."""
        if not self.behind:
            return [span.start]
        calendar, lead = self.source.calendar, LEAD * self.source.config.step
        today = calendar.day(span.start).start
        near = [span.start - lead] if span.start - lead >= today else []
        return [*near, today - lead, calendar.day(today - 1).start]


@dataclass(slots=True, eq=False)
class _Going:
    """On its way through a span, day by day; windows: those of the day that differ, by their start."""

    of: Verification
    scratch: Scratch
    stored: Ranges
    whole: Window
    verified: Verified
    windows: dict[int, WindowDifferences] = field(default_factory=dict)

    @property
    def _counts(self) -> Counts:
        return self.of.ledger.counts(self.of.source.config.name)

    async def through(self, days: list[Window]) -> AsyncIterator[WindowDifferences]:
        """Yield what differs in each day, of which the first has been collected."""
        for i, day in enumerate(days):
            if i:
                await self.collect(day, since=day.start)
            if self.whole.end > day.end:
                await self.collect(Window(day.end, day.end + self.of.source.config.step), since=self.whole.end)
            self._compare(day)
            for start in sorted(self.windows):
                yield self.windows[start]
            self.windows.clear()
            if i:
                self.scratch.drop(self.of.source.calendar.day(days[i - 1].start))

    async def collect(self, span: Window, since: int) -> None:
        """Collect what is stored of a span; count the records of what is not older than `since`."""
        source = self.of.source
        length = bulk_length(int(source.config.window))
        for piece in self.stored.within(span.start, span.end):
            for window in self._uncut(source.calendar.split(piece, length), piece.end):
                records = await self._stored(window)
                if window.start >= since:
                    await self._count(window, records)
                    self.of.progress(window.end)

    def _uncut(self, windows: Iterable[Window], end: int) -> Iterator[Window]:
        """Join windows where one was stored across their edge: of a part of it nobody knows how many records it had."""
        start: int | None = None
        for window in windows:
            start = window.start if start is None else start
            if window.end == end or not self._counts.is_inside(window.end):
                yield Window(start, window.end)
                start = None

    async def _stored(self, window: Window) -> int | None:
        try:
            return await self.scratch.collect(window)
        except Refusal as error:
            place = self.of.directory or gettempdir()
            raise TokiodError(f"{error}; {place} must have room for two of the archive's days: name another directory by TMPDIR") from error

    async def _count(self, span: Window, found: int | None) -> None:
        """Hold a number of records against the ledger's; of a span that differs, window by window as they were stored."""
        source = self.of.source
        known = self._counts.records(span)
        if known is None or found in {None, known} or self.of.datasets != source.config.datasets():
            return
        if len(parts := self._counts.within(span)) > 1:
            for part in parts:
                await self._count(part, await source.collector.count(part))
            return
        self.windows.setdefault(span.start, WindowDifferences(span)).records = known, found

    def _compare(self, day: Window) -> None:
        """Compare the cells of a day or a part of it."""
        source = self.of.source
        # What a writer has set aside meanwhile is no longer stored.
        for hole in self.of.ledger.stored(source.config.name).holes(day.start, day.end + self.of.behind):
            self.stored.remove(hole.start, hole.end)
        self.verified.not_stored += self.stored.holes(day.start, day.end)
        path = self.of.archive.file(source.calendar.day(day.start), source.config.system)
        scratch = self.scratch.path(source.calendar.day(day.start))
        with ExitStack() as stack:
            archived, again = (_reader(stack, one) for one in (path, scratch))
            there = {name for reader in (archived, again) if reader is not None for name in reader.datasets()}
            for span in source.calendar.split(day, max(SLICE // source.config.step, 1) * source.config.step):
                for dataset in sorted(self.of.datasets & there):
                    self._compare_slice(dataset, span, archived, again)
        windows = source.calendar.split(day, source.config.window)
        self.verified.windows += sum(self.stored.covers(window) for window in windows)

    def _compare_slice(self, dataset: str, span: Window, archived: Reader | None, again: Reader | None) -> None:
        config = self.of.source.config
        compared = compare_slice(dataset, span, config.step, archived, again)
        rows = self._are_stored(compared.time)
        if self.scratch.forms.get(dataset, "counter") == "counter":
            rows &= self._are_stored(compared.time + self.of.behind)
        compared.rows[:] = rows
        self.verified.cells += int(rows.sum()) * len(compared.columns)
        add_differences(compared, self.windows, self.of.source.calendar, config.window)

    def _are_stored(self, time: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which steps are stored: the source's answer for the others is not asked for."""
        held = np.zeros(len(time), bool)
        for window in self.stored.within(int(time[0]), int(time[-1]) + 1):
            held |= (time >= window.start) & (time < window.end)
        return held


def _reader(stack: ExitStack, path: Path | None) -> Reader | None:
    try:
        return None if path is None else stack.enter_context(Reader(path))
    except FileNotFoundError:
        return None
    except NotLive as error:
        raise TokiodError(f"{error}; the writer sets such a file aside and collects its windows again") from error
