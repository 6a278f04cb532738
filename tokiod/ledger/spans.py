"""The ledger's tables of time spans: stored and unstored. The spans of a source in one table are disjoint.

Functions that change a table run inside a transaction of the ledger. All raise LedgerError.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import structs

from tokiod.ranges import Ranges
from tokiod.window import Window

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from tokiod.window_data import WindowMeta

UnstoredState = Literal["failed", "rejected", "lost", "empty"]


class StoredEntry(msgspec.Struct, frozen=True):
    """A window that is synced in its file. cells: assigned; meta.dropped: by the collector and by the sink.

    is_empty: the source had no sample for it. computed: spans outside of it whose cells were computed again, epoch seconds.
    """

    meta: WindowMeta
    cells: int
    is_empty: bool = False
    computed: tuple[tuple[int, int], ...] = ()


class Unstored(msgspec.Struct, frozen=True):
    """A span that is not stored, and why. Times are epoch seconds; next_try is None where no attempt follows.

    state: failed, rejected (by the writer), lost, or empty: the source answered without a record at a time when it had none at all.
    """

    source: str
    window: Window
    state: UnstoredState
    attempts: int
    error_class: str
    error: str
    last_try: float
    next_try: float | None


def overlapping(  # noqa: PLR0913, PLR0917 - the parts of a query
    sql: sqlite3.Connection, table: str, source: str, start: int, end: int, columns: str = 'start, "end"'
) -> list[Any]:
    """Return a source's rows that overlap [start, end), oldest first.

    Rows are disjoint, so the walk back from the newest stops at the first that does not overlap.
    """
    query = f'SELECT "end", {columns} FROM {table} WHERE source = ? AND start < ? ORDER BY start DESC'  # noqa: S608 - our own words
    rows = takewhile(lambda row: row[0] > start, sql.execute(query, (source, end)))
    return [row[1:] for row in rows][::-1]


# ---- stored


def stored(sql: sqlite3.Connection, source: str, within: Window | None = None) -> Ranges:
    """Return the stored spans of a source: all, or those that overlap a window."""
    if within is not None:
        return Ranges(overlapping(sql, "stored", source, within.start, within.end))
    return Ranges(sql.execute('SELECT start, "end" FROM stored WHERE source = ? ORDER BY start', (source,)))


def any_stored(sql: sqlite3.Connection) -> bool:
    """Return whether anything of any source is stored."""
    return sql.execute("SELECT 1 FROM stored LIMIT 1").fetchone() is not None


def settled(sql: sqlite3.Connection, source: str, since: int) -> Iterator[tuple[int, int]]:
    """Yield the spans that are stored or lost and end after `since`, by their starts; they may touch and overlap."""
    return sql.execute(
        """SELECT start, "end" FROM stored WHERE source = :source AND "end" > :since
           UNION ALL SELECT start, "end" FROM unstored WHERE source = :source AND "end" > :since AND state = 'lost' ORDER BY 1""",
        {"source": source, "since": since},
    )


def answered(sql: sqlite3.Connection, source: str, since: int) -> list[tuple[int, int, bool]]:
    """Return the spans that are answered and end after `since`, by their starts: maximal ones that are stored or lost, and empty ones.

    The third value: whether a span is empty.
    """
    found = [(start, end, False) for start, end in _runs(sql, source, since)]
    query = """SELECT start, "end" FROM unstored WHERE source = ? AND "end" > ? AND state = 'empty'"""
    found += [(start, end, True) for start, end in sql.execute(query, (source, since))]
    return sorted(found)


# A year has thousands of spans, and most end where another begins. SQLite finds the few ends that no span follows or covers in a third of
# the time that it takes to read all spans.
_ENDS = """WITH ends AS (
    SELECT "end" FROM stored one WHERE source = :source AND "end" > :since
      AND NOT EXISTS (SELECT 1 FROM unstored WHERE source = :source AND start = one."end" AND state = 'lost')
      AND NOT EXISTS (SELECT 1 FROM stored WHERE source = :source AND start = one."end")
    UNION SELECT "end" FROM unstored one WHERE source = :source AND "end" > :since AND state = 'lost'
      AND NOT EXISTS (SELECT 1 FROM stored WHERE source = :source AND start = one."end")
      AND NOT EXISTS (SELECT 1 FROM unstored WHERE source = :source AND start = one."end" AND state = 'lost'))
    SELECT "end", (SELECT min(start) FROM stored WHERE source = :source AND start > ends."end"),
      (SELECT min(start) FROM unstored WHERE source = :source AND start > ends."end" AND state = 'lost') FROM ends
    WHERE coalesce((SELECT "end" FROM stored WHERE source = :source AND start < ends."end" ORDER BY start DESC LIMIT 1), 0) <= "end"
      AND coalesce((SELECT "end" FROM unstored WHERE source = :source AND start < ends."end" AND state = 'lost'
        ORDER BY start DESC LIMIT 1), 0) <= "end"
    ORDER BY 1"""
_FIRST = """SELECT (SELECT start FROM stored WHERE source = :source AND "end" > :since ORDER BY start LIMIT 1),
    (SELECT start FROM unstored WHERE source = :source AND "end" > :since AND state = 'lost' ORDER BY start LIMIT 1)"""


def _runs(sql: sqlite3.Connection, source: str, since: int) -> Iterator[tuple[int, int]]:
    """Yield the maximal spans that are stored or lost and end after `since`. Those of both tables may touch and overlap."""
    named = {"source": source, "since": since}
    starts = sql.execute(_FIRST, named).fetchone()
    for end, *following in sql.execute(_ENDS, named):
        yield min(start for start in starts if start is not None), end
        starts = following


def silence(sql: sqlite3.Connection, source: str, data_end: int | None, now: int, window: Window | None = None) -> Window | None:
    """Return the span without a hole that ends with the newest window that a source answered, if it begins after all data of the source.

    data_end: the end of the newest window with data; now: epoch seconds; answers for a time after it do not count. window: one
    that was just answered without any.
    """
    since = data_end or 0
    rows = sql.execute(
        """SELECT start, "end" FROM stored WHERE source = :source AND "end" > :since
           UNION ALL SELECT start, "end" FROM unstored WHERE source = :source AND "end" > :since AND state = 'empty' ORDER BY 1""",
        {"source": source, "since": since},
    )
    known = Ranges((start, min(end, now)) for start, end in rows if start < now)
    if window is not None:
        known.add(window.start, window.end)
    known.remove(0, since)
    return Window(*list(known)[-1]) if known else None


def covers(sql: sqlite3.Connection, source: str, window: Window) -> bool:
    """Return whether all of a window is stored."""
    return Ranges(overlapping(sql, "stored", source, window.start, window.end)).covers(window)


def add(sql: sqlite3.Connection, source: str, window: Window) -> None:
    """Add a window to the stored spans."""
    touching = overlapping(sql, "stored", source, window.start - 1, window.end + 1)
    _replace(sql, source, touching, Ranges([(window.start, window.end), *touching]))


def remove(sql: sqlite3.Connection, source: str, window: Window) -> list[Window]:
    """Remove a window from the stored spans; return the parts of it that were stored."""
    known = overlapping(sql, "stored", source, window.start, window.end)
    remaining = Ranges(known)
    remaining.remove(window.start, window.end)
    _replace(sql, source, known, remaining)
    return Ranges(known).within(window.start, window.end)


def _replace(sql: sqlite3.Connection, source: str, old: list[tuple[int, int]], new: Ranges) -> None:
    sql.executemany("DELETE FROM stored WHERE source = ? AND start = ?", [(source, start) for start, _ in old])
    sql.executemany("INSERT INTO stored VALUES (?, ?, ?)", [(source, *pair) for pair in new])


# ---- unstored


def unstored(sql: sqlite3.Connection, source: str) -> list[Unstored]:
    """Return all spans of a source that failed, were rejected or are lost, oldest first."""
    return [_unstored(row) for row in sql.execute("SELECT * FROM unstored WHERE source = ? ORDER BY start", (source,))]


def last_failure(sql: sqlite3.Connection, source: str) -> Unstored | None:
    """Return the span whose last attempt failed and is the newest, one of them where several were attempted at once."""
    # Beside max(), SQLite returns the other columns of the row that has it. To sort a year of lost spans takes twice as long.
    newest = "SELECT max(last_try), start FROM unstored WHERE source = :source AND state != 'empty'"
    query = f"SELECT * FROM unstored WHERE source = :source AND start = (SELECT start FROM ({newest}))"  # noqa: S608 - our own words
    row = sql.execute(query, {"source": source}).fetchone()
    return None if row is None else _unstored(row)


def lost_seconds(sql: sqlite3.Connection, source: str) -> int:
    """Return how many seconds of a source are lost."""
    query = "SELECT coalesce(sum(\"end\" - start), 0) FROM unstored WHERE source = ? AND state = 'lost'"
    return int(sql.execute(query, (source,)).fetchone()[0])


def insert(sql: sqlite3.Connection, one: Unstored) -> None:
    """Insert a span that no row overlaps."""
    source, window, *rest = structs.astuple(one)
    sql.execute("INSERT INTO unstored VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (source, window.start, window.end, *rest))


def cut(sql: sqlite3.Connection, source: str, window: Window) -> None:
    """Cut a window out of the unstored spans, which keep what lies outside of it."""
    for one in _unstored_within(sql, source, window.start, window.end):
        sql.execute("DELETE FROM unstored WHERE source = ? AND start = ?", (source, one.window.start))
        for start, end in ((one.window.start, window.start), (window.end, one.window.end)):
            if start < end:
                insert(sql, structs.replace(one, window=Window(start, end)))


def insert_joined(sql: sqlite3.Connection, one: Unstored) -> None:
    """Insert a span, joined with those that touch it and are in the same state for the same reason."""
    window = one.window
    cut(sql, one.source, window)
    for other in _unstored_within(sql, one.source, window.start - 1, window.end + 1):
        if (other.state, other.error_class, other.error) == (one.state, one.error_class, one.error):
            cut(sql, one.source, other.window)
            window = Window(min(window.start, other.window.start), max(window.end, other.window.end))
    insert(sql, structs.replace(one, window=window))


def _unstored_within(sql: sqlite3.Connection, source: str, start: int, end: int) -> list[Unstored]:
    return [_unstored(row) for row in overlapping(sql, "unstored", source, start, end, "*")]


def _unstored(row: tuple[Any, ...]) -> Unstored:
    source, start, end, *rest = row
    return Unstored(source, Window(start, end), *rest)
