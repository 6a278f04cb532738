"""Whether the file that a writer opened is the archive's ledger: not an older copy, not replaced since, not corrupt.

A generation number tells the ledger from an older copy. It grows in the ledger, and in a file next to it:

    ledger.sqlite3    stamp: one row, the number; the epoch of its change log
    ledger.stamp      the number and the epoch, as text

It grows when the writer starts, when windows are forgotten, and every ten minutes while windows are stored. So a copy with the same number
lacks windows at most, and calls none stored that was forgotten since. Each number is synced in the ledger before the file is written: a
ledger that lost its last transactions in a power loss does not have a smaller one. A ledger that is rebuilt begins an epoch, because
without the file its numbers begin again: copies from before have another epoch, whatever their numbers.

    number in the ledger    the writer
    none, nothing stored    has not used it: it is new, or another process created it
    none                    was one without numbers
    0                       is rebuilding it, or was killed while it did
    1 and more              recorded all that the files hold
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from tokiod.errors import TokiodError
from tokiod.ledger import sources, spans
from tokiod.ledger.database import Database, LedgerCorrupt, LedgerError, is_corruption
from tokiod.tts.live.files import exists, replace_file

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

GENERATION_SECONDS = 600.0
"""Between two generation numbers, while windows are stored."""
PAGE_CHECK_SECONDS = 600.0
"""Between two checks of all pages, which take some milliseconds per megabyte."""

Doubt = Literal["", "lost", "older than the files", "without ledger.stamp"]


class LedgerLost(Exception):  # noqa: N818 - what has happened
    """The file is no longer the archive's ledger: a writer that starts again opens or creates the right one and rebuilds it."""


class Stamp(msgspec.Struct, frozen=True):
    """What the file next to the ledger holds. epoch: None before the first, and of an earlier version of tokiod."""

    number: int
    epoch: int | None = None

    @property
    def text(self) -> str:
        """The content of the file."""
        return f"{self.number}" if self.epoch is None else f"{self.number} {self.epoch}"


class Generation:
    """The generation number of an open ledger. Raises LedgerError."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._advanced: float | None = None

    @property
    def path(self) -> Path:
        """The file next to the ledger."""
        return self._database.path.with_suffix(".stamp")

    def doubt(self) -> Doubt:
        """Return why the ledger may lack windows that the files hold; empty where it doesn't."""
        number, in_file = self._number(), self._in_file()
        if not sources.statuses(self._database.sql) or number == 0 or (number is None and not spans.any_stored(self._database.sql)):
            return "lost"
        if number is not None and self._is_file_missing():
            return "without ledger.stamp"
        if in_file is None or (number is not None and number >= in_file.number and in_file.epoch in {None, self._epoch()}):
            return ""
        return "older than the files"

    @property
    def former_epoch(self) -> int | None:
        """The epoch of the change log of the ledger that the file next to it belongs to, None if that is unknown."""
        in_file = self._in_file()
        return None if in_file is None else in_file.epoch

    def begin_rebuild(self) -> None:
        """Note that the ledger may lack windows until advance() is called, also for the next writer after a kill."""
        with self._setting(0):
            pass

    def advance(self, now: float) -> None:
        """Set the next number: the ledger records all that the files hold. From now on advance_if_due() does. now: epoch seconds."""
        with self._advancing(now):
            pass

    def advance_if_due(self, now: float) -> None:
        """Set the next number if the last is old enough; the ledger calls this whenever it stores. Nothing before advance()."""
        if self._advanced is not None and not 0 <= now - self._advanced < GENERATION_SECONDS:
            with suppress(LedgerError):
                self.advance(now)

    def forgetting(self, now: float) -> AbstractContextManager[sqlite3.Connection]:
        """Return a durable transaction that forgets windows, with the next number: older copies call them stored. now: epoch seconds."""
        return self._database.durable_transaction() if self._advanced is None else self._advancing(now)

    @contextmanager
    def _advancing(self, now: float) -> Iterator[sqlite3.Connection]:
        in_file = self._in_file()
        number = max(self._number() or 0, 0 if in_file is None else in_file.number) + 1
        with self._setting(number) as sql:
            yield sql
        self._advanced = now
        # Without the file (a full disk) an old copy may pass for the ledger, but storing must go on.
        with suppress(OSError):
            replace_file(self.path, Stamp(number, self._epoch()).text.encode())

    # With all that was recorded before it: a ledger that a power loss takes more from would look lost, or older than the files, and the
    # files that it is then rebuilt from may be torn.
    @contextmanager
    def _setting(self, number: int) -> Iterator[sqlite3.Connection]:
        with self._database.durable_transaction() as sql:
            yield sql
            sql.execute("DELETE FROM stamp")
            sql.execute("INSERT INTO stamp VALUES (?)", (number,))

    def _number(self) -> int | None:
        row = self._database.sql.execute("SELECT number FROM stamp").fetchone()
        return None if row is None else int(row[0])

    def _is_file_missing(self) -> bool:
        with suppress(OSError):
            return not exists(self.path)
        return False

    def _epoch(self) -> int | None:
        row = self._database.sql.execute("SELECT epoch FROM change_log").fetchone()
        return None if row is None else int(row[0])

    def _in_file(self) -> Stamp | None:
        try:
            number, *epoch = self.path.read_text().split()
            return Stamp(int(number), *map(int, epoch[:1]))
        except (OSError, ValueError):
            return None


class IntegrityCheck:
    """Checks an open ledger, which other processes may delete, replace or damage. monotonic: the clock's.

    A process keeps the file that it opened, even one that was deleted: without this check it would write where no other process reads.
    """

    def __init__(self, path: Path, monotonic: Callable[[], float]) -> None:
        self._path = path
        self._monotonic = monotonic
        self._checked = monotonic()
        self._inodes = {part: _inode(part) for part in (path, Path(f"{path}-wal"))}
        self._root = path.parent.parent, _inode(path.parent.parent)

    def __call__(self) -> None:
        """Raise LedgerLost if the file is deleted, also with its directory, replaced or corrupt; not if the archive is not mounted."""
        with suppress(OSError):  # a disk that fails at the moment proves nothing
            for path, inode in self._inodes.items():
                now = _inode(path)
                if (now is None or now != inode) and self._is_mounted():
                    raise LedgerLost(f"{path} was {'deleted' if now is None else 'replaced by another file'}")
        if self._monotonic() - self._checked >= PAGE_CHECK_SECONDS:
            self._checked = self._monotonic()
            self._check_pages()

    def _is_mounted(self) -> bool:
        """Return whether the ledger's directory exists, or only that one was deleted: the directory above it is the same as ever."""
        root, inode = self._root
        return exists(self._path.parent) or _inode(root) == inode

    # A second connection reads from the disk: the first one has pages in memory.
    def _check_pages(self) -> None:
        try:
            Database.open_readonly(self._path, checked=True).close()
        except LedgerCorrupt as error:
            raise LedgerLost(f"{self._path} is corrupt") from error
        except TokiodError:
            return  # unreadable at present, which the next transaction reports


def raise_if_corrupt(error: LedgerError) -> None:
    """Raise LedgerLost if SQLite reports that the file is no longer a ledger."""
    if is_corruption(error):
        raise LedgerLost(f"it is corrupt ({error})") from error


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino
