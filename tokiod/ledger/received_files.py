"""The files of watched folders in the ledger.

received     one row per file: its path, its inode, size and time, the digest of its content, its outcome
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tokiod.ledger.database import Database

FileOutcome = Literal["collected", "rejected"]
_UNFINISHED = (".tmp", ".part", ".partial", ".swp", "~")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as it was at one moment: another size or time means another content."""

    path: Path
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def at(cls, path: Path) -> Self | None:
        """Return the file at a path; None if it is missing, not a regular file, or has the name of an unfinished file."""
        try:
            status = path.lstat()
        except OSError:
            return None
        regular = stat.S_ISREG(status.st_mode)
        unfinished = path.name.startswith(".") or path.name.endswith(_UNFINISHED)
        return cls(path, status.st_ino, status.st_size, status.st_mtime_ns) if regular and not unfinished else None


@dataclass(frozen=True, slots=True)
class Totals:
    """How many contents were collected and rejected."""

    collected: int = 0
    rejected: int = 0


class ReceivedFiles:
    """The received files of one source. Raises LedgerError."""

    def __init__(self, database: Database, source: str) -> None:
        self._database = database
        self._source = source

    def knows(self, found: FoundFile) -> bool:
        """Return whether a file is recorded and unchanged since, so that its content need not be read again."""
        query = "SELECT 1 FROM received WHERE source = ? AND path = ? AND inode = ? AND size = ? AND mtime_ns = ?"
        row = (self._source, str(found.path), found.inode, found.size, found.mtime_ns)
        return self._database.sql.execute(query, row).fetchone() is not None

    def outcome(self, digest: str) -> FileOutcome | None:
        """Return the outcome of a content, at any path."""
        query = "SELECT fate FROM received WHERE source = ? AND digest = ? LIMIT 1"
        row = self._database.sql.execute(query, (self._source, digest)).fetchone()
        return row[0] if row else None

    def record(self, found: FoundFile, digest: str, outcome: FileOutcome, reason: str, now: float) -> None:
        """Record the outcome of a file; a collected content is no longer rejected."""
        row = (self._source, str(found.path), found.inode, found.size, found.mtime_ns, digest, outcome, reason, now)
        with self._database.transaction() as sql:
            if outcome == "collected":
                sql.execute("DELETE FROM received WHERE source = ? AND digest = ? AND fate = 'rejected'", (self._source, digest))
            sql.execute("INSERT OR REPLACE INTO received VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def forget(self, before: float, existing: Iterable[Path]) -> None:
        """Delete the rows of files that were recorded before a time and no longer exist."""
        kept = {str(path) for path in existing}
        query = "SELECT path FROM received WHERE source = ? AND time < ?"
        gone = [(self._source, path) for (path,) in self._database.sql.execute(query, (self._source, before)) if path not in kept]
        with self._database.transaction() as sql:
            sql.executemany("DELETE FROM received WHERE source = ? AND path = ?", gone)

    def totals(self) -> Totals:
        """Count the contents by outcome."""
        query = "SELECT fate, count(DISTINCT digest) FROM received WHERE source = ? GROUP BY fate"
        return Totals(**dict(self._database.sql.execute(query, (self._source,)).fetchall()))
