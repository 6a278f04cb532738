"""Whether the ledger that a writer has open is still the archive's: others may take it away, put another in its place, or damage it.

A process keeps what it has open: it would go on telling a file without a name, and nobody would ever read it.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from tokiod.errors import TokiodError
from tokiod.ledger.database import LedgerCorrupt

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokiod.ledger.ledger import Ledger

EVERY = 600.0
"""Seconds between two looks at all of its pages: a megabyte takes some milliseconds."""


class LedgerLost(Exception):  # noqa: N818 - what has happened
    """What is said to the ledger is lost; a writer that starts makes one, or sets this one aside, and has the files tell the rest."""


class Watch:
    """Looks at a ledger from when it was opened on, which is when its log was made too; monotonic: the clock's."""

    def __init__(self, ledger: Ledger, monotonic: Callable[[], float]) -> None:
        self._ledger = ledger
        self._monotonic = monotonic
        self._checked = monotonic()
        self._parts = {path: _inode(path) for path in (ledger.path, Path(f"{ledger.path}-wal"))}

    def __call__(self) -> None:
        """Raise LedgerLost where it is gone, another or corrupt. One whose directory is gone is not: its file system is not mounted."""
        for path, inode in self._parts.items():
            now = _inode(path)
            if (now is None or now != inode) and path.parent.exists():
                raise LedgerLost(f"{path} was {'taken away' if now is None else 'replaced by another'}")
        if self._monotonic() - self._checked >= EVERY:
            self._checked = self._monotonic()
            self._check()

    # A connection of its own reads what is on the disk: ours has pages in memory.
    def _check(self) -> None:
        try:
            self._ledger.open_readonly(self._ledger.path).close()
        except LedgerCorrupt as error:
            raise LedgerLost(f"{self._ledger.path} is corrupt") from error
        except TokiodError:
            return  # it can't be looked at just now, which whoever writes to it will say


def blame(error: sqlite3.Error) -> None:
    """Raise LedgerLost if an error says that the file is no ledger any more."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        raise LedgerLost(f"it is corrupt ({error})") from error


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
