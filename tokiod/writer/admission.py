"""Which windows the writer stores: those that its configuration covers.

A process that may send on the bus could otherwise fill the disk with systems and days that no source has. A refused window may come again,
because the collectors may be reading another configuration at that moment, or this machine's clock may have been ahead: nothing is written
off for that. The poller judges what is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.errors import Refusal
from tokiod.window import iso

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokiod.clock import Clock
    from tokiod.collector import SourceConfig
    from tokiod.ledger.jobs import Jobs
    from tokiod.window import Calendar, Window
    from tokiod.window_data import Collected

SLACK_SECONDS = 86400
"""How much older than the retention, or than a backfill, a window may be: it may have waited, and seams lie outside of a backfill."""


class NotCovered(Refusal):
    """A window that the configuration does not cover. reason: a word of tokiod.metrics.catalogue.NOT_COVERED."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"not covered by the configuration: {message}", "retry")
        self.reason = reason


class Admission:
    """Checks windows against the configured sources."""

    def __init__(self, sources: Iterable[SourceConfig], calendar: Calendar, jobs: Jobs, clock: Clock) -> None:
        self._calendar = calendar
        self._jobs = jobs
        self._clock = clock
        self.reconfigure(sources)

    def reconfigure(self, sources: Iterable[SourceConfig]) -> None:
        """Check against other sources from now on."""
        self._sources = {source.name: source for source in sources}

    def check(self, collected: Collected) -> None:
        """Raise NotCovered for a window that may not be stored. Raises LedgerError."""
        source = self._source(collected)
        _check_batches(source, collected)
        self._check_day(source, collected.meta.window)

    def _source(self, collected: Collected) -> SourceConfig:
        meta = collected.meta
        if (source := self._sources.get(meta.source)) is None:
            raise NotCovered("unknown source", f"there is no source {meta.source!r}")
        if (meta.system, meta.kind) != (source.system, source.kind):
            there = f"{source.kind!r} of {source.system!r}, not {meta.kind!r} of {meta.system!r}"
            raise NotCovered("another system or kind", f"source {source.name} is {there}")
        return source

    def _check_day(self, source: SourceConfig, window: Window) -> None:
        now = int(self._clock.time())
        tomorrow = self._calendar.day(self._calendar.day(now).end)
        if window.end > tomorrow.end:
            raise NotCovered("future day", f"{iso(window.end)} is more than a day ahead of {iso(now)}")
        if source.polled and window.end <= now - source.retention - SLACK_SECONDS and not self._is_backfilled(source, window):
            raise NotCovered("day before the retention", f"{iso(window.start)} is before the retention and in no backfill")

    def _is_backfilled(self, source: SourceConfig, window: Window) -> bool:
        jobs = self._jobs.unfinished(source.name)
        return any(job.start - SLACK_SECONDS < window.end and window.start < job.end + SLACK_SECONDS for job in jobs)


def _check_batches(source: SourceConfig, collected: Collected) -> None:
    for rows in collected.tables:
        if rows.table not in source.tables:
            raise NotCovered("unknown dataset", f"source {source.name} does not fill the table {rows.table!r}")
    for batch in collected.batches:
        if batch.dataset not in source.datasets():
            raise NotCovered("unknown dataset", f"source {source.name} does not fill {batch.dataset!r}")
        if batch.step != source.step:
            raise NotCovered("another step", f"source {source.name} has steps of {source.step} s, not {batch.step} s")
