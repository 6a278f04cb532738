"""Live polling's collection of one window: its time limit, its measured duration, and whether the collector hangs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from tokiod.collector import NotesStored, collect_window
from tokiod.metrics import stages

if TYPE_CHECKING:
    from tokiod.clock import Clock
    from tokiod.collector import Collector, SourceConfig
    from tokiod.window import Window
    from tokiod.window_data import Collected

CANCEL_SECONDS = 10.0
"""How long a collector may take to end after its time limit. It should end at once."""


class WindowCollector:
    """Collects one window of a source at a time."""

    def __init__(self, config: SourceConfig, collector: Collector, clock: Clock) -> None:
        self._config = config
        self._collector = collector
        self._clock = clock
        self._overdue: float | None = None

    async def collect(self, window: Window) -> Collected:
        """Return the collector's data of a window. Raises what the collector raises, and TimeoutError."""
        config = self._config
        due = max(0.0, self._clock.time() - window.end - config.settle)
        self._overdue = asyncio.get_running_loop().time() + config.timeout + CANCEL_SECONDS
        try:
            collection = collect_window(self._collector, config, window, seconds=config.timeout)
            collected = await stages.Collecting(collection, config.name, window, due)
        finally:
            self._overdue = None
        # A source that is not replayable is never recounted, so the ledger would keep the count for ever.
        return collected if self._collector.replayable else replace(collected, meta=replace(collected.meta, records=None))

    def note_stored(self, window: Window) -> None:
        """Pass on that a window is stored."""
        if isinstance(self._collector, NotesStored):
            self._collector.note_stored(window)

    def stuck(self, now: float) -> str:
        """Return that the collector hangs beyond its time limit, or an empty text; now: the loop's time."""
        return f"{self._config.name} did not end after its time limit" if self._overdue is not None and now > self._overdue else ""
