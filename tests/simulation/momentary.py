"""A source without a past: what it says is about now, so a window that was not stored is lost, and a torn one must not count as stored.

It fills two matrices with gauges, a row for each window. What the ledger calls stored must be in both, whatever was killed between the
writes of the two; what is there must be what the source said.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from tests.simulation.oracle import FOREVER, Wrong
from tests.simulation.sources import FULLNESS, GAUGE, Source, SourceCollector
from tokiod.window import Window, iso

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.clock import MachineClock
    from tokiod.ranges import Ranges
    from tokiod.window_data import WindowData

NAME = "now"
DATASETS = GAUGE, FULLNESS
WINDOWS = 3600, 1800, 900
"""Seconds; the longest that is not longer than the other sources'."""

Key = tuple[str, str, int]
"""Dataset, component and epoch second."""


@dataclass
class MomentarySource(Source):
    """The source; step: its window. given: the samples that every answer for a window had."""

    given: dict[Window, dict[Key, float]] = field(default_factory=dict)

    def at(self, window: Window) -> WindowData:
        """Return the row of a window, and note it."""
        found = self.data(window, FOREVER)
        samples = {
            (batch.dataset, batch.columns[column], time): value
            for batch in found.batches
            for time, column, value in zip(batch.time.tolist(), batch.column.tolist(), batch.value.tolist(), strict=True)
        }
        known = self.given.setdefault(window, samples)
        self.given[window] = {key: value for key, value in known.items() if key in samples}
        return found

    def collector(self, clock: MachineClock) -> MomentaryCollector:
        """Return a collector."""
        return MomentaryCollector(self, clock)

    def check(self, stored: Ranges, files: Mapping[int, Mapping[tuple[str, str], Mapping[int, float]]]) -> int:
        """Compare files with what was given; return how many samples are in windows that are stored. Raises Wrong.

        files: cells by the beginning of their day, of days with a sound file.
        """
        compared = 0
        for window, samples in self.given.items():
            if (day := self.calendar.day(window.start).start) not in files or not stored.covers(window):
                continue
            for (dataset, name, time), value in samples.items():
                if (there := files[day].get((dataset, name), {}).get(time)) != value:
                    raise Wrong(f"{self.name}: {window} is stored, and {dataset} {name} {iso(time)} is {there}, not {value}")
                compared += 1
        for cells in files.values():
            for (dataset, name), column in cells.items():
                for time, value in column.items():
                    if self.samples[dataset].get(name, {}).get(self.row(time)) != value:
                        raise Wrong(f"{self.name}: {dataset} {name} {iso(time)} is {value}, which the source never said")
        return compared


class MomentaryCollector(SourceCollector):
    """The contract's Collector over it."""

    replayable: ClassVar[bool] = False
    needs_sample_at_end: ClassVar[bool] = False

    async def collect(self, window: Window) -> WindowData:
        """Return the row of a window that has begun; raise where the source is sick."""
        await self._answer()
        return self._source.at(window)  # type: ignore[attr-defined]

    async def count(self, window: Window) -> int | None:  # noqa: ARG002 - the contract's
        """Return None: there is no past to count."""
        return None


__all__ = ["DATASETS", "NAME", "WINDOWS", "MomentarySource"]
