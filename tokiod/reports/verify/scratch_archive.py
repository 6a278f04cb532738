"""A scratch archive: stored windows of a source, collected again into temporary files by the same sink.

Its files hold the days of an archive, cut to what is collected, so counters cross midnight as they do there.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import FileSlot
from tokiod.collector import collect_window
from tokiod.errors import NotYet, Transient
from tokiod.tts.counters.difference_rule import aligned, is_anchored
from tokiod.tts.live.files import UNSYNCED
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.schema import ABSENT

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.archive.layout import Layout
    from tokiod.batch import Form
    from tokiod.clock import Clock
    from tokiod.collector import Collector, SourceConfig
    from tokiod.tts.live.matrix import Matrix
    from tokiod.window import Calendar, Day, Window
    from tokiod.window_data import Collected

MAX_VERIFY_ATTEMPTS = 4
FIRST_VERIFY_RETRY_SECONDS = 2.0
"""Wait after the first failed attempt; each further wait is twice as long."""
READ_ROWS = 720
"""Raw rows that are read at once."""


@dataclass(frozen=True, slots=True, eq=False)
class VerifiedSource:
    """A configured source with its own collector."""

    config: SourceConfig
    collector: Collector
    calendar: Calendar
    clock: Clock


class ScratchArchive:
    """The data of a source over a span, in files of a directory. forms: of the datasets that the source returned."""

    def __init__(self, source: VerifiedSource, directory: Path, span: Window, columns: int) -> None:
        self.forms: dict[str, Form] = {}
        self._source = source
        self._span = span
        self._slot = _clipped(source.calendar, directory, span)
        # Two days are needed at a time, the second for the seam. Others are open only until drop().
        self._sink = TtsSink(
            DayFiles(
                self._slot,
                source.clock,
                UNSYNCED,
                compare=False,
                max_open=2,
                max_columns=columns,
                max_rates={source.config.system: source.config.max_rates()},
            )
        )  # units are not compared

    async def collect(self, window: Window) -> int | None:
        """Collect a window within a day; return how many records it has.

        Raises CollectError where the source doesn't answer, Refusal where there is no room.
        """
        collected = await self._collected(window)
        self.forms.update((batch.dataset, batch.form) for batch in collected.batches if batch.columns)
        self._sink.apply(replace(collected, tables=()))
        return collected.meta.records

    async def collect_seam(self, window: Window) -> bool:
        """Collect the counters of a step that is not stored; False where the source has not got that far. Raises as collect()."""
        try:
            collected = await self._collected(window)
        except Transient as error:
            if isinstance(error.__cause__, NotYet):
                return False
            raise
        counters = [batch for batch in collected.batches if batch.form == "counter"]
        self._sink.apply(replace(collected, meta=replace(collected.meta, extent="seam"), batches=counters, tables=()))
        return True

    def path(self, day: Day) -> Path | None:
        """Return the file that holds a day, None without data for it."""
        slot = self._slot("", max(day.start, self._span.start))
        return None if slot is None or not slot.path.exists() else slot.path

    def drop(self, day: Day) -> None:
        """Delete a day that is no longer needed."""
        self._sink.commit()
        if (path := self.path(day)) is not None:
            path.unlink()

    def close(self) -> None:
        """Close the files."""
        self._sink.close()

    def needs_earlier_samples(self, start: int) -> bool:
        """Return whether samples from before this archive could change a difference from `start` on; its day and the next are collected."""
        calendar = self._source.calendar
        day = calendar.day(start)
        with ExitStack() as stack:
            before, file, after = (self._file(stack, one) for one in (calendar.day(day.start - 1), day, calendar.day(day.end)))
            if file is None:
                return after is not None
            if after is not None and not set(after.raw) <= set(file.raw):
                return True
            rows = (start - file.spec.start) // self._source.config.step
            return any(
                _is_unsure(raw, rows, None if before is None else before.raw.get(name), None if after is None else after.raw.get(name))
                for name, raw in file.raw.items()
            )

    def _file(self, stack: ExitStack, day: Day) -> LiveFile | None:
        path = self.path(day) if day.end > self._span.start else None
        return None if path is None else stack.enter_context(closing(LiveFile.open(path, UNSYNCED)))

    async def _collected(self, window: Window) -> Collected:
        """Collect a window, with several attempts where the source is busy."""
        source = self._source
        for attempt in range(1, MAX_VERIFY_ATTEMPTS + 1):
            try:
                return await collect_window(source.collector, source.config, window, seconds=source.config.seconds_for(window))
            except (Transient, TimeoutError) as error:
                if attempt == MAX_VERIFY_ATTEMPTS:
                    raise Transient(f"{window}: {str(error) or 'no answer in time'}") from error
            await source.clock.sleep(FIRST_VERIFY_RETRY_SECONDS * 2 ** (attempt - 1))
        raise AssertionError


def _clipped(calendar: Calendar, directory: Path, span: Window) -> Layout:
    """Return the layout of a span: a file for the part of each site day that lies in it."""

    def slot(system: str, time: int) -> FileSlot | None:
        if not span.start <= time < span.end:
            return None
        day = calendar.day(time)
        return FileSlot(system, directory / f"{day.date}.hdf5", max(day.start, span.start), min(day.end, span.end))

    return slot


def _is_unsure(raw: Matrix, lead: int, before: Matrix | None, after: Matrix | None) -> bool:
    """Return whether a column's differences may depend on samples before those that were collected.

    lead: rows of the file before those that matter. before, after: the samples of the day before, if its last steps were collected, and of
    the day after. See tokiod.tts.counters.difference_rule about anchors.
    """
    columns = raw.columns if after is None else tuple(dict.fromkeys((*raw.columns, *after.columns)))
    head = aligned(raw.read(0, lead), raw.columns, columns)
    is_known, is_sampled = is_anchored(head), (head != ABSENT).any(axis=0)
    if before is not None:
        # Its last row is that of the next day's first sample, which is in the head, or is the first sample that matters.
        tail = aligned(before.read(0, before.rows - 1), before.columns, columns)
        is_known, is_sampled = is_known | is_anchored(tail), is_sampled | (tail != ABSENT).any(axis=0)
    highest = aligned(_highest(raw, lead), raw.columns, columns)
    if after is not None:
        highest = np.maximum(highest, aligned(_highest(after, 0), after.columns, columns))
    return bool((~is_known & ((highest > 0) | (~is_sampled & (highest == 0)))).any())


def _highest(raw: Matrix, first: int) -> NDArray[np.int64]:
    """Return the largest sample of each column from a row on, i8[1, columns]; ABSENT without one."""
    highest = np.full((1, raw.width), ABSENT)
    for start in range(first, raw.rows, READ_ROWS):
        np.maximum(highest, raw.read(start, min(start + READ_ROWS, raw.rows)).max(axis=0), out=highest)
    return highest
