"""Who does long work on files: at once, or threads that nobody waits for."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWorking
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokiod.tts.live.create import Pause

    Work = Callable[[Pause], None]

BREATH = 0.005
"""Seconds between two pieces of work, for the windows that wait for the disk."""

LAST = 19
"""The lowest priority that Linux has: a thread's own, so that whoever stores windows gets the processor first."""


class Stopped(OSError):  # noqa: N818 - what has happened
    """Work was given up on demand."""


class Job(Protocol):
    """Work that was begun."""

    def is_done(self, seconds: float = 0.0) -> bool:
        """Whether it is over, one way or another; wait for that so long."""
        ...

    def error(self) -> BaseException | None:
        """Return what it raised. For work that is over."""
        ...

    def result(self) -> None:
        """Raise what it raised. For work that is over."""
        ...

    def stop(self) -> None:
        """Give it up at its next pause and wait until it is over."""
        ...


class Workshop(Protocol):
    """Takes work; `urgent` is that for which windows wait."""

    def begin(self, work: Work, *, urgent: bool) -> Job:
        """Begin some work."""
        ...

    def close(self) -> None:
        """Take no more."""
        ...


@dataclass(frozen=True, slots=True)
class _Job:
    future: Future[None]
    stopping: threading.Event

    def is_done(self, seconds: float = 0.0) -> bool:
        try:
            self.future.exception(seconds)
        except StillWorking:
            return False
        return True

    def error(self) -> BaseException | None:
        return self.future.exception()

    def result(self) -> None:
        self.future.result()

    def stop(self) -> None:
        self.stopping.set()
        if not self.future.cancel():
            self.future.exception()


@dataclass(slots=True)
class AtOnce:
    """Does all work before it says that it has begun."""

    pause: Pause

    def begin(self, work: Work, *, urgent: bool) -> Job:  # noqa: ARG002 - all is
        """Do it. What is no Exception passes through."""
        future: Future[None] = Future()
        try:
            work(self.pause)
        except Exception as error:  # noqa: BLE001 - raised where it is asked for
            future.set_exception(error)
        else:
            future.set_result(None)
        return _Job(future, threading.Event())

    def close(self) -> None:
        """Nothing is ever left to do."""


# Threads and no processes: disks and zlib let go of the GIL, and memory and what is known of the files are shared.
class Threads:
    """One thread for what is urgent, one for what can wait for hours, both at the lowest priority."""

    def __init__(self) -> None:
        self._urgent, self._idle = (
            ThreadPoolExecutor(1, thread_name_prefix=name, initializer=_yield_to_all) for name in ("files", "sealing")
        )

    def begin(self, work: Work, *, urgent: bool) -> Job:
        """Let it be done."""
        stopping = threading.Event()

        def pause() -> None:
            if stopping.wait(BREATH):
                raise Stopped

        return _Job((self._urgent if urgent else self._idle).submit(work, pause), stopping)

    def close(self) -> None:
        """Wait for what is being done, which should have been stopped."""
        self._urgent.shutdown()
        self._idle.shutdown()


def _yield_to_all() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LAST)
