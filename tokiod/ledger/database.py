"""The ledger's file: its schema, how it is opened, its transactions, and what happens to a corrupt one."""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tokiod.errors import TokiodError
from tokiod.runtime.full_disk import FULL, DiskFull, creation_error
from tokiod.tts.live.files import NameNotDurable, exists, sync_name
from tokiod.window import iso

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION, OLDEST_VERSION = 10, 8
"""The format of a new ledger, and the oldest that gets what it lacks."""
BUSY_SECONDS = 5.0
"""How long a statement waits for another process's transaction."""

SCHEMA = f"""
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
    state TEXT NOT NULL DEFAULT 'unknown', state_reason TEXT NOT NULL DEFAULT '', state_since REAL, data_end INTEGER
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
CREATE TABLE IF NOT EXISTS received_span (
    source TEXT NOT NULL, digest TEXT NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL, PRIMARY KEY (source, digest, start)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS begun (
    source TEXT NOT NULL, digest TEXT NOT NULL, attempts INTEGER NOT NULL, PRIMARY KEY (source, digest)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seam (
    job INTEGER NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL, PRIMARY KEY (job, start)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS file (
    path TEXT PRIMARY KEY, system TEXT NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dropped (
    source TEXT NOT NULL, reason TEXT NOT NULL, example TEXT NOT NULL, remedy TEXT NOT NULL, PRIMARY KEY (source, reason)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS stamp (number INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS changes (
    seq INTEGER PRIMARY KEY, system TEXT NOT NULL, source TEXT NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL, kind TEXT NOT NULL,
    time REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS change_log (epoch INTEGER NOT NULL, trimmed INTEGER NOT NULL, first INTEGER NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS received_content ON received (source, digest);
CREATE INDEX IF NOT EXISTS job_unfinished ON job (source) WHERE state IN ('queued', 'running');
PRAGMA user_version = {VERSION};
"""

LedgerError = sqlite3.Error
"""What a method of an open ledger raises where the file can't be read or written at present, for example on a full disk."""


class LedgerCorrupt(TokiodError):  # noqa: N818 - the field says "corrupt"
    """The file is not a SQLite database, or is damaged."""


class LedgerNotReady(TokiodError):  # noqa: N818 - says its state
    """The file is missing or empty: the writer creates it, or was killed while it did."""


class LedgerUnreadable(TokiodError):  # noqa: N818 - says its state
    """The file can't be opened at present: the disk is full or fails, or another process locks it. It is not a fault of the settings."""


_TRANSIENT = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM})


class Sqlite:
    """SQLite and the sync of its log; a simulation has another, which fails."""

    def connect(self, uri: str) -> sqlite3.Connection:
        """Open the database of a URI. Raises LedgerError."""
        return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)

    def sync(self, log: Path) -> None:
        """Make a write-ahead log durable, and its name where the file system can. Raises OSError."""
        # SQLite locks the file and -shm, so that another descriptor of -wal may be closed.
        with log.open("rb") as file:
            os.fsync(file.fileno())
        with suppress(NameNotDurable):
            sync_name(log)


SQLITE = Sqlite()


