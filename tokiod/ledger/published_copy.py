"""The copy of the ledger for readers, who may not open the ledger itself: an open ledger is locked memory that both sides share.

The copy is a whole file without a write-ahead log, replaced by a rename, so a reader sees one moment of it.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from tokiod.archive.mount import check_mounted
from tokiod.errors import NoPermission

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokiod.config.sections import ArchiveConfig
    from tokiod.ledger.database import Database

COPY_SECONDS = 5.0
"""Between two copies, while the ledger changes."""
MODE = 0o640


class PublishedCopy:
    """Keeps the copy of an open ledger up to date. monotonic: the clock's."""

    def __init__(self, database: Database, path: Path, monotonic: Callable[[], float]) -> None:
        self._database = database
        self.path = path
        self._monotonic = monotonic
        self._copied_at = float("-inf")
        self._copied: tuple[int, int] | None = None

    def refresh_if_due(self) -> None:
        """Copy a ledger that has changed, at most every few seconds. Raises LedgerError, OSError; the older copy stays then."""
        if self._monotonic() - self._copied_at >= COPY_SECONDS:
            self._copied_at = self._monotonic()
            self.refresh()

    def refresh(self) -> None:
        """Copy a ledger that has changed. Raises as refresh_if_due()."""
        if (state := self._state()) != self._copied:
            self._copy()
            self._copied = state

    def _state(self) -> tuple[int, int]:
        """Return what changes with every transaction, of another connection or of this one."""
        (version,) = self._database.sql.execute("PRAGMA data_version").fetchone()
        return int(version), self._database.sql.total_changes

    def _copy(self) -> None:
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        temporary.unlink(missing_ok=True)
        os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE))
        with closing(sqlite3.connect(temporary, isolation_level=None)) as copy:
            # A copy that a power loss takes away is made again.
            copy.execute("PRAGMA synchronous = OFF")
            self._database.sql.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
        temporary.replace(self.path)


def readable_ledger(archive: ArchiveConfig) -> Path | None:
    """Return the ledger, or its copy for a user who may not read the ledger; None where the daemon has never run.

    Raises NoPermission for a user who may read neither, NotMounted where the archive's file system is not there.
    """
    is_denied = False
    for path in (archive.ledger, archive.ledger_copy):
        try:
            path.stat()
            if os.access(path, os.R_OK):
                return path
            is_denied = True
        except PermissionError:
            is_denied = True
        except OSError:
            continue
    if is_denied:
        raise NoPermission(archive.root)
    check_mounted(archive)
    return None
