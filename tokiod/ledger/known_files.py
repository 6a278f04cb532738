"""The archive's files that the ledger knows, so that a deleted file is noticed.

file     one row per file that was seen in its place: path relative to the archive's root, system, [start, end)

Paths are relative, because an archive may be moved or mounted elsewhere.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from tokiod.ledger.database import Database


class KnownFile(msgspec.Struct, frozen=True):
    """A file of a system and the span that it holds."""

    path: Path
    system: str
    window: Window


# Texts, of which a KnownFile is made when it is needed: an archive of years has thousands, which pathlib takes a tenth of a second to make.
class KnownFiles:
    """The known files of an archive. Raises LedgerError."""

    def __init__(self, database: Database, root: Path) -> None:
        self._database = database
        self._prefix = f"{root}{os.sep}"
        rows = database.sql.execute('SELECT path, system, start, "end" FROM file')
        self._rows: dict[str, tuple[str, int, int]] = {name: (system, start, end) for name, system, start, end in rows}

    def add(self, files: Iterable[KnownFile]) -> None:
        """Add files that exist."""
        new = {name: one for one in files if (name := self._name(one.path)) not in self._rows}
        if new:
            rows = {name: (one.system, one.window.start, one.window.end) for name, one in new.items()}
            with self._database.transaction() as sql:
                sql.executemany("INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?)", [(name, *row) for name, row in rows.items()])
            self._rows |= rows

    def __contains__(self, path: Path) -> bool:
        return self._name(path) in self._rows

    def at(self, path: Path) -> KnownFile | None:
        """Return the known file of a path, whether it exists or not."""
        return self._file(self._name(path)) if path in self else None

    def missing(self, held_since: Callable[[str], float], present: Container[str] = ()) -> list[KnownFile]:
        """Return the files that no longer exist, oldest first. One stat per file; a file that can't be looked up is not missing.

        held_since: returns the time from which the sources of a system still hold data, epoch seconds; files that end earlier are not
        looked up. present: paths that need no stat, as texts.
        """
        away = ((name, self._prefix + name, system, end) for name, (system, _, end) in self._rows.items())
        gone = [name for name, path, system, end in away if path not in present and end > held_since(system) and _is_missing(path)]
        return sorted(map(self._file, gone), key=lambda one: one.window)

    def remove(self, one: KnownFile) -> None:
        """Remove a file; its windows stay stored."""
        with self._database.transaction() as sql:
            sql.execute("DELETE FROM file WHERE path = ?", (self._name(one.path),))
        del self._rows[self._name(one.path)]

    def _name(self, path: Path) -> str:
        return str(path).removeprefix(self._prefix)

    def _file(self, name: str) -> KnownFile:
        system, start, end = self._rows[name]
        return KnownFile(Path(self._prefix + name), system, Window(start, end))


def _is_missing(path: str) -> bool:
    try:
        os.stat(path)  # noqa: PTH116 - see above
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
