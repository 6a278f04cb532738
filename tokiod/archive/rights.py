"""The rights on an archive and on the daemon's sockets.

    the daemon's user         writes all of it
    its group, the readers    reads the files of the days and .tokiod-readers, and connects to the feed
    other users               nothing

    .tokiod                   0700: the ledger and the lock
    .tokiod-readers           0750: which process writes the archive, and a copy of the ledger
    the bus's directory       0700: the bus, the control socket, the running configuration, the counts of metrics
    the stages' directory     0750: when each stage of each window began, as the ledger's copy names them

A right to read is a right to lock: a reader with the lock open could keep the daemon from starting, and one with the ledger's shared
memory open could keep it from recording. So readers get copies of both.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from tokiod.errors import TokiodError
from tokiod.runtime.users import user_name

if TYPE_CHECKING:
    from pathlib import Path

PRIVATE_DIRECTORY_MODE, PRIVATE_FILE_MODE = 0o700, 0o600
SHARED_DIRECTORY_MODE, SHARED_FILE_MODE = 0o750, 0o640


def make_private(directory: Path) -> None:
    """Make a directory for this user alone, or accept an existing one. Raises OSError, and TokiodError for one of another user."""
    _make(directory, PRIVATE_DIRECTORY_MODE)


def make_shared(directory: Path) -> None:
    """Make a directory that readers may enter. As make_private()."""
    _make(directory, SHARED_DIRECTORY_MODE)


def _make(directory: Path, mode: int) -> None:
    if not directory.exists():
        refuse_root(directory)
    directory.mkdir(mode=mode, exist_ok=True)
    check_private(directory)


def check_private(directory: Path) -> None:
    """Raise TokiodError for a directory of another user, or in which others may write; a missing one is accepted."""
    try:
        status = directory.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise TokiodError(f"{directory} can't be used: {error.strerror}; run this as the daemon's user") from None
    if status.st_uid not in {0, os.geteuid()} or status.st_mode & stat.S_IWOTH:
        raise TokiodError(f"{directory} must belong to the daemon's user, and other users must not be able to write to it")


def refuse_root(directory: Path) -> None:
    """Raise TokiodError for root in the directory of another user, to whom the files that root makes would be foreign.

    A directory that does not exist belongs to the owner of the nearest one above it: the daemon may not have run yet.
    """
    if os.geteuid() != 0:
        return
    there = next(path for path in (directory, *directory.parents) if path.exists())
    owner = there.stat().st_uid
    if owner != 0:
        raise TokiodError(f"{there} belongs to user {user_name(owner)}: run this as that user: `runuser -u {user_name(owner)} -- COMMAND`")
