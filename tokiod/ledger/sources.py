"""The ledger's table of sources: the last window, sums and state of each.

Functions that change the table run inside a transaction of the ledger. All raise LedgerError.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from tokiod.dropped import Why
from tokiod.ledger.spans import overlapping
from tokiod.window import Window

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping

    from tokiod.collector import SourceConfig
    from tokiod.ledger.spans import StoredEntry


ESTABLISHED_SECONDS = 86400
"""Of a source without a past: what is stored of it once an earlier time at a start means that the clock is behind, not that it was ahead at
the first one. Its samples prove no time: their windows get their times from the same clock."""


class SourceRow(msgspec.Struct, frozen=True):
    """What the ledger records about a source.

    step, length, retention: seconds, None until the collectors register the source; since: the first epoch second that is expected;
    last: the newest stored window, stored at stored_at with last_cells cells; windows, cells, dropped: sums over all stored windows.
    data_end: the end of the newest stored window that had a sample.
    """

    name: str
    kind: str
    system: str
    step: int | None
    length: int | None
    retention: int | None
    since: int | None
    last: Window | None
    stored_at: float | None
    last_cells: int
    windows: int
    cells: int
    dropped: dict[str, int]
    state: str
    state_reason: str
    state_since: float | None
    data_end: int | None = None

    def has_sample_after(self, time: int) -> bool:
        """Return whether a window with a sample that ends after a time was stored."""
        return self.data_end is not None and self.data_end > time


def count(sql: sqlite3.Connection, entry: StoredEntry, now: float, *, first: bool) -> None:
    """Update a source's last window; add to its sums if the window is stored for the first time."""
    meta = entry.meta
    known = sql.execute("SELECT dropped FROM source WHERE name = ?", (meta.source,)).fetchone()
    dropped = Counter(msgspec.json.decode(known[0]) if known else {})
    dropped.update(meta.dropped if first else {})
    values = {
        "name": meta.source, "kind": meta.kind, "system": meta.system, "start": meta.window.start, "end": meta.window.end,
        "now": now, "cells": entry.cells, "new": int(first), "dropped": msgspec.json.encode(dropped).decode(),
    }  # fmt: skip
    sql.execute(
        """INSERT INTO source (name, kind, system) VALUES (:name, :kind, :system)
           ON CONFLICT DO UPDATE SET kind = :kind, system = :system""",
        {k: values[k] for k in ("name", "kind", "system")},
    )
    sql.execute("UPDATE source SET windows = windows + :new, cells = cells + :new * :cells, dropped = :dropped WHERE name = :name", values)
    sql.execute(
        """UPDATE source SET last_start = :start, last_end = :end, last_cells = :cells, stored_at = :now
           WHERE name = :name AND coalesce(last_end, :end) <= :end""",
        values,
    )
    if not entry.is_empty:
        sql.execute("UPDATE source SET data_end = :end WHERE name = :name AND coalesce(data_end, :end) <= :end", values)


def register(sql: sqlite3.Connection, source: SourceConfig, since: int) -> int:
    """Register a source and return the epoch second from which its data is expected, see Ledger.register()."""
    forget_other_system(sql, source)
    row = sql.execute("SELECT since FROM source WHERE name = ?", (source.name,)).fetchone()
    earlier = since if row is None or row[0] is None else int(row[0])
    keeps_earlier = not source.replayable or overlapping(sql, "stored", source.name, earlier, since)
    keeps_later = not source.replayable and _stored_seconds(sql, source.name, earlier) >= ESTABLISHED_SECONDS
    if (earlier > since and not keeps_later) or not keeps_earlier:
        earlier = since
        sql.execute('DELETE FROM unstored WHERE source = ? AND "end" <= ?', (source.name, since))
    sql.execute(
        """INSERT INTO source (name, kind, system, step, length, retention, since) VALUES (?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT DO UPDATE SET kind = excluded.kind, system = excluded.system, step = excluded.step,
           length = excluded.length, retention = excluded.retention, since = excluded.since""",
        (source.name, source.kind, source.system, source.step, int(source.window), int(source.retention), earlier),
    )
    return earlier


