"""Live polling's collection of one window: its time limit, its measured duration, and whether the collector hangs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from tokiod.collector import collect_window
from tokiod.metrics import catalogue

if TYPE_CHECKING:
    from tokiod.clock import Clock
    from tokiod.collector import Collector, SourceConfig
    from tokiod.window import Window
    from tokiod.window_data import Collected

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
        """Return the collector's data of a window. Raises what the collector raises, and TimeoutError."""
        config, begun = self._config, self._clock.monotonic()
        self._overdue = asyncio.get_running_loop().time() + config.timeout + HANG
        try:
            collected = await collect_window(self._collector, config, window, seconds=config.timeout)
        finally:
            self._overdue = None
        catalogue.STAGE.observe(self._clock.monotonic() - begun, config.name, "collect")
        # What can't be asked again is never counted again; the ledger would keep its number for ever.
        return collected if self._collector.replayable else replace(collected, meta=replace(collected.meta, records=None))

    def stuck(self, now: float) -> str:
        """Say that the collector does not even end when its time is up, or nothing; now: the loop's time."""
        return f"{self._config.name} did not end when its time was up" if self._overdue is not None and now > self._overdue else ""
