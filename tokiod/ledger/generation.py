"""How a ledger is told from an older copy of it: a number in it that keeps growing, and a file beside it that says how far it was.

    ledger.sqlite3    stamp: one row, the number
    ledger.stamp      the number before it, as text

The file is one behind, and written long after the ledger has said the same: a power loss that takes the last transactions leaves a
ledger that is still as new as the file says. A copy that was made some twenty minutes before it is put back, or earlier, is found.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from tokiod.tts.live.files import replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.ledger.ledger import Ledger

EVERY = 600.0
"""Seconds of storing between two numbers."""

Doubt = Literal["", "lost", "older than the files"]


class Stamp:
    """The numbers of a ledger that its writer has open. Raises sqlite3.Error."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._path = ledger.path.with_suffix(".stamp")
        self._advanced = float("-inf")

    @property
    def path(self) -> Path:
        """The file beside the ledger."""
        return self._path

    def doubt(self) -> Doubt:
        """Return what is wrong with the ledger: nothing, or that it can't tell all that the files hold."""
        if not self._ledger.sources():
            return "lost"
        # A ledger without a number is from before there were any, unless there is one beside it.
        number, beside = self._number(), self._beside()
        return "older than the files" if beside is not None and (number is None or number < beside) else ""

    def advance(self, now: float) -> None:
        """Go to the next number: the ledger tells all that the files hold. now: epoch seconds."""
        number = max(self._number() or 0, self._beside() or 0) + 1
        with self._ledger.transaction() as sql:
            sql.execute("DELETE FROM stamp")
            sql.execute("INSERT INTO stamp VALUES (?)", (number,))
        self._advanced = now
        # Where it can't be written (a full disk), an old copy may be taken for the ledger: no reason to store nothing.
        with suppress(OSError):
            replace_file(self._path, str(number - 1).encode())

    def keep(self, now: float) -> None:
        """Go to the next number where that is due; to be called whenever something was stored."""
        if not 0 <= now - self._advanced < EVERY:
            with suppress(sqlite3.Error):
                self.advance(now)

    def _number(self) -> int | None:
        row = self._ledger.sql.execute("SELECT number FROM stamp").fetchone()
        return None if row is None else int(row[0])

    def _beside(self) -> int | None:
        try:
            return int(self._path.read_text())
        except (OSError, ValueError):
            return None
