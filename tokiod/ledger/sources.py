"""The ledger's table of sources: what is known of each, its last window, its sums, its state.

What changes it is a step of a transaction of tokiod.ledger.ledger's. Raises sqlite3.Error.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from tokiod.ledger.rows import SourceStatus
from tokiod.ledger.spans import overlapping
from tokiod.window import Window

if TYPE_CHECKING:
    import sqlite3

    from tokiod.collector import SourceConfig
    from tokiod.ledger.rows import StoredEntry


def count(sql: sqlite3.Connection, entry: StoredEntry, now: float, *, first: bool) -> None:
    """Keep a source's last window, and its sums over windows that were not stored before."""
    known = sql.execute("SELECT dropped FROM source WHERE name = ?", (entry.source,)).fetchone()
    dropped = Counter(msgspec.json.decode(known[0]) if known else {})
    dropped.update(entry.dropped if first else {})
    values = {
        "name": entry.source, "kind": entry.kind, "system": entry.system, "start": entry.window.start, "end": entry.window.end,
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


def register(sql: sqlite3.Connection, source: SourceConfig, since: int) -> int:
    """Make a source known; returns since when it is expected: see tokiod.ledger.ledger."""
    row = sql.execute("SELECT since FROM source WHERE name = ?", (source.name,)).fetchone()
    earlier = since if row is None or row[0] is None else int(row[0])
    was_had = not source.replayable or overlapping(sql, "stored", source.name, earlier, since)
    if earlier > since or not was_had:
        earlier = since
        sql.execute('DELETE FROM unstored WHERE source = ? AND "end" <= ?', (source.name, since))
    sql.execute(
        """INSERT INTO source (name, kind, system, step, length, retention, since) VALUES (?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT DO UPDATE SET kind = excluded.kind, system = excluded.system, step = excluded.step,
           length = excluded.length, retention = excluded.retention, since = excluded.since""",
        (source.name, source.kind, source.system, source.step, int(source.window), int(source.retention), earlier),
    )
    return earlier


def set_state(sql: sqlite3.Connection, source: str, state: str, reason: str, now: float) -> None:
    """Say how a source does, since `now` where that is news."""
    sql.execute(
        """UPDATE source SET state_since = CASE WHEN state = :state THEN state_since ELSE :now END, state = :state,
           state_reason = :reason WHERE name = :source""",
        {"source": source, "state": state, "reason": reason, "now": now},
    )


def statuses(sql: sqlite3.Connection) -> list[SourceStatus]:
    """Return what is known of every source, by name."""
    cursor = sql.execute("SELECT * FROM source ORDER BY name")
    names = [column[0] for column in cursor.description]
    return [_status(**dict(zip(names, row, strict=True))) for row in cursor]


def since(sql: sqlite3.Connection, source: str) -> int:
    """Return since when a source is expected to have data, 0 for one that was never heard of."""
    query = "SELECT coalesce((SELECT since FROM source WHERE name = :s), (SELECT min(start) FROM stored WHERE source = :s), 0)"
    return int(sql.execute(query, {"s": source}).fetchone()[0])


def _status(*, last_start: int | None, last_end: int | None, dropped: str, **rest: Any) -> SourceStatus:
    last = None if last_start is None or last_end is None else Window(last_start, last_end)
    return SourceStatus(last=last, dropped=msgspec.json.decode(dropped), **rest)
