"""A file that was found in a watched folder."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from tokiod.ledger.received_files import printable

if TYPE_CHECKING:
    import os
    from pathlib import Path

_UNFINISHED = (".tmp", ".part", ".partial", ".swp", "~")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as it was at one moment: another size or time means another content. owner: its user, -1 if unknown."""

    path: Path
    inode: int
    size: int
    mtime_ns: int
    owner: int = field(default=-1, compare=False)

    @classmethod
    def of(cls, path: Path, status: os.stat_result) -> Self | None:
        """Return a file with its status; None if it is not a regular file with one name, or has the name of an unfinished file."""
        is_regular = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        is_unfinished = path.name.startswith(".") or path.name.endswith(_UNFINISHED)
        return cls(path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_uid) if is_regular and not is_unfinished else None

    @property
    def shown(self) -> str:
        """The path in UTF-8, for the ledger, logs and messages."""
        return printable(str(self.path))
