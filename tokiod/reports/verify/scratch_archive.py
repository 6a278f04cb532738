"""A scratch archive: stored windows of a source, collected again into temporary files by the same sink.

Its files hold the days of an archive, cut to what is collected, so counters cross midnight as they do there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sinks.tts.sink import TtsSink
from tokiod.archive.layout import FileSlot
from tokiod.collector import collect_window
from tokiod.errors import Transient
from tokiod.tts.counters.deltas import anchored
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
        self._sink = TtsSink(self._slot, source.clock, UNSYNCED, compare=False, max_open=2, max_columns=columns)  # units are not compared

    async def collect(self, window: Window) -> int | None:
        """Collect a window within a day; return how many records it has.

        Raises CollectError where the source doesn't answer, Refusal where there is no room.
        """
        collected = await self._collected(window)
        self.forms.update((batch.dataset, batch.form) for batch in collected.batches if batch.columns)
        self._sink.apply(collected)
        return collected.meta.records

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

    def needs_earlier_samples(self, day: Day, start: int) -> bool:
        """Return whether samples from before this archive could change a difference of the day, from the epoch second `start` on."""
        path = self.path(day)
        if path is None:
            return False
        file = LiveFile.open(path, UNSYNCED)
        try:
            return any(
                bool(_unanchored(raw, (start - file.spec.start) // self._source.config.step, whole=file.spec.start == day.start).any())
                for raw in file.raw.values()
            )
        finally:
            file.close()

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


def _unanchored(raw: Matrix, lead: int, *, whole: bool) -> NDArray[np.bool_]:
    """Return the columns whose differences may depend on samples before a file's first row; see tokiod.tts.counters.deltas about anchors.

    lead: rows of the file before those that matter; whole: the file begins with its day, before which only the last sample matters.
    """
    present, nonzero = _seen(raw, 1 if whole else 1 + lead)
    if whole:
        edge = raw.read(0, 2)
        return np.asarray((edge == ABSENT).all(axis=0) & present)
    if not lead:
        return present
    head = raw.read(1, 1 + lead)
    return np.asarray(~anchored(head) & (((head[-1] == ABSENT) & present) | nonzero))


def _seen(raw: Matrix, first: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which columns have a sample from a raw row on, and which have one that is not zero."""
    highest = np.full(raw.width, ABSENT)
    for start in range(first, raw.rows, READ_ROWS):
        np.maximum(highest, raw.read(start, min(start + READ_ROWS, raw.rows)).max(axis=0), out=highest)
    return highest >= 0, highest > 0
