"""Run long work on files: inline, or in threads of their own while windows are stored."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokiod.tts.live.create import Pause

    Work = Callable[[Pause], None]

PAUSE_SECONDS = 0.005
"""Between two pieces of work, so that the windows get the disk."""


class WorkCancelled(OSError):  # noqa: N818 - what has happened
    """The work was cancelled at one of its pauses."""


class Job(msgspec.Struct, frozen=True):
    """Work that was submitted."""

    future: Future[None]
    cancelled: threading.Event

    def is_done(self, seconds: float = 0.0) -> bool:
        """Wait for the end of the work up to so many seconds; return whether it has ended, in whichever way."""
        try:
            self.future.exception(seconds)
        except TimeoutError:
            return False
        return True

    def error(self) -> BaseException | None:
        """Return the exception of work that has ended."""
        return self.future.exception()

    def result(self) -> None:
        """Raise the exception of work that has ended."""
        self.future.result()

    def cancel(self) -> None:
        """Cancel the work at its next pause, and wait until it has ended."""
        self.cancelled.set()
        if not self.future.cancel():
            self.future.exception()


class Executor(Protocol):
    """Runs work. Windows wait for urgent work."""

    def submit(self, work: Work, *, urgent: bool) -> Job:
        """Begin some work."""
        ...

    def close(self) -> None:
        """Accept no more work."""
        ...


class InlineExecutor(msgspec.Struct):
    """Does all work before submit() returns."""

    pause: Pause

    def submit(self, work: Work, *, urgent: bool) -> Job:  # noqa: ARG002 - no work can overtake another
        """Do the work. Only exceptions that are no Exception pass through."""
        future: Future[None] = Future()
        try:
            work(self.pause)
        except Exception as error:  # noqa: BLE001 - result() raises it
            future.set_exception(error)
        else:
            future.set_result(None)
        return Job(future, threading.Event())

    def close(self) -> None:
        """Do nothing: no work is ever left."""


# Threads rather than processes: disks and numpy release the GIL, and the state of the files is shared. At the writer's own priority: a
# thread that does not get a processor keeps the GIL, or HDF5's lock, and windows would wait for it. Sealing has a process (seal_process).
class ThreadExecutor:
    """One thread for urgent work and one for work that can wait for hours."""

    def __init__(self) -> None:
        self._urgent, self._idle = (ThreadPoolExecutor(1, thread_name_prefix=name) for name in ("files", "sealing"))

    def submit(self, work: Work, *, urgent: bool) -> Job:
        """Queue the work for its thread."""
        cancelled = threading.Event()

        def pause() -> None:
            if cancelled.wait(PAUSE_SECONDS):
                raise WorkCancelled

        return Job((self._urgent if urgent else self._idle).submit(work, pause), cancelled)

    def close(self) -> None:
        """Wait for the work that is running, which the caller should have cancelled."""
        self._urgent.shutdown()
        self._idle.shutdown()
