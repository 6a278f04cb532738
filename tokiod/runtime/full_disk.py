"""A full disk: which errors report it, and what its file system lacks."""

from __future__ import annotations

import errno
import os
import tempfile
from typing import TYPE_CHECKING

from tokiod.errors import TokiodError

if TYPE_CHECKING:
    from pathlib import Path

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a full disk. Code that writes files of the archive adds the file's name."""


SPARE_BYTES = 16 << 20
"""With less, a disk counts as full where something is not stored: a small file of a day still fits."""


class DiskFull(TokiodError):  # noqa: N818 - says its state
    """A file or directory can't be made because the disk is full at present. It is not a fault of the settings."""

    def __init__(self, what: str, error: OSError, path: Path) -> None:
        super().__init__(f"{what}: {error.strerror}: {path}; {_lack(path)} on its file system: remove files, or enlarge it")


def creation_error(directory: Path) -> OSError | None:
    """Return why no file can be made in a directory at present, None if one can: libraries report less than the system does."""
    try:
        with tempfile.TemporaryFile(dir=directory):
            return None
    except OSError as error:
        return error


def shortage(path: Path) -> str:
    """Return what the file system of a path is short of, empty if it has some room; for a report of why nothing is stored."""
    try:
        status = os.statvfs(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    free = status.f_bavail * status.f_frsize
    if free >= SPARE_BYTES and (status.f_favail or not status.f_files):
        return ""
    return f"the disk of {path} is full: {f'{free / 2**20:.0f} MiB are' if free < SPARE_BYTES else 'no inode is'} free"


def _lack(path: Path) -> str:
    """Return what is missing on the file system of a path, which need not exist."""
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    status = os.statvfs(existing)
    return "no inode is free" if status.f_files and not status.f_favail else "no space is free for this user"
