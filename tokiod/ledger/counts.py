"""The ledger's table of record counts, for the stored windows that are still to be recounted at their source.

counted      one row per window: its records, when it was stored, how often it was recounted since
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tokiod.ledger.spans import overlapping
from tokiod.ranges import Ranges
from tokiod.window import Window

if TYPE_CHECKING:
    import sqlite3

    from tokiod.ledger.database import Database
    from tokiod.ledger.spans import StoredEntry


class Counted(msgspec.Struct, frozen=True):
    """A stored window and its records; stage: how often it was recounted since stored_at, epoch seconds."""

    window: Window
    records: int
    stored_at: float
    stage: int


class Counts:
    """The record counts of one source. Raises LedgerError."""

    def __init__(self, database: Database, source: str) -> None:
        self._database = database
        self._source = source

    def records(self, window: Window) -> int | None:
        """Return the records of a stored window, None where the count of any part of it is unknown."""
        query = 'SELECT start, "end", records FROM counted WHERE source = ? AND start >= ? AND "end" <= ? ORDER BY start'
        rows = self._database.sql.execute(query, (self._source, window.start, window.end)).fetchall()
        if not Ranges((start, end) for start, end, _ in rows).covers(window):
            return None
        return sum(int(records) for _, _, records in rows)

    def due(self, now: float, after: tuple[int, ...]) -> list[Counted]:
        """Return the windows that are due for a recount, oldest first. after: seconds from storing to each recount."""
        # SQLite finds the few among the thousands of windows that wait for a recount.
        is_due = " OR ".join(["stage >= ?", *["stage = ? AND ? >= stored_at + ?" for _ in after]])
        values = [len(after), *(value for stage, seconds in enumerate(after) for value in (stage, now, seconds))]
        query = f'SELECT start, "end", records, stored_at, stage FROM counted WHERE source = ? AND ({is_due}) ORDER BY start'  # noqa: S608 - our own words
        rows = self._database.sql.execute(query, (self._source, *values))
        return [Counted(Window(start, end), *rest) for start, end, *rest in rows]

    def newest(self) -> float:
        """Return when the last window was stored, epoch seconds; 0.0 without any."""
        query = "SELECT coalesce(max(stored_at), 0.0) FROM counted WHERE source = ?"
        return float(self._database.sql.execute(query, (self._source,)).fetchone()[0])

    def restart(self, now: float, lead: int) -> None:
        """Recount from the first stage on what has a storing time after `now`: it counts as stored `lead` seconds before its end.

        The clock was fast when such a window was collected: too early, so that the source did not hold all of it.
        """
        query = 'UPDATE counted SET stored_at = "end" - ?, stage = 0 WHERE source = ? AND stored_at > ?'
        with self._database.transaction() as sql:
            sql.execute(query, (lead, self._source, now))

    def within(self, span: Window) -> list[Window]:
        """Return the windows inside a span whose records are known, as they were stored, oldest first."""
        query = 'SELECT start, "end" FROM counted WHERE source = ? AND start >= ? AND "end" <= ? ORDER BY start'
        return [Window(*edges) for edges in self._database.sql.execute(query, (self._source, span.start, span.end))]

    def is_inside(self, time: int) -> bool:
        """Return whether a time lies inside a window whose records are known, not at its edge."""
        query = 'SELECT 1 FROM counted WHERE source = ? AND start < ? AND "end" > ?'
        return self._database.sql.execute(query, (self._source, time, time)).fetchone() is not None

    def recounted(self, windows: list[Counted], stages: int) -> None:
        """Advance windows by one stage and delete those past the last one; a window stored again meanwhile keeps its first stage."""
        which = "source = ? AND start = ? AND stored_at = ?"
        with self._database.transaction() as sql:
            keys = [(self._source, one.window.start, one.stored_at) for one in windows]
            sql.executemany(f"UPDATE counted SET stage = stage + 1 WHERE {which}", keys)  # noqa: S608 - our own words
            sql.execute("DELETE FROM counted WHERE source = ? AND stage >= ?", (self._source, stages))


def replace(sql: sqlite3.Connection, entry: StoredEntry, now: float) -> None:
    """Replace the counts that a stored window overlaps by its own, inside a transaction of the ledger.

    The rest of a window that is only overlapped in part stays to be recounted. It has the records that the stored part does not account
    for; of two rests it is unknown which has them, so the recount finds that both have grown.
    """
    source, window, records = entry.meta.source, entry.meta.window, entry.meta.records
    cut(sql, source, window, records or 0)
    if records is not None:
        row = (source, window.start, window.end, records, now)
        sql.execute('INSERT INTO counted (source, start, "end", records, stored_at) VALUES (?, ?, ?, ?, ?)', row)


def cut(sql: sqlite3.Connection, source: str, window: Window, records: int = 0) -> None:
    """Forget the counts of a window, inside a transaction of the ledger; `records` of those it overlaps in part are its own."""
    known = overlapping(sql, "counted", source, window.start, window.end, 'start, "end", records, stored_at, stage')
    sql.executemany("DELETE FROM counted WHERE source = ? AND start = ?", [(source, start) for start, *_ in known])
    for start, end, before, *when in known:
        rests = [(s, e) for s, e in ((start, window.start), (window.end, end)) if s < e]
        remaining = max(0, before - records) if len(rests) == 1 else 0
        sql.executemany("INSERT INTO counted VALUES (?, ?, ?, ?, ?, ?)", [(source, *rest, remaining, *when) for rest in rests])
