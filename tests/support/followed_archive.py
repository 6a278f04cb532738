"""A reader of the change log, slowly and obviously: a copy of all cells of an archive, made from the files as the log says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokiod.ledger.ledger import Ledger
    from tokiod.window import Window

Cells = dict[tuple[str, str, int], float]
"""Cells that are not missing: dataset, column, epoch second."""


@dataclass
class FollowedArchive:
    """read(system, window) returns the cells that the files hold in a window; everything: the window of all days."""

    read: Callable[[str, Window], Cells]
    systems: list[str]
    everything: Window
    cells: dict[str, Cells] = field(default_factory=dict)
    _cursor: tuple[int, int] = (-1, -1)
    from_files: int = 0

    def follow(self, ledger: Ledger, limit: int) -> None:
        """Take up to `limit` changes; all of the files where the log does not reach back to the last one taken."""
        state = ledger.changes.state()
        if state is None:
            return
        epoch, seq = self._cursor
        if epoch != state.epoch or seq < state.trimmed:
            self.from_files += 1
            self.cells = {system: self.read(system, self.everything) for system in self.systems}
            self._cursor = state.epoch, state.head
            return
        for change in ledger.changes.after(seq, limit):
            if change.system in self.cells:
                self._take(change.system, change.window)
            self._cursor = epoch, change.seq

    def is_current(self, ledger: Ledger) -> bool:
        return not ledger.changes.after(self._cursor[1], 1)

    def _take(self, system: str, window: Window) -> None:
        kept = {cell: value for cell, value in self.cells[system].items() if not window.start <= cell[2] < window.end}
        self.cells[system] = kept | self.read(system, window)
