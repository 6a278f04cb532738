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


def _lack(path: Path) -> str:
    """Return what is missing on the file system of a path, which need not exist."""
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    status = os.statvfs(existing)
    return "no inode is free" if status.f_files and not status.f_favail else "no space is free for this user"
