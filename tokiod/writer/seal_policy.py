"""Which days are to be sealed, and how much of the archive's disk is left.

A day is sealed once it is over, no source of its system misses anything in it, and the next day's first window is stored or lost, because
the last differences need it. A day that misses something is sealed when its grace time is over and its file has not changed for an hour:
a day that is being healed stays live. Sealing waits for `keep_live_days` more, unless the disk gets full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import structlog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokiod.archive.layout import FileSlot
    from tokiod.collector import SourceConfig
    from tokiod.config.sections import ArchiveConfig
    from tokiod.ledger.ledger import Ledger
    from tokiod.tts.live.files import Files

log = structlog.get_logger()

UNCHANGED_SECONDS = 3600.0
"""How long the file of an incomplete day must be unchanged until it is sealed."""
DAY_SECONDS = 86400
LOW_DISK_DAYS = 7
"""With room for fewer days than this, the writer warns."""
WARNING_INTERVAL_SECONDS = 3600.0


class SealPolicy:
    """Which days are due for sealing, as the ledger stands at one moment. now: epoch seconds."""

    def __init__(
        self, archive: ArchiveConfig, sources: Sequence[SourceConfig], ledger: Ledger, now: float, *, disk_is_scarce: bool
    ) -> None:
        self._archive = archive
        self._sources = sources
        self._ledger = ledger
        self._now = now
        self._disk_is_scarce = disk_is_scarce
        self._since = {status.name: status.since for status in ledger.sources()}
        self._jobs = [job for source in sources for job in ledger.jobs.unfinished(source.name)]

    def is_due(self, slot: FileSlot, changed_at: float) -> bool:
        """Return whether a day that is over is to be sealed. changed_at: the clock's time at which its file last changed."""
        age = self._now - slot.end
        if age < self._archive.keep_live_days * DAY_SECONDS and not self._disk_is_scarce:
            return False
        sources = {source.name: source for source in self._sources if source.system == slot.system and source.datasets()}
        if any(job.source in sources and job.start < slot.end and slot.start < job.end for job in self._jobs):
            return False
        is_overdue = age >= self._archive.seal_after and not 0 <= self._now - changed_at < UNCHANGED_SECONDS
        return is_overdue or all(self._is_complete(source, slot) for source in sources.values())

    def _is_complete(self, source: SourceConfig, slot: FileSlot) -> bool:
        """Return whether a source will deliver no more for a day; for a watched folder, that is never known."""
        since = self._since.get(source.name)
        if not source.polled or since is None:
            return False
        return since >= slot.end or self._ledger.watermark(source.name, max(slot.start, since)) >= slot.end + source.window


class DiskSpace(msgspec.Struct):
    """The space that is left on the archive's disk, in proportion to what its live files take."""

    root: Path
    files: Files
    _warned_at: float = float("-inf")

    def is_scarce(self, current: list[FileSlot], now: float) -> bool:
        """Return whether tomorrow's files and one growth no longer fit; warn when there is room for a few days only.

        current: today's files. now: epoch seconds.
        """
        sizes = [slot.path.stat().st_size for slot in current]
        daily, needed = sum(sizes), sum(sizes) + max(sizes, default=0)
        free = self.files.free_space(self.root)
        if daily and free - needed < LOW_DISK_DAYS * daily and not 0 <= now - self._warned_at < WARNING_INTERVAL_SECONDS:
            self._warned_at = now
            log.warning(
                "disk.low",
                path=str(self.root),
                free_mib=free >> 20,
                daily_mib=daily >> 20,
                days_left=max(0, free - needed) // daily,
                reason="live files take daily_mib per day; free disk space, or no window can be stored once tomorrow's files do not fit",
            )
        return free < needed
