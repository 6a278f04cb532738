"""End the commands that a killed process of the daemon leaves running.

Commands (mmperfmon, lfs) are children of the collectors in sessions of their own, so they survive a SIGKILL of the collectors and could
wait for their server forever. The supervisor is the reaper of its descendants: orphans become its children, and it ends them.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Collection

PR_SET_CHILD_SUBREAPER = 36

log = structlog.get_logger()


def become_subreaper() -> frozenset[int]:
    """Become the parent of all orphaned descendants; return the children that exist already, which are not orphans."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")
    return frozenset(_orphans(()))


def end_orphans(own: Collection[int]) -> list[int]:
    """Send SIGKILL to all children except our own, and to the process groups that they lead; return their pids."""
    reap_orphans(own)
    found = _orphans(own)
    for pid in found:
        log.warning("orphan.killed", pid=pid, command=_command(pid))
        # A command leads a group; a member of a group whose leader has ended does not.
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return found


def reap_orphans(own: Collection[int]) -> None:
    """Collect the exit codes of orphans that have ended."""
    try:
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return  # no child has ended: the usual case, at the price of one system call
    except ChildProcessError:
        return
    for pid in _orphans(own):
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _orphans(own: Collection[int]) -> list[int]:
    try:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()
    except OSError:
        return []  # a kernel without CONFIG_PROC_CHILDREN
    return [pid for pid in map(int, children) if pid not in own]


def _command(pid: int) -> str:
    """Return the name of a program; not its arguments, which may contain secrets."""
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""
