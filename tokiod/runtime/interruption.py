"""Ctrl-C for a command that runs until it is interrupted, or awaits what takes long."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from types import FrameType

T = TypeVar("T")

RAISE_AGAIN_SECONDS = 0.05
"""After an interrupt was discarded: the code that discarded it has ended then, or discards it again."""


# Python reports an exception that is raised in a destructor or a callback of native code to sys.unraisablehook, and discards it. A
# command whose Ctrl-C meets such code would run on.
@contextmanager
def lasting_interrupts() -> Iterator[None]:
    """Raise each KeyboardInterrupt again that Python discards, until the command ends by it or handles it. In the main thread."""
    default_hook = sys.unraisablehook
    armed = []

    def on_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            default_hook(unraisable)
            return
        handler = signal.signal(signal.SIGALRM, _interrupt)
        timer = signal.setitimer(signal.ITIMER_REAL, RAISE_AGAIN_SECONDS)
        armed.append((handler, timer))

    sys.unraisablehook = on_unraisable
    try:
        yield
    finally:
        sys.unraisablehook = default_hook
        if armed:
            handler, timer = armed[0]
            signal.setitimer(signal.ITIMER_REAL, *timer)
            signal.signal(signal.SIGALRM, handler)


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Hold a Ctrl-C back until the end: CPython's C code loses one that comes while it formats an exception, as of a failed look-up."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_until_interrupted(work: Coroutine[Any, Any, T]) -> T:
    """Do as asyncio.run(), with a Ctrl-C that comes between two callbacks of the loop. In the main thread.

    asyncio.run() cancels wherever the signal comes: a callback that has just seen its future pending then finds it done, and logs an error.
    """
    import asyncio  # noqa: PLC0415 - 30 ms, which most commands need not spend

    interrupted = False

    async def interruptible() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def interrupt() -> None:
            nonlocal interrupted
            interrupted = True
            if task is not None:
                task.cancel()
            loop.remove_signal_handler(signal.SIGINT)  # the next one ends what does not yield

        loop.add_signal_handler(signal.SIGINT, interrupt)
        return await work

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
