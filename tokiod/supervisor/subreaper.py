"""What a killed process of ours leaves behind: a command that waits for its server for ever would wait for nobody.

Commands (mmperfmon, lfs) are children of the collectors, in sessions of their own, and outlive a SIGKILL of them. The supervisor is the
reaper of its descendants, so that they become its children, and ends them.
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


def adopt() -> frozenset[int]:
    """Become the parent of what our children leave behind; return the children that are there already, which are nobody's orphans."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")
    return frozenset(_others(()))


def end(own: Collection[int]) -> list[int]:
    """SIGKILL all children but our own, with what they have started; return whom."""
    reap(own)
    found = _others(own)
    for pid in found:
        log.warning("orphan.killed", pid=pid, command=_command(pid))
        # A command leads a group; a part of one that was left does not.
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return found


def reap(own: Collection[int]) -> None:
    """Let those go that have ended."""
    for pid in _others(own):
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _others(own: Collection[int]) -> list[int]:
    try:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()
    except OSError:
        return []  # a kernel without CONFIG_PROC_CHILDREN
    return [pid for pid in map(int, children) if pid not in own]


def _command(pid: int) -> str:
    """Return the name of what runs; its arguments may be anybody's secrets."""
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""
