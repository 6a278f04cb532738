"""Verify: collect stored windows of a source again, into a scratch archive, and compare it with the archive cell by cell.

Only windows that the ledger records as stored are collected again, so the scratch archive holds what the archive must hold. The archive is
only read; a daemon may run or not.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tokiod.errors import Refusal, TokiodError
from tokiod.ranges import Ranges
from tokiod.reader.followed_file import FollowedFile
from tokiod.reports.verify.scratch_archive import ScratchArchive
from tokiod.reports.verify.tts_diff import WindowDifferences, add_differences, compare_slice
from tokiod.tts.layout import NotLive
from tokiod.window import Window, bulk_length

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from tokiod.config.sections import ArchiveConfig
    from tokiod.ledger.counts import Counts
    from tokiod.ledger.ledger import Ledger
    from tokiod.reports.verify.scratch_archive import VerifiedSource

T = TypeVar("T")
_MAX_DAY_SECONDS = 2 * 86400
SLICE_SECONDS = 3600
"""Length of the slices in which both files are read: a row of a sealed file's chunks."""
LEAD_STEPS = 12
"""Steps before the span that are collected for its first differences. They are mostly enough."""


@dataclass(slots=True)
class Verified:
    """How much of a span was compared: cells, windows of which any part was; not_stored: what the ledger does not record as stored.

    not_compared: days, or parts of them, with the reason.
    """

    cells: int = 0
    windows: int = 0
    not_stored: list[Window] = field(default_factory=list)
    not_compared: list[tuple[Window, str]] = field(default_factory=list)


def _no_progress(_time: int) -> None:
    pass


@dataclass(frozen=True, slots=True, eq=False)
class Verification:
    """The comparison of an archive with one of its sources.

    datasets: those to compare; directory: for temporary files as large as two days of the archive (None: the system's);
    progress is called with the epoch second up to which data was collected.
    """

    archive: ArchiveConfig
    source: VerifiedSource
    ledger: Ledger
    datasets: frozenset[str]
    directory: Path | None = None
    progress: Callable[[int], None] = _no_progress

    async def run(self, span: Window, verified: Verified) -> AsyncIterator[WindowDifferences]:
        """Yield each window of a span where archive and source differ, oldest first, a day at a time.

        span: on the edges of the source's windows, all of it settled. Raises CollectError where the source doesn't answer, and
        TokiodError or OSError where a file can't be read or created.
        """
        stored = self.ledger.stored(self.source.config.name)
        days = list(self.source.calendar.split(span, _MAX_DAY_SECONDS))
        starts = self._collection_starts(span)
        for start in starts:
            whole = Window(start, span.end + self.trailing_seconds)
            with (
                TemporaryDirectory(prefix="tokiod-verify-", dir=self.directory) as directory,
                closing(ScratchArchive(self.source, Path(directory), whole, self.archive.max_columns)) as scratch,
            ):
                comparison = _Comparison(self, scratch, stored, whole, verified)
                await comparison.collect(Window(start, days[0].end), since=span.start)
                # No difference of later days is taken from a sample before the span.
                for day in days[1:2]:
                    await comparison.collect(day, since=day.start)
                await comparison.close(days[:2][-1])
                if start == starts[-1] or not scratch.needs_earlier_samples(span.start):
                    async for differing in comparison.compare_days(days):
                        yield differing
                    return

    @property
    def trailing_seconds(self) -> int:
        """Seconds after a span that are collected for its last differences."""
        return self.source.config.step if self.source.collector.needs_sample_at_end else 0

    def _collection_starts(self, span: Window) -> list[int]:
        """Return the times at which collecting may start: one that is mostly enough, then earlier ones.

        The last is the start of the day before: no difference is taken from an older sample than 23 h.
        """
        if not self.trailing_seconds:
            return [span.start]
        calendar, lead = self.source.calendar, LEAD_STEPS * self.source.config.step
        today = calendar.day(span.start).start
        near = [span.start - lead] if span.start - lead >= today else []
        return [*near, today - lead, calendar.day(today - 1).start]


