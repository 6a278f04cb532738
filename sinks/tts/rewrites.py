"""The rewrites of an archive's files that are in progress next to storing windows: at most one per file."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec

from tokiod.metrics.stages import Rewriting

if TYPE_CHECKING:
    from pathlib import Path

    from sinks.tts.rewrite_worker import Executor, Job
    from tokiod.archive.layout import FileSlot
    from tokiod.tts.live.create import Pause
    from tokiod.tts.live.live_file import LiveFile
    from tokiod.tts.live.rewrite import Rewrite

Change = Literal["made", "grown", "opened", "sealed"]

WAIT_SECONDS = 0.02
"""How long a window waits for its file to be created or grown: a small one is ready by then, and the window need not come again. A file
that is queued after another awaited one is not ready by then: windows of twenty new systems would wait for each other."""

LEFT_SECONDS = 600.0
"""How long a failed rewrite is left to the window that waits for it. A source that was removed never sends that again, and as long as the
rewrite is pending, the file can't be sealed."""


class PendingRewrite(msgspec.Struct):
    """A rewrite that was begun. awaited: the clock's monotonic time when a window was last refused because of it, None if none was."""

    slot: FileSlot
    change: Change
    rewrite: Rewrite
    job: Job
    stage: Rewriting
    awaited: float | None = None

    @property
    def has_failed(self) -> bool:
        """Whether its work has ended with an exception."""
        return self.job.is_done() and self.job.error() is not None

    def is_left_to_window(self, now: float) -> bool:
        """Return whether it has failed and the window that waits for it is to be refused with the reason, unless that never came."""
        return self.awaited is not None and now - self.awaited < LEFT_SECONDS and self.has_failed


class RewriteQueue:
    """The rewrites in progress, by the path of their file."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._pending: dict[Path, PendingRewrite] = {}
        self._replaced: list[Rewrite] = []

    def at(self, path: Path) -> PendingRewrite | None:
        """Return the rewrite of a file that is in progress."""
        return self._pending.get(path)

    @property
    def is_pending(self) -> bool:
        """Whether a rewrite is in progress."""
        return bool(self._pending)

    def pending(self) -> list[PendingRewrite]:
        """Return all rewrites in progress."""
        return list(self._pending.values())

    def begin(self, slot: FileSlot, change: Change, rewrite: Rewrite) -> PendingRewrite:
        """Submit the work of a rewrite; sealing is never urgent."""
        stage = Rewriting(change, slot)
        job = self._executor.submit(rewrite.work, urgent=change != "sealed")
        self._pending[slot.path] = pending = PendingRewrite(slot, change, rewrite, job, stage)
        return pending

    def wait_for(self, pending: PendingRewrite, now: float) -> bool:
        """Return whether a rewrite that a window needs is done, after waiting for it a moment. now: the clock's monotonic time."""
        is_queued = any(other.awaited is not None and other is not pending and not other.job.is_done() for other in self._pending.values())
        if pending.job.is_done(0.0 if is_queued else WAIT_SECONDS):
            return True
        pending.awaited = now
        return False

    def done(self) -> list[PendingRewrite]:
        """Return the rewrites whose work has ended and that only have to be finished."""
        return [pending for pending in self._pending.values() if pending.job.is_done()]

    def finish(self, pending: PendingRewrite) -> LiveFile | None:
        """Put the new file in place and return it, opened; None if it is sealed. The replaced one stays open until release().

        Raises what the work raised, and OSError.
        """
        del self._pending[pending.slot.path]
        try:
            pending.job.result()
            made = pending.rewrite.finish()
        except Exception:
            pending.stage.end(is_done=False)
            pending.rewrite.abandon()
            raise
        pending.stage.end()
        self._replaced.append(pending.rewrite)
        return made

    # Not by finish(): while the system frees the blocks of a day's file, the sync of the new one's name waits.
    def release(self) -> None:
        """Begin to close the files that were replaced, next to the windows: it takes 0.2 s for a gigabyte."""
        for rewrite in self._replaced:
            self._executor.submit(partial(_release, rewrite), urgent=True)
        self._replaced.clear()

    def cancel(self, path: Path) -> None:
        """Cancel the rewrite of a file, if there is one, and remove its temporary file."""
        if (pending := self._pending.pop(path, None)) is not None:
            pending.job.cancel()
            pending.stage.end(is_done=False)
            pending.rewrite.abandon()

    def close(self) -> None:
        """Cancel all rewrites."""
        for path in list(self._pending):
            self.cancel(path)
        self.release()
        self._executor.close()


def _release(rewrite: Rewrite, _pause: Pause) -> None:
    rewrite.release()
