"""The archive's files that the ledger knows, so that a deleted file is noticed.

file     one row per file that was seen in its place: path relative to the archive's root, system, [start, end)

Paths are relative, because an archive may be moved or mounted elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokiod.tts.live.files import exists
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tokiod.ledger.database import Database


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file of a system and the span that it holds."""

    path: Path
    system: str
    window: Window


class KnownFiles:
    """The known files of an archive. Raises LedgerError."""

    def __init__(self, database: Database, root: Path) -> None:
        self._database = database
        self._root = root
        rows = database.sql.execute('SELECT path, system, start, "end" FROM file')
        files = (KnownFile(root / path, system, Window(start, end)) for path, system, start, end in rows)
        self._files = {one.path: one for one in files}

    def add(self, files: Iterable[KnownFile]) -> None:
        """Add files that exist."""
        new = [one for one in files if one.path not in self._files]
        if new:
            with self._database.transaction() as sql:
                rows = [(self._relative(one.path), one.system, one.window.start, one.window.end) for one in new]
                sql.executemany("INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?)", rows)
            self._files |= {one.path: one for one in new}

    def at(self, path: Path) -> KnownFile | None:
        """Return the known file of a path, whether it exists or not."""
        return self._files.get(path)

    def missing(self) -> list[KnownFile]:
        """Return the files that no longer exist, oldest first. One stat per file; a file that can't be looked up is not missing."""
        return sorted((one for one in self._files.values() if _is_missing(one.path)), key=lambda one: one.window)

    def remove(self, one: KnownFile) -> None:
        """Remove a file; its windows stay stored."""
        with self._database.transaction() as sql:
            sql.execute("DELETE FROM file WHERE path = ?", (self._relative(one.path),))
        del self._files[one.path]

    def _relative(self, path: Path) -> str:
        return str(path.relative_to(self._root))


def _is_missing(path: Path) -> bool:
    try:
        return not exists(path)
    except OSError:
        return False