def _stored_seconds(sql: sqlite3.Connection, source: str, since: int) -> int:
    query = 'SELECT coalesce(sum("end" - max(start, :since)), 0) FROM stored WHERE source = :source AND "end" > :since'
    return int(sql.execute(query, {"source": source, "since": since}).fetchone()[0])


def forget_other_system(sql: sqlite3.Connection, source: SourceConfig) -> None:
    """Forget what a source stored for another system: the files of its present system hold nothing of that."""
    row = sql.execute("SELECT system FROM source WHERE name = ?", (source.name,)).fetchone()
    if row is not None and row[0] != source.system:
        for table in ("stored", "unstored", "counted", "received", "received_span", "dropped"):
            sql.execute(f"DELETE FROM {table} WHERE source = ?", (source.name,))  # noqa: S608 - our own words
        sql.execute("DELETE FROM source WHERE name = ?", (source.name,))


def set_state(sql: sqlite3.Connection, source: str, state: str, reason: str, now: float) -> None:
    """Set a source's state and its reason; state_since becomes `now` where the state changes."""
    sql.execute(
        """UPDATE source SET state_since = CASE WHEN state = :state THEN state_since ELSE :now END, state = :state,
           state_reason = :reason WHERE name = :source""",
        {"source": source, "state": state, "reason": reason, "now": now},
    )


def set_why(sql: sqlite3.Connection, source: str, why: Mapping[str, Why]) -> None:
    """Set the example and the remedy for reasons why records of a source were dropped."""
    rows = [(source, reason, one.example, one.remedy) for reason, one in why.items()]
    sql.executemany("INSERT OR REPLACE INTO dropped VALUES (?, ?, ?, ?)", rows)


def why(sql: sqlite3.Connection, source: str) -> dict[str, Why]:
    """Return an example and a remedy for the reasons why records of a source were dropped."""
    # A ledger that is only read may be of an older format.
    if sql.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'dropped'").fetchone() is None:
        return {}
    found = sql.execute("SELECT reason, example, remedy FROM dropped WHERE source = ?", (source,))
    return {reason: Why(example, remedy) for reason, example, remedy in found}


def statuses(sql: sqlite3.Connection) -> list[SourceRow]:
    """Return the status of every source, by name."""
    return list(_rows(sql.execute("SELECT * FROM source ORDER BY name")))


def names(sql: sqlite3.Connection, system: str) -> list[str]:
    """Return the names of a system's sources."""
    return [name for (name,) in sql.execute("SELECT name FROM source WHERE system = ?", (system,))]


def since(sql: sqlite3.Connection, source: str) -> int:
    """Return the epoch second from which data of a source is expected, 0 for an unknown source."""
    query = "SELECT coalesce((SELECT since FROM source WHERE name = :s), (SELECT min(start) FROM stored WHERE source = :s), 0)"
    return int(sql.execute(query, {"s": source}).fetchone()[0])


def data_end(sql: sqlite3.Connection, source: str) -> int | None:
    """Return the end of the newest stored window of a source that had a sample."""
    row = sql.execute("SELECT data_end FROM source WHERE name = ?", (source,)).fetchone()
    return None if row is None else row[0]


def has_reached(sql: sqlite3.Connection, source: str, time: int) -> bool:
    """Return whether a window with a sample that ends after a time was stored, or a span that ends after it is lost."""
    known = _rows(sql.execute("SELECT * FROM source WHERE name = ?", (source,)))
    if any(row.has_sample_after(time) for row in known):
        return True
    query = """SELECT 1 FROM unstored WHERE source = ? AND state = 'lost' AND "end" > ? LIMIT 1"""
    return sql.execute(query, (source, time)).fetchone() is not None


def _rows(cursor: sqlite3.Cursor) -> Iterator[SourceRow]:
    names = [column[0] for column in cursor.description]
    return (_status(**dict(zip(names, row, strict=True))) for row in cursor)


def _status(*, last_start: int | None, last_end: int | None, dropped: str, **rest: Any) -> SourceRow:
    last = None if last_start is None or last_end is None else Window(last_start, last_end)
    # A ledger that is only read may be of an older format.
    return SourceRow(last=last, dropped=msgspec.json.decode(dropped), **{"data_end": last_end, **rest})
