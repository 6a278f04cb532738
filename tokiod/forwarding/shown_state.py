"""What a sink's process shows of itself: a file in its state directory, which `tokioctl`, metrics and `status` read."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from tokiod.published.sinks import BEAT_SECONDS, MAX_REASONS, STATE_FILE, SinkState
from tokiod.published.state_file import publish, published
from tokiod.runtime.secrets import mask

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.change_sink import Acknowledged
    from tokiod.clock import Clock
    from tokiod.forwarding.cursor import Cursor

WRITE_SECONDS = 1.0
"""Between two writes, at least, while the state stays the same and only counts grow."""
OTHER = "other"


class ShownState:
    """The state of a sink, and its file. Counts go on where the process before stopped; a failed write is tried again."""

    def __init__(self, directory: Path, name: str, kind: str, clock: Clock, real: Clock) -> None:
        self._path = directory / STATE_FILE
        self._clock, self._real = clock, real
        self._written_at = float("-inf")
        found = SinkState(name=name, kind=kind)
        with suppress(PermissionError):
            found, _ = published(self._path, SinkState) or (found, 0.0)
        self.now = msgspec.structs.replace(found, name=name, kind=kind, state="running", reason="", trouble="", pid=os.getpid())

    def change(self, state: str, reason: str = "") -> None:
        """Set the state, and write it at once. reason: of waiting and fatal, also the last error."""
        masked = mask(reason)
        self.now = msgspec.structs.replace(self.now, state=state, reason=masked)
        if reason:
            self.now = msgspec.structs.replace(self.now, last_error=masked, last_error_at=self._clock.time())
        self._write()

    def acknowledged(self, done: Acknowledged) -> None:
        """Add what the receiver acknowledged and rejected."""
        rejected = dict(self.now.rejected)
        for reason, count in done.rejected.items():
            known = reason if reason in rejected or len(rejected) < MAX_REASONS else OTHER
            rejected[known] = rejected.get(known, 0) + count
        records = self.now.records + done.records
        self.now = msgspec.structs.replace(self.now, records=records, rejected=rejected, acknowledged_at=self._clock.time())

    def at(self, cursor: Cursor | None, waiting: int, oldest: float | None) -> None:
        """Set the cursor, and how many changes follow it since when."""
        if cursor is not None:
            lag = 0 if oldest is None else max(0, int(self._clock.time() - oldest))
            self.now = msgspec.structs.replace(
                self.now, epoch=cursor.epoch, cursor=cursor.seq, backlog=cursor.backlog_seconds, lag_windows=waiting, lag=lag
            )

    def write_if_due(self, *, is_changed: bool) -> None:
        """Write the state if counts changed, and as a sign of life."""
        if self._real.monotonic() - self._written_at >= (WRITE_SECONDS if is_changed else BEAT_SECONDS):
            self._write()

    def _write(self) -> None:
        self._written_at = self._real.monotonic()
        publish(self._path, self.now)
