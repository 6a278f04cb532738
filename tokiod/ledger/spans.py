"""The ledger's tables of spans, of which each source has disjoint ones: stored, unstored, counted.

What changes one is a step of a transaction of tokiod.ledger.ledger's. Raises sqlite3.Error.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

from msgspec import structs

from tokiod.ledger.rows import Unstored
from tokiod.ranges import Ranges
from tokiod.window import Window

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from tokiod.ledger.rows import StoredEntry


def overlapping(  # noqa: PLR0913, PLR0917 - the parts of a query
    sql: sqlite3.Connection, table: str, source: str, start: int, end: int, columns: str = 'start, "end"'
) -> list[Any]:
    """Return a source's rows that overlap [start, end), oldest first: rows are disjoint, so walking back may stop at the first miss."""
    query = f'SELECT "end", {columns} FROM {table} WHERE source = ? AND start < ? ORDER BY start DESC'  # noqa: S608 - our own words
    rows = takewhile(lambda row: row[0] > start, sql.execute(query, (source, end)))
    return [row[1:] for row in rows][::-1]


# ---- stored


def stored(sql: sqlite3.Connection, source: str, within: Window | None = None) -> Ranges:
    """Return all that is stored of a source, or what overlaps a window."""
    if within is not None:
        return Ranges(overlapping(sql, "stored", source, within.start, within.end))
    return Ranges(sql.execute('SELECT start, "end" FROM stored WHERE source = ? ORDER BY start', (source,)))


def settled(sql: sqlite3.Connection, source: str, since: int) -> Iterator[tuple[int, int]]:
    """Yield the spans that are stored or lost, and end after `since`, in order of their starts; some touch, and some overlap."""
    return sql.execute(
        """SELECT start, "end" FROM stored WHERE source = :source AND "end" > :since
           UNION ALL SELECT start, "end" FROM unstored WHERE source = :source AND "end" > :since AND state = 'lost' ORDER BY 1""",
        {"source": source, "since": since},
    )


def covers(sql: sqlite3.Connection, source: str, window: Window) -> bool:
    """Whether all of a window is stored."""
    return Ranges(overlapping(sql, "stored", source, window.start, window.end)).covers(window)


def add(sql: sqlite3.Connection, source: str, window: Window) -> None:
    """Make a window stored."""
    touching = overlapping(sql, "stored", source, window.start - 1, window.end + 1)
    _replace(sql, source, touching, Ranges([(window.start, window.end), *touching]))


def remove(sql: sqlite3.Connection, source: str, window: Window) -> list[Window]:
    """Make a window not stored; returns what of it was."""
    known = overlapping(sql, "stored", source, window.start, window.end)
    rest = Ranges(known)
    rest.remove(window.start, window.end)
    _replace(sql, source, known, rest)
    return Ranges(known).within(window.start, window.end)


def _replace(sql: sqlite3.Connection, source: str, old: list[tuple[int, int]], new: Ranges) -> None:
    sql.executemany("DELETE FROM stored WHERE source = ? AND start = ?", [(source, start) for start, _ in old])
    sql.executemany("INSERT INTO stored VALUES (?, ?, ?)", [(source, *pair) for pair in new])


# ---- unstored


def unstored(sql: sqlite3.Connection, source: str) -> list[Unstored]:
    """Return all spans that were asked for and are not stored, oldest first."""
    return [_unstored(row) for row in sql.execute("SELECT * FROM unstored WHERE source = ? ORDER BY start", (source,))]


def unstored_within(sql: sqlite3.Connection, source: str, start: int, end: int) -> list[Unstored]:
    """Return those of them that overlap [start, end)."""
    return [_unstored(row) for row in overlapping(sql, "unstored", source, start, end, "*")]


def last_failure(sql: sqlite3.Connection, source: str) -> Unstored | None:
    """Return the one that was asked for last."""
    query = "SELECT * FROM unstored WHERE source = ? ORDER BY last_try DESC, start LIMIT 1"
    row = sql.execute(query, (source,)).fetchone()
    return None if row is None else _unstored(row)


def lost_seconds(sql: sqlite3.Connection, source: str) -> int:
    """Return how much of a source is lost."""
    query = "SELECT coalesce(sum(\"end\" - start), 0) FROM unstored WHERE source = ? AND state = 'lost'"
    return int(sql.execute(query, (source,)).fetchone()[0])


def insert(sql: sqlite3.Connection, one: Unstored) -> None:
    """Say that a span is not stored, where nothing is said of it."""
    source, window, *rest = structs.astuple(one)
    sql.execute("INSERT INTO unstored VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (source, window.start, window.end, *rest))


def cut(sql: sqlite3.Connection, source: str, window: Window) -> None:
    """Take a window out of the spans that are not stored, leaving their rests."""
    for one in unstored_within(sql, source, window.start, window.end):
        sql.execute("DELETE FROM unstored WHERE source = ? AND start = ?", (source, one.window.start))
        for start, end in ((one.window.start, window.start), (window.end, one.window.end)):
            if start < end:
                insert(sql, structs.replace(one, window=Window(start, end)))


def lose(sql: sqlite3.Connection, one: Unstored) -> None:
    """Say that a span is lost, in one row with those that touch it and were lost for the same reason."""
    window = one.window
    cut(sql, one.source, window)
    for other in unstored_within(sql, one.source, window.start - 1, window.end + 1):
        if (other.state, other.error_class, other.error) == (one.state, one.error_class, one.error):
            cut(sql, one.source, other.window)
            window = Window(min(window.start, other.window.start), max(window.end, other.window.end))
    insert(sql, structs.replace(one, window=window))


def _unstored(row: tuple[Any, ...]) -> Unstored:
    source, start, end, *rest = row
    return Unstored(source, Window(start, end), *rest)


# ---- counted


def records(sql: sqlite3.Connection, source: str, window: Window) -> int | None:
    """Return how many records a stored window had, None where that is not known, or not of all of it."""
    query = 'SELECT start, "end", records FROM counted WHERE source = ? AND start >= ? AND "end" <= ? ORDER BY start'
    rows = sql.execute(query, (source, window.start, window.end)).fetchall()
    if not Ranges((start, end) for start, end, _ in rows).covers(window):
        return None
    return sum(int(records) for _, _, records in rows)


def note_records(sql: sqlite3.Connection, entry: StoredEntry, now: float) -> None:
    """Keep the number of records until the last time that they are counted again (tokiod.polling.recount)."""
    window = entry.window
    known = overlapping(sql, "counted", entry.source, window.start, window.end)
    sql.executemany("DELETE FROM counted WHERE source = ? AND start = ?", [(entry.source, start) for start, _ in known])
    if entry.records is not None:
        row = (entry.source, window.start, window.end, entry.records, now)
        sql.execute('INSERT INTO counted (source, start, "end", records, stored_at) VALUES (?, ?, ?, ?, ?)', row)
