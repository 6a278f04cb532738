"""What every process of the daemon does for itself: die with its parent, stop on a signal, take what the system gives."""

from __future__ import annotations

import ctypes
import os
import resource
import signal

PR_SET_PDEATHSIG = 1
M_ARENA_MAX = -8


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGTERM when the parent dies; leave at once if that has already happened."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        raise SystemExit(0)


def one_heap() -> None:
    """Let all threads share one heap, where the C library has several.

    glibc gives each thread its own, and what one thread has freed another doesn't use: memory grew with the number of windows.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def many_descriptors() -> None:
    """Take as many descriptors as the limits allow: each subscriber and each stranger at the door costs one, and so does each file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Asked:
    """Set by signals; asked by a loop between two pieces of work."""

    def __init__(self, *signals: signal.Signals) -> None:
        self._is_set = False
        for number in signals:
            signal.signal(number, self._set)

    def __call__(self) -> bool:
        """Say whether a signal came since this was cleared."""
        return self._is_set

    def clear(self) -> None:
        """Wait for the next."""
        self._is_set = False

    def _set(self, _number: int, _frame: object) -> None:
        self._is_set = True
