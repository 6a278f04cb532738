"""Catching up: read what a subscriber missed from the files, in the form in which the feed sends it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from tokiod.batch import Batch
from tokiod.clock import Clock, SystemClock
from tokiod.errors import TokiodError
from tokiod.reader.followed_file import FollowedFile
from tokiod.tts.layout import NotLive
from tokiod.window import Calendar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.config.schema import Config
    from tokiod.window import Day

SLICE_SECONDS, MIN_SLICE_ROWS = 1800, 60
"""Read at once; of slow sources at least so many rows."""
DEFAULT_REACH_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Archive:
    """The files of a daemon, for subscribers that read there what they missed.

    path, timezone: as `[archive] path` and `timezone` of the daemon's configuration; reach: seconds before the last watermark that are
    read again, too; clock: UTC, the end of what is read, or later where there are files: it may be behind the daemon's.

    What is read, and what is not: new windows, and old gaps that are healed, lie after the last watermark received, and change no cell that
    is more than a step before it. From there on everything is read. Cells that had been stored before, and are replaced while messages are
    lost, are read only as far back as `reach`: those of a forced backfill, of a recount that found late records, of a backfill of windows
    that were lost or are older than the source. A subscriber that must not miss these needs a `reach` of days.
    """

    path: str
    timezone: str
    reach: int = DEFAULT_REACH_SECONDS
    clock: Clock = SystemClock()  # noqa: RUF009 - it has no state

    @classmethod
    def of(cls, config: Config, clock: Clock) -> Self:
        """Return the archive that a daemon with this configuration fills."""
        return cls(config.archive.path, config.timezone, clock=clock)

    def read(self, system: str, dataset: str, since: int, newest: int, watermark: int = 0) -> Iterator[Batch]:
        """Yield the cells from the step before `since` on as they are in the files, oldest first, in slices of half an hour or so.

        NaN: missing; left out after `newest`, the epoch second of the last cell received, where the subscriber has no cells to correct.
        watermark: epoch seconds up to which the files hold cells. A day without a file, or without the dataset, has no cells; the first one
        without a file after now, `newest` and the watermark is the end. Raises TokiodError for a file that exists and can't be read.
        """
        calendar = Calendar(self.timezone)
        # The first sample of a day can change the last cell of the day before.
        day, until = calendar.day(calendar.day(since).start - 1), max(int(self.clock.time()), newest, watermark)
        while True:
            path = Path(day.date.strftime(self.path).replace("{system}", system))
            try:
                yield from _cells(path, dataset, day, since, newest)
            except FileNotFoundError:
                # Not created yet, or just set aside: its windows are collected again.
                if day.end > until:
                    return
            except (OSError, NotLive) as error:
                raise TokiodError(f"what was missed of {system}/{dataset} can't be read from {path}: {error}") from error
            day = calendar.day(day.end)


def _cells(path: Path, dataset: str, day: Day, since: int, newest: int) -> Iterator[Batch]:
    with FollowedFile(path) as reader:
        if dataset not in reader.datasets():
            return
        stamps = reader.stamps(dataset)
        step = int(stamps[1] - stamps[0]) if len(stamps) > 1 else day.end - day.start
        # The sample at `since` completes a counter's cell of the step before.
        first = max(day.start, since - step)
        length = max(SLICE_SECONDS, MIN_SLICE_ROWS * step)
        for start in range(first, day.end, length):
            time, columns, values = reader.read(dataset, start, min(start + length, day.end))
            row, column = np.nonzero(~np.isnan(values) | (time <= newest)[:, np.newaxis])
            if len(row):
                yield Batch(dataset, "gauge", step, columns, time[row], column.astype(np.uint32), values[row, column])
