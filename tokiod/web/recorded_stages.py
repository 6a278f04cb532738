"""The recorded stages for many viewers. Reading a full ring takes some 0.2 s of a processor, so what was read is kept for some seconds."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

from tokiod.clock import SystemClock
from tokiod.reports import stages as stage_report

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.reports.stages import StagedWork

KEPT_SECONDS = 5.0


class StageList(msgspec.Struct, frozen=True):
    """Where the time of windows and files went since `start`.

    time: of the machine's clock when the rings were read, UTC epoch seconds, also where the archive's clock is simulated; count: of all
    windows and files since then; slowest: those that took longest, oldest first; stages: a table of all.
    """

    time: float
    start: int
    count: int
    slowest: list[stage_report.StagedWork]
    stages: list[stage_report.StageRow]


class RecordedStages:
    """What the rings of a directory hold, for several threads."""

    def __init__(self) -> None:
        self._clock, self._lock = SystemClock(), threading.Lock()
        self._directory: Path | None = None
        self._read_at, self._works = float("-inf"), list["StagedWork"]()

    def now(self) -> float:
        """Return the time of the machine's clock, by which stages are recorded, in UTC epoch seconds."""
        return self._clock.time()

    def since(self, directory: Path, names: set[str], start: int, slowest: int) -> StageList:
        """Report on the windows and files that ended after `start`. names: sources and systems, none for all.

        Raises OSError, NoPermission.
        """
        works = stage_report.chosen(self._recorded(directory), names, start)
        found = stage_report.report(works, slowest)
        return StageList(self.now(), start, len(works), found.slowest, found.stages)

    def _recorded(self, directory: Path) -> list[StagedWork]:
        with self._lock:
            if directory != self._directory or self._clock.monotonic() - self._read_at >= KEPT_SECONDS:
                self._works = stage_report.read_stages(directory)
                self._directory, self._read_at = directory, self._clock.monotonic()
            return self._works
