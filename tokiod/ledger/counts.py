"""The ledger's table of windows that are to be counted again at their source.

counted      one row per stored window that is still to be counted again: how many records it had, when it was stored, how often it
             was counted again
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokiod.window import Window

if TYPE_CHECKING:
    from tokiod.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Counted:
    """A stored window and its records; stage: how often it was counted again since stored_at, epoch seconds."""

    window: Window
    records: int
    stored_at: float
    stage: int


class Counts:
    """The windows of a source that are to be counted again. Raises sqlite3.Error."""

    def __init__(self, ledger: Ledger, source: str) -> None:
        self._ledger = ledger
        self._source = source

    def due(self, now: float, after: tuple[int, ...]) -> list[Counted]:
        """Return the windows whose time has come, oldest first. after: seconds between storing and counting again, by stage."""
        rows = self._ledger.sql.execute(
            'SELECT start, "end", records, stored_at, stage FROM counted WHERE source = ? ORDER BY start', (self._source,)
        )
        found = [Counted(Window(start, end), *rest) for start, end, *rest in rows]
        return [one for one in found if one.stage >= len(after) or now >= one.stored_at + after[one.stage]]

    def newest(self) -> float:
        """Return when the window was stored that was stored last, epoch seconds; 0.0 where there is none."""
        query = "SELECT coalesce(max(stored_at), 0.0) FROM counted WHERE source = ?"
        return float(self._ledger.sql.execute(query, (self._source,)).fetchone()[0])

    def distrust(self, now: float, ahead: int) -> None:
        """Let what was stored by a clock that was fast count as stored so many seconds before its end.

        It was asked for too early, so that the source had not all of it, or nothing.
        """
        query = 'UPDATE counted SET stored_at = "end" - ?, stage = 0 WHERE source = ? AND stored_at > ?'
        with self._ledger.transaction() as sql:
            sql.execute(query, (ahead, self._source, now))

    def within(self, span: Window) -> list[Window]:
        """Return the windows in a span whose records are known, as they were stored, oldest first."""
        query = 'SELECT start, "end" FROM counted WHERE source = ? AND start >= ? AND "end" <= ? ORDER BY start'
        return [Window(*edges) for edges in self._ledger.sql.execute(query, (self._source, span.start, span.end))]

    def cut(self, time: int) -> bool:
        """Whether a time lies inside a window whose records are known."""
        query = 'SELECT 1 FROM counted WHERE source = ? AND start < ? AND "end" > ?'
        return self._ledger.sql.execute(query, (self._source, time, time)).fetchone() is not None

    def settle(self, counted: list[Counted], stages: int) -> None:
        """Note that windows were counted again; those that were for the last time are forgotten. One stored meanwhile begins anew."""
        which = "source = ? AND start = ? AND stored_at = ?"
        with self._ledger.transaction() as sql:
            keys = [(self._source, one.window.start, one.stored_at) for one in counted]
            sql.executemany(f"UPDATE counted SET stage = stage + 1 WHERE {which}", keys)  # noqa: S608 - our own words
            sql.execute("DELETE FROM counted WHERE source = ? AND stage >= ?", (self._source, stages))