class Database:
    """A connection to a ledger's file, which all of the ledger's tables share."""

    def __init__(self, path: Path, sql: sqlite3.Connection, sqlite: Sqlite = SQLITE) -> None:
        self.path = path
        self.sql = sql
        self._sqlite = sqlite

    @classmethod
    def open(cls, path: Path, *, full: bool, sqlite: Sqlite = SQLITE) -> Self:
        """Open or create a file and its directories; full: sync every transaction to the disk.

        Raises LedgerCorrupt, LedgerUnreadable, and TokiodError for any other file that can't be opened or that a newer tokiod wrote.
        """
        if not exists(path.parent):
            path.parent.mkdir(0o700, parents=True, exist_ok=True)
            with suppress(NameNotDurable):
                sync_name(path.parent)
        pragmas = "PRAGMA journal_mode = WAL", f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}"
        return cls(path, _connect(path, "rwc", pragmas, sqlite=sqlite), sqlite)

    @classmethod
    def open_existing(cls, path: Path, sqlite: Sqlite = SQLITE) -> Self:
        """Open a file that the writer has created, for writing. Raises as open(), and LedgerNotReady where the file is missing or empty."""
        if not exists(path):
            raise LedgerNotReady(f"no ledger at {path}: the writer has not created it, or the archive is not mounted")
        return cls(path, _connect(path, "rw", ("PRAGMA synchronous = NORMAL",), sqlite=sqlite), sqlite)

    @classmethod
    def open_readonly(cls, path: Path, *, checked: bool) -> Self:
        """Open a file for reading. Raises as open(), LedgerNotReady, and TokiodError where the file is missing.

        checked: read all pages first to find corruption; otherwise a query may raise sqlite3.DatabaseError, see to_ledger_error().

        SQLite reads a WAL file only with a -shm file next to it, which a process without write permission can't create. Where the -wal
        file is missing too, no process has the ledger open and the file alone is complete.
        """
        if not exists(path):
            raise TokiodError(f"no ledger at {path}: the daemon has never run on this archive")
        try:
            return cls(path, _connect(path, "ro", checked=checked))
        except LedgerCorrupt:
            raise
        except TokiodError:
            if exists(Path(f"{path}-wal")):
                raise
            return cls(path, _connect(path, "ro&immutable=1", checked=checked))

    def reopen(self) -> None:
        """Open the path again: the writer may have created another file. Raises as open_existing(), without effect.

        Only the writer creates a ledger: one that others create would record nothing of what is stored, and pass for the archive's.
        """
        old, self.sql = self.sql, type(self).open_existing(self.path, self._sqlite).sql
        old.close()

    def close(self) -> None:
        """Close the connection."""
        self.sql.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit all statements of the block, or none of them."""
        self.sql.execute("BEGIN IMMEDIATE")
        try:
            yield self.sql
            self.sql.execute("COMMIT")
        except BaseException:
            if self.sql.in_transaction:
                self.sql.execute("ROLLBACK")
            raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all statements of the block read the file as it was at the first of them."""
        self.sql.execute("BEGIN")
        try:
            yield
        finally:
            if self.sql.in_transaction:  # SQLite ends some by itself after an error, which is the one to report
                self.sql.execute("ROLLBACK")

    @contextmanager
    def durable_transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit all statements of the block, or none of them, and sync them to the disk, whatever other transactions do."""
        with self.transaction() as sql:
            yield sql
        try:
            self._sqlite.sync(Path(f"{self.path}-wal"))
        except FileNotFoundError:
            return  # all of it is in the file
        except OSError as error:
            raise LedgerError(f"the ledger can't be synced: {error}") from error


def quarantine(path: Path, now: float) -> Path:
    """Rename a ledger and its companions to .corrupt-TIME and return the new path.

    The file itself is renamed last: after a kill before that, the next writer finds it corrupt again.
    """
    time = iso(now).replace("-", "").replace(":", "")
    renamed = next(name for name in _quarantine_names(path, time) if not exists(name))
    for suffix in ("-wal", "-shm", ""):
        companion = Path(f"{path}{suffix}")
        if exists(companion):
            companion.rename(f"{renamed}{suffix}")
    return renamed


def _quarantine_names(path: Path, time: str) -> Iterator[Path]:
    number = 0
    while True:
        yield path.with_name(f"{path.name}.corrupt-{time}{f'-{number}' if number else ''}")
        number += 1


def _connect(path: Path, mode: str, pragmas: tuple[str, ...] = (), *, checked: bool = True, sqlite: Sqlite = SQLITE) -> sqlite3.Connection:
    connection = None
    try:
        connection = sqlite.connect(f"{path.absolute().as_uri()}?mode={mode}")
        if mode != "rwc":
            _require_schema(connection, path)
        for pragma in pragmas:
            connection.execute(pragma)
        if mode in {"rw", "rwc"}:
            _upgrade(connection, path)
        if checked:
            _check_pages(connection, path)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.DatabaseError):
            raise to_ledger_error(error, path) from None
        raise
    return connection


def _version(connection: sqlite3.Connection, path: Path) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise TokiodError(
            f"the ledger {path} was written by a newer tokiod (format {version}, this version reads up to {VERSION}): install that one"
        )
    if 0 < version < OLDEST_VERSION:
        raise TokiodError(f"the ledger {path} has format {version}, of before the first release: move it away, the writer makes another")
    return int(version)


def _require_schema(connection: sqlite3.Connection, path: Path) -> None:
    if _version(connection, path) == 0:
        raise LedgerNotReady(f"the ledger {path} is still being created: try again")


def _upgrade(connection: sqlite3.Connection, path: Path) -> None:
    if _version(connection, path) < VERSION:  # newer formats only add tables
        connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")


def _check_pages(connection: sqlite3.Connection, path: Path) -> None:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise _corrupt(path, " ".join(verdict.split()))


def is_corruption(error: LedgerError) -> bool:
    """Return whether SQLite reports that a file is damaged or not a database."""
    return _code(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def _code(error: LedgerError) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) & 0xFF)  # an error of the module itself has no code


def to_ledger_error(error: LedgerError, path: Path) -> TokiodError:
    """Return SQLite's error about a ledger as one of tokiod's, with the path and the way out."""
    if is_corruption(error):
        return _corrupt(path, str(error))
    # SQLite does not report why it can't create the file, or one of those next to it.
    if _code(error) == sqlite3.SQLITE_CANTOPEN and (cause := creation_error(path.parent)) is not None and cause.errno in FULL:
        return DiskFull("the ledger can't be opened", cause, path)
    kind = LedgerUnreadable if _code(error) in _TRANSIENT else TokiodError
    return kind(f"the ledger {path} can't be opened: {error}")


def _corrupt(path: Path, reason: str) -> LedgerCorrupt:
    return LedgerCorrupt(
        f"the ledger {path} is corrupt ({reason}): the writer quarantines it at its next start, or move it away yourself together with "
        f"{path.name}-wal and {path.name}-shm; the archive's files stay as they are, and the sources are queried again"
    )
