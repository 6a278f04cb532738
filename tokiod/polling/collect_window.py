"""A window, asked for within a time limit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tokiod.collector import Tally
from tokiod.metrics import catalogue
from tokiod.sink import Collected

if TYPE_CHECKING:
    from tokiod.clock import Clock
    from tokiod.collector import Collector, SourceConfig
    from tokiod.window import Window

HANG = 10.0
"""Seconds after its time limit that a collector has to give up; it should take none."""


class Asking:
    """Asks one source for a window at a time."""

    def __init__(self, config: SourceConfig, collector: Collector, clock: Clock) -> None:
        self._config = config
        self._collector = collector
        self._clock = clock
        self._overdue: float | None = None

    async def collect(self, window: Window) -> Collected:
        """Return what the collector has of a window. Raises whatever that raises, TimeoutError where it takes too long."""
        config, tally, begun = self._config, Tally(), self._clock.monotonic()
        self._overdue = asyncio.get_running_loop().time() + config.timeout + HANG
        try:
            async with asyncio.timeout(config.timeout):
                batches = [batch async for batch in self._collector.collect(window, tally)]
        finally:
            self._overdue = None
        catalogue.STAGE.observe(self._clock.monotonic() - begun, config.name, "collect")
        # What can't be asked again is never counted again; the ledger would keep its number for ever.
        records = tally.records if self._collector.replayable else None
        return Collected(config.system, config.name, config.kind, window, batches, records, tally.dropped)

    def stuck(self, now: float) -> str:
        """Say that the collector does not even end when its time is up, or nothing; now: the loop's time."""
        return f"{self._config.name} did not end when its time was up" if self._overdue is not None and now > self._overdue else ""
