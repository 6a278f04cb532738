"""Reads the change log from the copy of the ledger for readers, and what of it concerns a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tokiod.errors import NoPermission, Transient
from tokiod.ledger.changes import Change, LogState, merged
from tokiod.ledger.database import LedgerCorrupt, LedgerError, LedgerUnreadable
from tokiod.ledger.ledger import Ledger, LedgerNotReady
from tokiod.runtime.full_disk import DiskFull

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

MAX_CHANGES = 1000
"""That are read at once."""


class LogPart(msgspec.Struct, frozen=True):
    """The state of the log, its first changes after a number, and how many follow it.

    data_ends: the end of the newest stored window with a sample, by system, epoch seconds.
    """

    state: LogState
    changes: tuple[Change, ...]
    waiting: int
    data_ends: dict[str, int] = {}


class ChangeReader:
    """The copy of the ledger of an archive. Its methods block."""

    def __init__(self, copy: Path) -> None:
        self._copy = copy
        self._empty: tuple[tuple[int, int, int], LogPart] | None = None

    def read(self, seq: int, limit: int = MAX_CHANGES) -> LogPart | None:
        """Return the first changes after a number; None while the writer has not begun a log.

        Raises NoPermission for a user who may not read the copy, Transient where it can't be read now.
        """
        try:
            status = self._copy.stat()
            which = status.st_ino, status.st_mtime_ns, seq
            if self._empty is not None and self._empty[0] == which:
                return self._empty[1]
            with Ledger.open_readonly(self._copy, checked=False) as ledger:
                state = ledger.changes.state()
                if state is None:
                    return None
                changes = tuple(ledger.changes.after(seq, limit))
                part = LogPart(state, changes, ledger.changes.windows_after(seq), _data_ends(ledger))
        except (LedgerNotReady, FileNotFoundError):
            return None
        except PermissionError:
            raise NoPermission(self._copy.parent.parent) from None
        except (DiskFull, LedgerCorrupt, LedgerError, LedgerUnreadable, OSError) as error:
            raise Transient(f"the copy of the ledger {self._copy} can't be read: {error}") from error
        if not part.changes:
            self._empty = which, part
        return part


def _data_ends(ledger: Ledger) -> dict[str, int]:
    ends: dict[str, int] = {}
    for row in ledger.sources():
        if row.data_end is not None:
            ends[row.system] = max(row.data_end, ends.get(row.system, row.data_end))
    return ends


def spans(changes: Iterable[Change], systems: Collection[str]) -> list[Change]:
    """Return the spans of systems whose rows changed, oldest first; spans that touch are one, with the highest of their numbers."""
    rows = (one for one in changes if one.system in systems and one.kind != "sealed")
    alike = [msgspec.structs.replace(one, source="", kind="rows") for one in rows]
    return sorted(merged(alike), key=lambda one: (one.system, one.window))
