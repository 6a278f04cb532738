"""The ledger: which windows of every source are stored, and why the others are not.

    stored     one row per maximal range of stored seconds of a source; ten million windows without a hole are one row
    unstored   one row per span that was asked for and is not stored: failed (asked again), rejected (a person must look), lost
    source     what is known of a source: its last window, its sums, its state
    counted    how many records windows had that are to be counted again (tokiod.recount)
    received   what came out of watched folders (tokiod.watch.received)
    job        what people asked to have filled (tokiod.jobs)

Only the writer says what is stored (store, forget), only the collectors say why something is not (register, set_state, failed, lost);
any process may read. The file is SQLite in WAL mode: a reader never waits, a killed process leaves whole transactions, and a power
loss takes at most the last of them, whose windows are then collected again: the files were synced first, so nothing is claimed that
is not there. Where asking again is impossible (a source without a past), `full` syncs every transaction.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Self

from msgspec import structs

from tokiod.ledger_file import LedgerCorrupt, LedgerUnmade, connect, connect_readonly, set_aside
from tokiod.ledger_rows import SourceStatus, StoredEntry, Unstored, Unstoredness
from tokiod.ranges import Ranges
from tokiod.window import Window

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tokiod.collector import SourceConfig
    from tokiod.ledger_stamp import Stamp

__all__ = ["Ledger", "LedgerCorrupt", "LedgerUnmade", "SourceStatus", "StoredEntry", "Unstored"]


class Ledger:
    """A connection to the ledger of an archive, made by open(), open_or_set_aside() or open_readonly().

    Every public method is one transaction. Raises sqlite3.Error where the file can't be read or written just now (a full disk).
    set_aside: where open_or_set_aside() has moved a corrupt predecessor. stamp: what tells it from an older copy, once it is trusted.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, aside: Path | None = None) -> None:
        self.path = path
        self.set_aside = aside
        self.stamp: Stamp | None = None
        self._sql = connection

    @classmethod
    def open(cls, path: Path, *, full: bool = False) -> Self:
        """Open or create a ledger and its directories; full: sync every transaction to the disk.

        Raises LedgerCorrupt, and TokiodError for one that can't be opened or that a newer tokiod wrote.
        """
        return cls(path, connect(path, full=full))

    @classmethod
    def open_or_set_aside(cls, path: Path, now: float, *, full: bool = False) -> Self:
        """Open a ledger as open() does; rename a corrupt one to .corrupt-STAMP and start afresh. For the writer alone."""
        try:
            return cls.open(path, full=full)
        except LedgerCorrupt:
            return cls(path, aside=set_aside(path, now), connection=connect(path, full=full))

    @classmethod
    def open_readonly(cls, path: Path) -> Self:
        """Open a ledger to read it, whether the daemon runs or not, also without permission to write; errors as open()."""
        return cls(path, connect_readonly(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._sql.close()

    def reopen(self) -> None:
        """Open the path anew: the writer may have set a corrupt file aside and started another. Raises as open(); then all stays."""
        old, self._sql = self._sql, connect(self.path, full=False)
        old.close()

    # ---- the writer says what is stored

    def store(self, entries: Iterable[StoredEntry], now: float) -> None:
        """Say that windows are stored, all in one transaction; saying it again changes nothing but the last window's cells."""
        with self.transaction():
            for entry in entries:
                self._count(entry, now, first=not self._covers(entry.source, entry.window))
                if not entry.partial:
                    self._add(entry.source, entry.window)
                    self._cut(entry.source, entry.window)
                    self._note_records(entry, now)
        if self.stamp is not None:
            self.stamp.keep(now)

    def forget(self, system: str, window: Window, *, source: str | None = None) -> dict[str, list[Window]]:
        """Say that nothing of a system, or of one source of it, is stored in a window any more; returns what was, by source."""
        with self.transaction():
            names = [n for (n,) in self._sql.execute("SELECT name FROM source WHERE system = ?", (system,)) if source in (None, n)]
            return {name: gone for name in names if (gone := self._remove(name, window))}

    def records(self, source: str, window: Window) -> int | None:
        """Return how many records a stored window had, None where that is not known, or not of all of it."""
        query = 'SELECT start, "end", records FROM counted WHERE source = ? AND start >= ? AND "end" <= ? ORDER BY start'
        rows = self._sql.execute(query, (source, window.start, window.end)).fetchall()
        if not Ranges((start, end) for start, end, _ in rows).covers(window):
            return None
        return sum(int(records) for _, _, records in rows)

    def _note_records(self, entry: StoredEntry, now: float) -> None:
        """Keep the number of records until the last time that they are counted again (tokiod.recount)."""
        window = entry.window
        overlapping = self._overlapping("counted", entry.source, window.start, window.end)
        self._sql.executemany("DELETE FROM counted WHERE source = ? AND start = ?", [(entry.source, start) for start, _ in overlapping])
        if entry.records is not None:
            row = (entry.source, window.start, window.end, entry.records, now)
            self._sql.execute('INSERT INTO counted (source, start, "end", records, stored_at) VALUES (?, ?, ?, ?, ?)', row)

    def _covers(self, source: str, window: Window) -> bool:
        return Ranges(self._overlapping("stored", source, window.start, window.end)).covers(window)

    def _add(self, source: str, window: Window) -> None:
        touching = self._overlapping("stored", source, window.start - 1, window.end + 1)
        self._replace(source, touching, Ranges([(window.start, window.end), *touching]))

    def _remove(self, source: str, window: Window) -> list[Window]:
        overlapping = self._overlapping("stored", source, window.start, window.end)
        rest = Ranges(overlapping)
        rest.remove(window.start, window.end)
        self._replace(source, overlapping, rest)
        return Ranges(overlapping).within(window.start, window.end)

    def _replace(self, source: str, old: list[tuple[int, int]], new: Ranges) -> None:
        self._sql.executemany("DELETE FROM stored WHERE source = ? AND start = ?", [(source, start) for start, _ in old])
        self._sql.executemany("INSERT INTO stored VALUES (?, ?, ?)", [(source, *pair) for pair in new])

    def _count(self, entry: StoredEntry, now: float, *, first: bool) -> None:
        """Keep a source's last window, and its sums over windows that were not stored before."""
        known = self._sql.execute("SELECT dropped FROM source WHERE name = ?", (entry.source,)).fetchone()
        dropped = Counter(json.loads(known[0]) if known else {})
        dropped.update(entry.dropped if first else {})
        values = {
            "name": entry.source, "kind": entry.kind, "system": entry.system, "start": entry.window.start, "end": entry.window.end,
            "now": now, "cells": entry.cells, "new": int(first), "dropped": json.dumps(dropped),
        }  # fmt: skip
        self._sql.execute(
            """INSERT INTO source (name, kind, system) VALUES (:name, :kind, :system)
               ON CONFLICT DO UPDATE SET kind = :kind, system = :system""",
            {k: values[k] for k in ("name", "kind", "system")},
        )
        self._sql.execute(
            "UPDATE source SET windows = windows + :new, cells = cells + :new * :cells, dropped = :dropped WHERE name = :name", values
        )
        self._sql.execute(
            """UPDATE source SET last_start = :start, last_end = :end, last_cells = :cells, stored_at = :now
               WHERE name = :name AND coalesce(last_end, :end) <= :end""",
            values,
        )

    # ---- the collectors say why something is not

    def register(self, source: SourceConfig, since: int) -> int:
        """Make a source known, expected from epoch second `since` on; returns since when it is.

        That is an earlier time than `since` only if something was stored between the two: what a source had kept before it was first
        asked, and dropped before tokiod got round to it, was never expected, and no trace of its failures stays.
        """
        with self.transaction():
            row = self._sql.execute("SELECT since FROM source WHERE name = ?", (source.name,)).fetchone()
            earlier = since if row is None or row[0] is None else int(row[0])
            if earlier > since or not self._overlapping("stored", source.name, earlier, since):
                earlier = since
                self._sql.execute('DELETE FROM unstored WHERE source = ? AND "end" <= ?', (source.name, since))
            self._sql.execute(
                """INSERT INTO source (name, kind, system, step, length, retention, since) VALUES (?, ?, ?, ?, ?, ?, ?)
                   ON CONFLICT DO UPDATE SET kind = excluded.kind, system = excluded.system, step = excluded.step,
                   length = excluded.length, retention = excluded.retention, since = excluded.since""",
                (source.name, source.kind, source.system, source.step, int(source.window), int(source.retention), earlier),
            )
            return earlier

    def set_state(self, source: str, state: str, reason: str, now: float) -> None:
        """Say how a registered source does: running, waiting, fatal, stopped; since `now` where that is news."""
        with self.transaction():
            self._sql.execute(
                """UPDATE source SET state_since = CASE WHEN state = :state THEN state_since ELSE :now END, state = :state,
                   state_reason = :reason WHERE name = :source""",
                {"source": source, "state": state, "reason": reason, "now": now},
            )

    def failed(  # noqa: PLR0913, PLR0917 - the columns of a row
        self,
        source: str,
        window: Window,
        error_class: str,
        message: str,
        attempts: int,
        next_try: float | None,
        now: float,
        *,
        state: Unstoredness = "failed",
    ) -> None:
        """Say why a window is not stored, after how many attempts, and when it is asked for again."""
        with self.transaction():
            self._cut(source, window)
            self._insert(Unstored(source, window, state, attempts, error_class, message, now, next_try))

    def lost(self, source: str, window: Window, error_class: str, message: str, now: float) -> None:
        """Say that a span can't be had any more; spans that touch and were lost for the same reason are one row."""
        with self.transaction():
            self._cut(source, window)
            for one in self._unstored_in(source, window.start - 1, window.end + 1):
                if (one.state, one.error_class, one.error) == ("lost", error_class, message):
                    self._cut(source, one.window)
                    window = Window(min(window.start, one.window.start), max(window.end, one.window.end))
            self._insert(Unstored(source, window, "lost", 0, error_class, message, now, None))

    def _cut(self, source: str, window: Window) -> None:
        """Take a window out of the spans that are not stored, leaving their rests."""
        for one in self._unstored_in(source, window.start, window.end):
            self._sql.execute("DELETE FROM unstored WHERE source = ? AND start = ?", (source, one.window.start))
            for start, end in ((one.window.start, window.start), (window.end, one.window.end)):
                if start < end:
                    self._insert(structs.replace(one, window=Window(start, end)))

    def _insert(self, one: Unstored) -> None:
        source, window, *rest = structs.astuple(one)
        self._sql.execute("INSERT INTO unstored VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (source, window.start, window.end, *rest))

    # ---- anybody reads

    def stored(self, source: str, within: Window | None = None) -> Ranges:
        """Return all that is stored of a source, or what overlaps a window."""
        if within is not None:
            return Ranges(self._overlapping("stored", source, within.start, within.end))
        return Ranges(self._sql.execute('SELECT start, "end" FROM stored WHERE source = ? ORDER BY start', (source,)))

    def settled(self, source: str, since: int) -> Iterator[tuple[int, int]]:
        """Yield the spans of a source that are stored or lost for good, and end after `since`, in order; none overlap, some touch."""
        return self._sql.execute(
            """SELECT start, "end" FROM stored WHERE source = :source AND "end" > :since
               UNION ALL SELECT start, "end" FROM unstored WHERE source = :source AND "end" > :since AND state = 'lost' ORDER BY 1""",
            {"source": source, "since": since},
        )

    def unstored(self, source: str) -> list[Unstored]:
        """Return the spans of a source that were asked for and are not stored, oldest first."""
        return [_unstored(row) for row in self._sql.execute("SELECT * FROM unstored WHERE source = ? ORDER BY start", (source,))]

    def last_failure(self, source: str) -> Unstored | None:
        """Return the span of a source that is not stored and was asked for last."""
        query = "SELECT * FROM unstored WHERE source = ? ORDER BY last_try DESC, start LIMIT 1"
        row = self._sql.execute(query, (source,)).fetchone()
        return None if row is None else _unstored(row)

    def lost_seconds(self, source: str) -> int:
        """Return how much of a source can't be had any more."""
        query = "SELECT coalesce(sum(\"end\" - start), 0) FROM unstored WHERE source = ? AND state = 'lost'"
        return int(self._sql.execute(query, (source,)).fetchone()[0])

    def sources(self) -> list[SourceStatus]:
        """Return what is known of every source, by name."""
        cursor = self._sql.execute("SELECT * FROM source ORDER BY name")
        names = [column[0] for column in cursor.description]
        return [_status(**dict(zip(names, row, strict=True))) for row in cursor]

    def watermark(self, source: str, since: int | None = None) -> int:
        """Return the end of the newest window of a source up to which nothing is missing, counted from `since` on.

        since: when the source was first expected to have data (default), or any epoch second, such as the start of its retention;
        it is the answer where there is a hole right behind it. What is lost for good is not missing: nothing more will come there.
        0 for a source that was never heard of.
        """
        reached = self._since(source) if since is None else since
        for start, end in self.settled(source, reached):
            if start > reached:
                break
            reached = end
        return reached

    def _since(self, source: str) -> int:
        query = "SELECT coalesce((SELECT since FROM source WHERE name = :s), (SELECT min(start) FROM stored WHERE source = :s), 0)"
        return int(self._sql.execute(query, {"s": source}).fetchone()[0])

    def _unstored_in(self, source: str, start: int, end: int) -> list[Unstored]:
        return [_unstored(row) for row in self._overlapping("unstored", source, start, end, "*")]

    def _overlapping(self, table: str, source: str, start: int, end: int, columns: str = 'start, "end"') -> list[Any]:
        """Return a source's rows that overlap [start, end), oldest first: rows are disjoint, so walking back may stop at the first miss."""
        query = f'SELECT "end", {columns} FROM {table} WHERE source = ? AND start < ? ORDER BY start DESC'  # noqa: S608 - our own words
        rows = takewhile(lambda row: row[0] > start, self._sql.execute(query, (source, end)))
        return [row[1:] for row in rows][::-1]

    @property
    def sql(self) -> sqlite3.Connection:
        """The connection, for modules that keep tables of their own in the ledger, and for reading."""
        return self._sql

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Do something whole or not at all."""
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            yield self._sql
            self._sql.execute("COMMIT")
        except BaseException:
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")
            raise


def _unstored(row: tuple[Any, ...]) -> Unstored:
    source, start, end, *rest = row
    return Unstored(source, Window(start, end), *rest)


def _status(*, last_start: int | None, last_end: int | None, dropped: str, **rest: Any) -> SourceStatus:
    last = None if last_start is None or last_end is None else Window(last_start, last_end)
    return SourceStatus(last=last, dropped=json.loads(dropped), **rest)
