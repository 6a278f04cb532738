"""The ledger's file: its schema, how it is opened, and what becomes of one that is corrupt."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from tokiod.errors import TokiodError
from tokiod.window import iso

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = 5
BUSY_SECONDS = 5.0

SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS stored (
    source TEXT NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL, PRIMARY KEY (source, start)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS unstored (
    source TEXT NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL,
    error_class TEXT NOT NULL, error TEXT NOT NULL, last_try REAL NOT NULL, next_try REAL, PRIMARY KEY (source, start)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS source (
    name TEXT PRIMARY KEY, kind TEXT NOT NULL, system TEXT NOT NULL, step INTEGER, length INTEGER, retention INTEGER, since INTEGER,
    last_start INTEGER, last_end INTEGER, last_cells INTEGER NOT NULL DEFAULT 0, stored_at REAL,
    windows INTEGER NOT NULL DEFAULT 0, cells INTEGER NOT NULL DEFAULT 0, dropped TEXT NOT NULL DEFAULT '{{}}',
    state TEXT NOT NULL DEFAULT 'unknown', state_reason TEXT NOT NULL DEFAULT '', state_since REAL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS job (
    id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL, datasets TEXT NOT NULL,
    force INTEGER NOT NULL, parallel INTEGER NOT NULL, created REAL NOT NULL, state TEXT NOT NULL DEFAULT 'queued',
    error TEXT NOT NULL DEFAULT '', windows INTEGER NOT NULL DEFAULT 0, records INTEGER NOT NULL DEFAULT 0, updated REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS counted (
    source TEXT NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL, records INTEGER NOT NULL, stored_at REAL NOT NULL,
    stage INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (source, start)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS backfilled (
    job INTEGER NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL, PRIMARY KEY (job, start)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS received (
    source TEXT NOT NULL, path TEXT NOT NULL, inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    digest TEXT NOT NULL, fate TEXT NOT NULL, reason TEXT NOT NULL, time REAL NOT NULL, PRIMARY KEY (source, path)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS file (
    path TEXT PRIMARY KEY, system TEXT NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS stamp (number INTEGER NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS received_content ON received (source, digest);
PRAGMA user_version = {VERSION};
COMMIT;
"""


class LedgerCorrupt(TokiodError):  # noqa: N818 - the field says "corrupt"
    """The file is no ledger, or no longer one."""


class LedgerUnmade(TokiodError):  # noqa: N818 - says what is the case
    """The file is there and empty: the writer is making it, or was killed while it did."""


class LedgerUnreadable(TokiodError):  # noqa: N818 - as above
    """It can't be had just now: the disk is full or fails, or somebody holds it. Nothing that a person must change in tokiod."""


_PASSING = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM})


def connect(path: Path, *, full: bool) -> sqlite3.Connection:
    """Open or create a ledger; full: sync every transaction.

    Raises LedgerCorrupt, and TokiodError for one that can't be opened or that a newer tokiod wrote.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    return _connect(path, "rwc", ("PRAGMA journal_mode = WAL", f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}"))


def connect_readonly(path: Path, *, checked: bool = True) -> sqlite3.Connection:
    """Open a ledger to read it; errors as connect(), and TokiodError where there is none.

    checked: read all of it to see whether it is corrupt; otherwise what a query runs into is told, see understood().

    SQLite reads a WAL file only with a -shm beside it, which a mere reader may not be allowed to make. Where there is no -wal
    either, nobody has the ledger open and the file alone is the whole truth.
    """
    if not path.exists():
        raise TokiodError(f"there is no ledger at {path}: has tokiod ever run on this archive?")
    try:
        return _connect(path, "ro", checked=checked)
    except LedgerCorrupt:
        raise
    except TokiodError:
        if Path(f"{path}-wal").exists():
            raise
        return _connect(path, "ro&immutable=1", checked=checked)


def set_aside(path: Path, now: float) -> Path:
    """Rename a ledger to .corrupt-STAMP with all that belongs to it, itself last: until then it is found corrupt again."""
    stamp = iso(now).replace("-", "").replace(":", "")
    aside = next(name for name in _names(path, stamp) if not name.exists())
    for suffix in ("-wal", "-shm", ""):
        companion = Path(f"{path}{suffix}")
        if companion.exists():
            companion.rename(f"{aside}{suffix}")
    return aside


def _names(path: Path, stamp: str) -> Iterator[Path]:
    number = 0
    while True:
        yield path.with_name(f"{path.name}.corrupt-{stamp}{f'-{number}' if number else ''}")
        number += 1


def _connect(path: Path, mode: str, pragmas: tuple[str, ...] = (), *, checked: bool = True) -> sqlite3.Connection:
    connection = None
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        for pragma in pragmas:
            connection.execute(pragma)
        _take_version(connection, path, create=mode == "rwc")
        if checked:
            _check(connection, path)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.DatabaseError):
            raise understood(error, path) from None
        raise
    return connection


def _take_version(connection: sqlite3.Connection, path: Path, *, create: bool) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise TokiodError(f"the ledger {path} was written by a newer tokiod (format {version}, this one knows {VERSION}): install that one")
    if version == 0 and not create:
        raise LedgerUnmade(f"the ledger {path} is still being made: try again")
    if version < VERSION and create:  # what is new since an older format is tables of their own
        connection.executescript(SCHEMA)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise _corrupt(path, " ".join(verdict.split()))


def understood(error: sqlite3.DatabaseError, path: Path) -> TokiodError:
    """Return what SQLite says of a ledger as an error of ours, with its path and the way out."""
    if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _corrupt(path, str(error))
    kind = LedgerUnreadable if error.sqlite_errorcode & 0xFF in _PASSING else TokiodError
    return kind(f"the ledger {path} can't be opened: {error}")


def _corrupt(path: Path, reason: str) -> LedgerCorrupt:
    return LedgerCorrupt(
        f"the ledger {path} is corrupt ({reason}): the writer sets it aside at its next start, or move it away yourself together with "
        f"{path.name}-wal and {path.name}-shm; the archive's files are not touched by this, the sources are asked again"
    )