@dataclass(slots=True, eq=False)
class _Comparison:
    """The comparison of one span, day by day.

    seams: steps without a window that were collected for the last differences before them; windows: the day's that differ, by their start.
    """

    verification: Verification
    scratch: ScratchArchive
    stored: Ranges
    whole: Window
    verified: Verified
    seams: Ranges = field(default_factory=Ranges)
    windows: dict[int, WindowDifferences] = field(default_factory=dict)

    @property
    def _counts(self) -> Counts:
        return self.verification.ledger.counts(self.verification.source.config.name)

    async def compare_days(self, days: list[Window]) -> AsyncIterator[WindowDifferences]:
        """Yield the windows that differ, day by day; the first two days have been collected and closed."""
        for i, day in enumerate(days):
            if i > 1:
                await self.collect(day, since=day.start)
                await self.close(day)
            self._compare(day)
            for start in sorted(self.windows):
                yield self.windows[start]
            self.windows.clear()
            if i:
                self.scratch.drop(self.verification.source.calendar.day(days[i - 1].start))

    async def close(self, day: Window) -> None:
        """Collect the step after a day or a part of it, whose samples close its last differences."""
        if self.whole.end > day.end:
            await self.collect(Window(day.end, day.end + self.verification.source.config.step), since=self.whole.end)

    async def collect(self, span: Window, since: int) -> None:
        """Collect the stored windows of a span; compare the records of those from `since` on."""
        source = self.verification.source
        length = bulk_length(int(source.config.window))
        for piece in self.stored.within(span.start, span.end):
            for window in self._joined(source.calendar.split(piece, length), piece.end):
                records = await self._without_refusal(self.scratch.collect(window))
                if window.start >= since:
                    await self._compare_records(window, records)
                    self.verification.progress(window.end)
            if self._has_seam(piece.end):
                seam = Window(piece.end, piece.end + self.verification.trailing_seconds)
                if await self._without_refusal(self.scratch.collect_seam(seam)):
                    self.seams.add(seam.start, seam.end)

    def _has_seam(self, end: int) -> bool:
        """Return whether the sample after a stored piece is to be there without its window: a backfill ended there, or it is old."""
        source, ledger = self.verification.source, self.verification.ledger
        if not self.verification.trailing_seconds or self.stored.within(end, end + 1):
            return False
        ends = {job.end for job in ledger.jobs.all() if job.source == source.config.name and job.state == "done"}
        return end in ends or end < source.clock.time() - source.config.retention

    def _joined(self, windows: Iterable[Window], end: int) -> Iterator[Window]:
        """Join windows where one was stored across their edge: the records of its parts are unknown."""
        start: int | None = None
        for window in windows:
            start = window.start if start is None else start
            if window.end == end or not self._counts.is_inside(window.end):
                yield Window(start, window.end)
                start = None

    async def _without_refusal(self, collecting: Awaitable[T]) -> T:
        try:
            return await collecting
        except Refusal as error:
            place = self.verification.directory or gettempdir()
            raise TokiodError(f"{error}; {place} must have room for two of the archive's days: name another directory by TMPDIR") from error

    async def _compare_records(self, span: Window, found: int | None) -> None:
        """Compare a number of records with the ledger's; where it differs, window by window as they were stored."""
        source = self.verification.source
        known = self._counts.records(span)
        if known is None or found in {None, known} or self.verification.datasets != source.config.datasets():
            return
        if len(parts := self._counts.within(span)) > 1:
            for part in parts:
                await self._compare_records(part, await source.collector.count(part))
            return
        self.windows.setdefault(span.start, WindowDifferences(span)).records = known, found

    def _compare(self, day: Window) -> None:
        """Compare the cells of a day or a part of it."""
        source = self.verification.source
        # Windows of a file that a writer quarantined meanwhile are no longer stored.
        for hole in self.verification.ledger.stored(source.config.name).holes(day.start, day.end + self.verification.trailing_seconds):
            self.stored.remove(hole.start, hole.end)
        self.verified.not_stored += self.stored.holes(day.start, day.end)
        path = self.verification.archive.file(source.calendar.day(day.start), source.config.system)
        scratch = self.scratch.path(source.calendar.day(day.start))
        with ExitStack() as stack:
            archived, collected = (_reader(stack, one) for one in (path, scratch))
            existing = {name for reader in (archived, collected) if reader is not None for name in reader.datasets()}
            chosen = self.verification.datasets & existing
            others = {} if archived is None else self._other_steps(archived, chosen)
            self.verified.not_compared += [
                (day, f"the file has a step of {step} s, the source one of {source.config.step} s") for step in sorted({*others.values()})
            ]
            for span in source.calendar.split(day, max(SLICE_SECONDS // source.config.step, 1) * source.config.step):
                for dataset in sorted(chosen - others.keys()):
                    self._compare_slice(dataset, span, archived, collected)
        if chosen and chosen == others.keys():
            return
        # Windows may have had another length when they were stored.
        windows = source.calendar.split(day, source.config.window)
        self.verified.windows += sum(bool(self.stored.within(window.start, window.end)) for window in windows)

    # A day keeps the step that its file was made with.
    def _other_steps(self, archived: FollowedFile, datasets: frozenset[str]) -> dict[str, int]:
        """Return those of some datasets whose rows in a file are not a step of the source apart, and how far they are."""
        spans = {dataset: archived.stamps(dataset)[:2] for dataset in datasets & {*archived.datasets()}}
        steps = {dataset: int(np.ptp(stamps)) for dataset, stamps in spans.items()}
        return {dataset: step for dataset, step in steps.items() if step != self.verification.source.config.step}

    def _compare_slice(self, dataset: str, span: Window, archived: FollowedFile | None, collected: FollowedFile | None) -> None:
        config = self.verification.source.config
        compared = compare_slice(dataset, span, config.step, archived, collected)
        rows = self._are_stored(compared.time)
        if self._is_counter(dataset):
            after = compared.time + self.verification.trailing_seconds
            rows &= self._are_stored(after) | _are_within(self.seams, after)
        compared.rows[:] = rows
        self.verified.cells += int(rows.sum()) * len(compared.columns)
        add_differences(compared, self.windows, self.verification.source.calendar, config.window)

    def _is_counter(self, dataset: str) -> bool:
        return self.scratch.forms.get(dataset, "counter") == "counter"

    def _are_stored(self, time: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which steps are stored. The others were not collected."""
        return _are_within(self.stored, time)


def _are_within(ranges: Ranges, time: NDArray[np.int64]) -> NDArray[np.bool_]:
    within = np.zeros(len(time), bool)
    for window in ranges.within(int(time[0]), int(time[-1]) + 1):
        within |= (time >= window.start) & (time < window.end)
    return within


def _reader(stack: ExitStack, path: Path | None) -> FollowedFile | None:
    try:
        return None if path is None else stack.enter_context(FollowedFile(path))
    except FileNotFoundError:
        return None
    except NotLive as error:
        raise TokiodError(f"{error}; the writer quarantines such a file and collects its windows again") from error
    except OSError as error:
        raise TokiodError(f"{path} can't be read at present: {error}") from error
