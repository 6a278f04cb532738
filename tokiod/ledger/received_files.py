"""The files of watched folders in the ledger.

received         one row per file: its path, its inode, size and time, the digest of its content, its outcome
received_span    which spans of time a collected content has samples in
begun            contents whose collection began and has not ended, with the number of attempts
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable
    from pathlib import Path

    from tokiod.ledger.database import Database
    from tokiod.ledger.found_file import FoundFile
    from tokiod.window import Window

MAX_GONE = 50_000
"""Rows of files that no longer exist: a user who may write to a folder could make any number of them within the retention."""
FileOutcome = Literal["collected", "rejected"]


def printable(text: str) -> str:
    """Return a text that is UTF-8: the bytes of a name that are not are escaped."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class Totals(msgspec.Struct, frozen=True):
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
        row = (self._source, found.shown, found.inode, found.size, found.mtime_ns)
        return self._database.sql.execute(query, row).fetchone() is not None

    def outcome(self, digest: str) -> FileOutcome | None:
        """Return the outcome of a content, at any path."""
        query = "SELECT fate FROM received WHERE source = ? AND digest = ? LIMIT 1"
        row = self._database.sql.execute(query, (self._source, digest)).fetchone()
        return row[0] if row else None

    def begin(self, digest: str) -> int:
        """Record that an attempt at a content begins; return how many began before and never ended."""
        with self._database.transaction() as sql:
            sql.execute("INSERT INTO begun VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET attempts = attempts + 1", (self._source, digest))
            query = "SELECT attempts - 1 FROM begun WHERE source = ? AND digest = ?"
            return int(sql.execute(query, (self._source, digest)).fetchone()[0])

    def end(self, digest: str) -> None:
        """Record that an attempt ended, however it did."""
        with self._database.transaction() as sql:
            sql.execute("DELETE FROM begun WHERE source = ? AND digest = ?", (self._source, digest))

    def has_unended(self) -> bool:
        """Return whether an attempt began and never ended."""
        return self._database.sql.execute("SELECT 1 FROM begun WHERE source = ? LIMIT 1", (self._source,)).fetchone() is not None

    def forget_unended(self, existing: Iterable[FoundFile]) -> None:
        """Forget the attempts that never ended, if all existing files are recorded: their files are gone. No attempt may be running."""
        if self.has_unended() and all(map(self.knows, existing)):
            with self._database.transaction() as sql:
                sql.execute("DELETE FROM begun WHERE source = ?", (self._source,))

    def record(  # noqa: PLR0913, PLR0917 - the columns of a row
        self, found: FoundFile, digest: str, outcome: FileOutcome, reason: str, now: float, spans: Iterable[Window] = ()
    ) -> list[str]:
        """Record the outcome of a file, and the spans of a content that was collected; a collected content is no longer rejected.

        The attempt at the content has ended with that, even if its process is killed before it calls end().
        Forget the newer files whose samples this older one may have replaced, and return their paths: they must be collected again.
        """
        row = (self._source, found.shown, found.inode, found.size, found.mtime_ns, digest, outcome, reason, now)
        with self._database.transaction() as sql:
            if outcome == "collected":
                sql.execute("DELETE FROM received WHERE source = ? AND digest = ? AND fate = 'rejected'", (self._source, digest))
            sql.execute("INSERT OR REPLACE INTO received VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            sql.execute("DELETE FROM begun WHERE source = ? AND digest = ?", (self._source, digest))
            edges = [(self._source, digest, span.start, span.end) for span in spans]
            sql.executemany("INSERT OR REPLACE INTO received_span VALUES (?, ?, ?, ?)", edges)
            return _forget_newer(sql, self._source, found.mtime_ns, digest) if edges else []

    def forget(self, before: float, existing: Iterable[Path]) -> None:
        """Delete the rows of files that no longer exist and were recorded before a time, or are beyond the newest MAX_GONE of them."""
        kept = {printable(str(path)) for path in existing}
        query = "SELECT path FROM received WHERE source = ? AND time < ?"
        gone = [(self._source, path) for (path,) in self._database.sql.execute(query, (self._source, before)) if path not in kept]
        (rows,) = self._database.sql.execute("SELECT count(*) FROM received WHERE source = ?", (self._source,)).fetchone()
        if rows - len(gone) > MAX_GONE:
            newest = "SELECT path FROM received WHERE source = ? AND time >= ? ORDER BY time DESC"
            recent = [(self._source, path) for (path,) in self._database.sql.execute(newest, (self._source, before)) if path not in kept]
            gone += recent[MAX_GONE:]
        with self._database.transaction() as sql:
            sql.executemany("DELETE FROM received WHERE source = ? AND path = ?", gone)
            _delete_unknown_spans(sql, self._source)

    def forget_collected(self) -> None:
        """Forget all contents that were collected, so that they are collected again."""
        with self._database.transaction() as sql:
            sql.execute("DELETE FROM received WHERE source = ? AND fate = 'collected'", (self._source,))
            _delete_unknown_spans(sql, self._source)

    def totals(self) -> Totals:
        """Count the contents by outcome."""
        query = "SELECT fate, count(DISTINCT digest) FROM received WHERE source = ? GROUP BY fate"
        return Totals(**dict(self._database.sql.execute(query, (self._source,)).fetchall()))


def forget_window(sql: sqlite3.Connection, source: str, window: Window) -> None:
    """Forget the contents of a source that were collected and have samples in a window, inside a transaction of the ledger.

    Also those without spans, which an earlier tokiod recorded.
    """
    spans = "SELECT digest FROM received_span WHERE source = :source"
    sql.execute(
        f"""DELETE FROM received WHERE source = :source AND fate = 'collected'
            AND (digest NOT IN ({spans}) OR digest IN ({spans} AND start < :end AND "end" > :start))""",  # noqa: S608 - our own words
        {"source": source, "start": window.start, "end": window.end},
    )
    _delete_unknown_spans(sql, source)


def _forget_newer(sql: sqlite3.Connection, source: str, mtime_ns: int, digest: str) -> list[str]:
    """Forget the collected contents that are newer than a time and have a span in common with another content; return their paths."""
    own = {"source": source, "mtime_ns": mtime_ns, "digest": digest}
    newer = """SELECT digest FROM received WHERE source = :source AND fate = 'collected' AND digest != :digest
               GROUP BY digest HAVING min(mtime_ns) > :mtime_ns"""
    overlapping = f"""SELECT DISTINCT other.digest FROM received_span AS other JOIN received_span AS own
                      ON own.source = :source AND own.digest = :digest AND other.start < own."end" AND other."end" > own.start
                      WHERE other.source = :source AND other.digest IN ({newer})"""  # noqa: S608 - our own words
    found = [(source, other) for (other,) in sql.execute(overlapping, own)]
    paths = [path for one in found for (path,) in sql.execute("SELECT path FROM received WHERE source = ? AND digest = ?", one)]
    sql.executemany("DELETE FROM received WHERE source = ? AND digest = ?", found)
    sql.executemany("DELETE FROM received_span WHERE source = ? AND digest = ?", found)
    return sorted(paths)


def _delete_unknown_spans(sql: sqlite3.Connection, source: str) -> None:
    known = "SELECT digest FROM received WHERE source = :source"
    sql.execute(f"DELETE FROM received_span WHERE source = :source AND digest NOT IN ({known})", {"source": source})  # noqa: S608
