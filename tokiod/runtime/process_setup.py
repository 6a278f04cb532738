"""Setup of a process of the daemon: how it is started, its rights, its end with the parent, one heap, limits."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class _Closed(Protocol):
    def close(self) -> None: ...


P = TypeVar("P", bound=_Closed)

PR_SET_PDEATHSIG = 1
M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -8, -3, -1
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
UMASK = 0o027
"""What a process of the daemon never grants by itself: the group may not write its files, and other users may not access them."""


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of tokiod. -P: it imports nothing from the current directory, nor do its own children."""
    return [sys.executable, "-P", "-m", module, *arguments]


def restrict_rights() -> None:
    """Make no file that other users can read, and no core dump, which would contain passwords; a stricter umask stays."""
    os.umask(os.umask(UMASK) | UMASK)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def leave_network() -> str:
    """Move this process, which has one thread, to a network without any interface; return why it could not be moved, empty if it was.

    That needs a user namespace of its own, which a kernel or a unit may deny, or root. Files are accessed as before.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 or libc.unshare(CLONE_NEWNET) == 0:
        return ""
    return os.strerror(ctypes.get_errno())


def die_with_parent(parent: int) -> None:
    """Receive SIGTERM when the parent dies; exit at once if it has died already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        raise SystemExit(0)


def use_one_heap() -> None:
    """Make all threads share one heap, where the C library has several.

    glibc gives each thread its own, and a thread can't use what another has freed: memory grew with the number of windows.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def keep_freed_memory(mebibytes: int) -> None:
    """Let the C library keep up to so much freed memory, where it would give it back to the kernel.

    For a process that copies buffers of about a megabyte all the time: each of them would cost its page faults again, a quarter of the
    processor time of a sink of Kafka, and 6 to 12 % of that of one or two hours of LMT's rows to a sealed file.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, mebibytes << 19)
        mallopt(M_TRIM_THRESHOLD, mebibytes << 20)


def raise_descriptor_limit() -> None:
    """Raise the soft limit of descriptors to the hard one: each file, each subscriber and each refused connection needs one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def limited(make: Callable[[], P], *, descriptors: int, data_bytes: int) -> Iterator[P]:
    """Make, and close, what serves clients that may be hostile, within limits of this process.

    descriptors: the soft limit, or three quarters of the hard one where that is less: see spare_descriptors(). data_bytes: that may be
    allocated (RLIMIT_DATA) beyond what the process has once that is made.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(descriptors, hard * 3 // 4), hard))
    made = make()
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    most = int(fields["VmData"].split()[0]) * 1024 + data_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    try:
        yield made
    finally:
        made.close()


@contextmanager
def spare_descriptors() -> Iterator[None]:
    """Raise the soft limit to the hard one, so that a process of whose descriptors clients have taken all can open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def free_unused_memory() -> None:
    """Return freed memory to the system, where the C library keeps it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
