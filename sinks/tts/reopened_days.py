"""Sealed days that were reopened for late data: each has a marker, and is sealed again once no more windows come for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.archive.seal_marker import mark, unmark

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.archive.layout import FileSlot
    from tokiod.clock import Clock
    from tokiod.tts.live.files import Files

IDLE_SECONDS = 60.0
"""After this time without a window a reopened day is sealed again."""


class ReopenedFiles:
    """The files that are to be sealed again, and when the last window came for each."""

    def __init__(self, clock: Clock, files: Files) -> None:
        self._clock = clock
        self._files = files
        self._last_used: dict[Path, tuple[FileSlot, float]] = {}

    @property
    def paths(self) -> list[Path]:
        """The paths of all of them, in the order in which they were reopened."""
        return list(self._last_used)

    def add(self, slot: FileSlot) -> None:
        """Mark a file that is about to be reopened. Raises OSError."""
        mark(slot.path)
        # A power loss must not keep the reopened file without its marker: that day would stay live.
        self._files.fsync_directory(slot.path.parent)
        self._last_used[slot.path] = slot, self._clock.time()

    def adopt(self, slot: FileSlot, last_used: float | None) -> None:
        """Add a file that has a marker already, unless it is known. last_used: the clock's time of its last window, None for now."""
        self._last_used.setdefault(slot.path, (slot, self._clock.time() if last_used is None else last_used))

    def note_use(self, slot: FileSlot) -> None:
        """Note that a window came for a file, if it is one of these."""
        if slot.path in self._last_used:
            self._last_used[slot.path] = slot, self._clock.time()

    def idle(self, seconds: float) -> list[FileSlot]:
        """Return those for which no window has come for so long."""
        now = self._clock.time()
        return [slot for slot, used in self._last_used.values() if not 0 <= now - used < seconds]

    def remove(self, path: Path) -> None:
        """Forget a file that is sealed or missing, and remove its marker."""
        self._last_used.pop(path, None)
        unmark(path)
