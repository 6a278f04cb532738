"""What came out of watched folders, in the ledger.

received     one row per file: where it was, how it looked, its content's digest, what became of it
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tokiod.ledger.ledger import Ledger

Fate = Literal["collected", "rejected"]
_UNFINISHED = (".tmp", ".part", ".partial", ".swp", "~")


@dataclass(frozen=True, slots=True)
class Found:
    """A file as it stood at one moment: other size or time, other content."""

    path: Path
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def at(cls, path: Path) -> Self | None:
        """Look at a path; None where there is no regular file (any more), or one that its name says is not finished."""
        try:
            status = path.lstat()
        except OSError:
            return None
        regular = stat.S_ISREG(status.st_mode)
        unfinished = path.name.startswith(".") or path.name.endswith(_UNFINISHED)
        return cls(path, status.st_ino, status.st_size, status.st_mtime_ns) if regular and not unfinished else None


@dataclass(frozen=True, slots=True)
class Totals:
    """Contents collected and rejected."""

    collected: int = 0
    rejected: int = 0


class Received:
    """The files of one source. Raises sqlite3.Error."""

    def __init__(self, ledger: Ledger, source: str) -> None:
        self._ledger = ledger
        self._source = source

    def knows(self, found: Found) -> bool:
        """Whether a file was dealt with and looks as it did then, so that its content need not be read again."""
        query = "SELECT 1 FROM received WHERE source = ? AND path = ? AND inode = ? AND size = ? AND mtime_ns = ?"
        row = (self._source, str(found.path), found.inode, found.size, found.mtime_ns)
        return self._ledger.sql.execute(query, row).fetchone() is not None

    def fate(self, digest: str) -> Fate | None:
        """Return what became of a content, wherever it was."""
        query = "SELECT fate FROM received WHERE source = ? AND digest = ? LIMIT 1"
        row = self._ledger.sql.execute(query, (self._source, digest)).fetchone()
        return row[0] if row else None

    def note(self, found: Found, digest: str, fate: Fate, reason: str, now: float) -> None:
        """Say what became of a file; a content that is collected is not rejected any more."""
        row = (self._source, str(found.path), found.inode, found.size, found.mtime_ns, digest, fate, reason, now)
        with self._ledger.transaction() as sql:
            if fate == "collected":
                sql.execute("DELETE FROM received WHERE source = ? AND digest = ? AND fate = 'rejected'", (self._source, digest))
            sql.execute("INSERT OR REPLACE INTO received VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def forget(self, before: float, there: Iterable[Path]) -> None:
        """Let go of files that were dealt with before a time and are not there any more."""
        kept = {str(path) for path in there}
        query = "SELECT path FROM received WHERE source = ? AND time < ?"
        gone = [(self._source, path) for (path,) in self._ledger.sql.execute(query, (self._source, before)) if path not in kept]
        with self._ledger.transaction() as sql:
            sql.executemany("DELETE FROM received WHERE source = ? AND path = ?", gone)

    def totals(self) -> Totals:
        """Count contents."""
        query = "SELECT fate, count(DISTINCT digest) FROM received WHERE source = ? GROUP BY fate"
        return Totals(**dict(self._ledger.sql.execute(query, (self._source,)).fetchall()))
