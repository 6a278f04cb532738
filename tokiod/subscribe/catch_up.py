"""Catching up: what a subscriber missed, read from the files and told as if it had come by the feed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from tokiod.batch import Batch
from tokiod.clock import Clock, SystemClock
from tokiod.errors import TokiodError
from tokiod.tts.layout import NotLive
from tokiod.tts.read import Reader
from tokiod.window import Calendar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.config.load import Config
    from tokiod.window import Day

SLICE, ROWS = 1800, 60
"""Seconds that are read and told at once, but of slow sources at least so many rows."""
REACH = 3600


@dataclass(frozen=True, slots=True)
class Archive:
    """The files of a daemon, for subscribers that read there what they missed.

    path, timezone: as `[archive] path` and `timezone` of the daemon's configuration; reach: seconds before the last watermark that are
    read again, too; clock: how late it is, UTC: what is to come is not looked for.

    What is read, and what isn't: new windows, and old gaps that are healed, lie behind the watermark that was last heard of, and change
    no cell that is more than a step before it. From there on everything is read. Cells that had been stored before, and are replaced
    while nobody heard, are read only as far back as `reach`: by a forced backfill, by a recount that found late records, by a backfill of
    what had been given up as lost or is older than the source. Whoever must not miss these either takes a `reach` of days.
    """

    path: str
    timezone: str
    reach: int = REACH
    clock: Clock = SystemClock()  # noqa: RUF009 - it has no state

    @classmethod
    def of(cls, config: Config, clock: Clock) -> Self:
        """Return the archive that a daemon with this configuration fills."""
        return cls(config.archive.path, config.timezone, clock=clock)

    def read(self, system: str, dataset: str, since: int, told: int) -> Iterator[Batch]:
        """Yield the cells from the step before `since` to now as they stand in the files, oldest first, in slices of half an hour or so.

        NaN: missing, of which cells behind `told`, an epoch second, are left out: nobody was told that they are not.
        A day without a file, or without the dataset, has none. Raises TokiodError for a file that is there and can't be read.
        """
        calendar = Calendar(self.timezone)
        # The last cell of the day before may be news of the first sample of this one.
        day, until = calendar.day(calendar.day(since).start - 1), max(int(self.clock.time()), told)
        while day.start <= until:
            path = Path(day.date.strftime(self.path).replace("{system}", system))
            try:
                yield from _cells(path, dataset, day, since, told)
            except FileNotFoundError:
                pass  # never made, or set aside this moment: its windows come again
            except (OSError, NotLive) as error:
                raise TokiodError(f"what was missed of {system}/{dataset} can't be read from {path}: {error}") from error
            day = calendar.day(day.end)


def _cells(path: Path, dataset: str, day: Day, since: int, told: int) -> Iterator[Batch]:
    with Reader(path) as reader:
        if dataset not in reader.datasets():
            return
        stamps = reader.stamps(dataset)
        step = int(stamps[1] - stamps[0]) if len(stamps) > 1 else day.end - day.start
        # The sample at `since` closes a counter's cell of the step before.
        first = max(day.start, since - step)
        length = max(SLICE, ROWS * step)
        for start in range(first, day.end, length):
            time, columns, values = reader.read(dataset, start, min(start + length, day.end))
            row, column = np.nonzero(~np.isnan(values) | (time <= told)[:, np.newaxis])
            if len(row):
                yield Batch(dataset, "gauge", step, columns, time[row], column.astype(np.uint32), values[row, column])
