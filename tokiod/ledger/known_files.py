"""Which files the archive has, in the ledger: a file that somebody takes away is missed.

file     one row per file that was seen in its place: path below the archive's root, system, [start, end)

An archive may be moved or mounted elsewhere; its files are no less there for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tokiod.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Held:
    """A file of a system, and what it is for."""

    path: Path
    system: str
    window: Window


class FilesHeld:
    """The files of a ledger. Raises sqlite3.Error."""

    def __init__(self, ledger: Ledger, root: Path) -> None:
        self._ledger = ledger
        self._root = root
        rows = ledger.sql.execute('SELECT path, system, start, "end" FROM file')
        held = (Held(root / path, system, Window(start, end)) for path, system, start, end in rows)
        self._held = {one.path: one for one in held}

    def note(self, files: Iterable[Held]) -> None:
        """Remember files that are there."""
        new = [one for one in files if one.path not in self._held]
        if new:
            with self._ledger.transaction() as sql:
                rows = [(self._below(one.path), one.system, one.window.start, one.window.end) for one in new]
                sql.executemany("INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?)", rows)
            self._held |= {one.path: one for one in new}

    def gone(self) -> list[Held]:
        """Return the files that are no longer there, oldest first."""
        return sorted((one for one in self._held.values() if not one.path.exists()), key=lambda one: one.window)

    def forget(self, one: Held) -> None:
        """Let go of a file, and of what the ledger calls stored in it."""
        self._ledger.forget(one.system, one.window)
        self.drop(one)

    def drop(self, one: Held) -> None:
        """Let go of a file alone: what was stored in it stays stored, wherever it is now."""
        with self._ledger.transaction() as sql:
            sql.execute("DELETE FROM file WHERE path = ?", (self._below(one.path),))
        del self._held[one.path]

    def _below(self, path: Path) -> str:
        return str(path.relative_to(self._root))
