"""How much of the archive's disk is left, and a warning days before nothing is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.archive.layout import Place
    from tokiod.tts.live.files import Files

log = structlog.get_logger()

WARNING_DAYS = 7
"""Days before the disk is full, as far as that can be told, from which on it is said."""
SAID_AGAIN = 3600.0


@dataclass(slots=True)
class Room:
    """How much of the disk is left."""

    root: Path
    files: Files
    _said: float = float("-inf")

    def is_scarce(self, current: list[Place], now: float) -> bool:
        """Tell whether tomorrow's files and a growth don't fit any more; warn where there are but a few days of them left."""
        sizes = [place.path.stat().st_size for place in current]
        daily, ahead = sum(sizes), sum(sizes) + max(sizes, default=0)
        free = self.files.free_space(self.root)
        if daily and free - ahead < WARNING_DAYS * daily and not 0 <= now - self._said < SAID_AGAIN:
            self._said = now
            log.warning(
                "disk.low",
                path=str(self.root),
                free_mib=free >> 20,
                daily_mib=daily >> 20,
                days_left=max(0, free - ahead) // daily,
                reason="live files of a day take daily_mib; make room, or nothing can be stored when tomorrow's don't fit",
            )
        return free < ahead
