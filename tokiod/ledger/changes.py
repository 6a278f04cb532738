"""The change log: which spans of a system's files changed, in the order of the transactions that recorded it. Sinks read it.

changes      one row per change: a growing number, system, source, [start, end) epoch seconds, kind, and when it was recorded
change_log   one row: the epoch, the highest number that was trimmed, and the first number of this run of the writer

kind: "rows": cells of the span were stored or computed again; "set_aside": the span is no longer stored; "sealed": its file was sealed.
An epoch begins with a ledger that is new, was lost or is older than the files: numbers of another epoch mean nothing.

A change only says where to read: a reader of the log takes the cells from the files, which may be newer. So rows of one source whose spans
touch are merged, once they are no longer among the newest, into one with the highest of their numbers. A reader of any number finds
all that changed after it, and the log stays small however many windows are stored.

No number is used twice. A power loss may take the last transactions of the ledger, whose changes were read already: their windows are
collected again, and each run of the writer begins with numbers that are higher than all that may have been lost. Numbers grow also from one
epoch to the next, unless a clock was set back while the ledger and ledger.stamp were lost.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import msgspec

from tokiod.ledger.database import LedgerError
from tokiod.ranges import Ranges
from tokiod.window import Window

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from tokiod.ledger.database import Database

Kind = Literal["rows", "set_aside", "sealed"]

KEEP_SECONDS = 30 * 86400
"""How long a change stays in the log, whether it was read or not."""
NEWEST_ROWS = 1000
"""Rows that are not merged yet: what followers of the log read next."""
MERGED_ROWS = 1000
"""Rows that are merged at once, in some milliseconds."""
NUMBERS_PER_SECOND = 1_000_000
"""No ledger records as many changes in a second: numbers that begin at the time of their epoch are higher than all before."""
LOST_NUMBERS = 100_000
"""More changes than the part of the ledger's log can hold that is not synced yet."""

PACE_WINDOWS, MIN_PACE_WINDOWS = 200, 10
"""Of how many of its latest windows the pace of a source is computed, and of how many at least."""

_COLUMNS = 'seq, system, source, start, "end", kind, time'


class Change(msgspec.Struct, frozen=True):
    """A span of a system that changed. seq: its number; time: when it was recorded, epoch seconds; source: empty for all of a file."""

    seq: int
    system: str
    source: str
    window: Window
    kind: Kind
    time: float


class LogState(msgspec.Struct, frozen=True):
    """What the log holds: the numbers after `trimmed` up to `head`, of an epoch."""

    epoch: int
    trimmed: int
    head: int


_INSERT = """INSERT INTO changes
SELECT max(coalesce(max(seq), 0) + 1, (SELECT coalesce(max(first), 1) FROM change_log)), ?, ?, ?, ?, ?, ? FROM changes"""


def record(sql: sqlite3.Connection, system: str, source: str, spans: Iterable[tuple[int, int]], kind: Kind, now: float) -> None:  # noqa: PLR0913, PLR0917 - a row
    """Add a row for each span, inside a transaction of the ledger."""
    sql.executemany(_INSERT, [(system, source, start, end, kind, now) for start, end in spans])


def pace(sql: sqlite3.Connection, source: str, now: float) -> float:
    """Return how many seconds of a source's time its latest windows have per second in which they were stored, 0 for a few alone."""
    latest = """SELECT "end" - start AS seconds, time FROM changes WHERE source = ? AND kind = 'rows' ORDER BY seq DESC LIMIT ?"""
    seconds, count, since = sql.execute(f"SELECT sum(seconds), count(*), min(time) FROM ({latest})", (source, PACE_WINDOWS)).fetchone()  # noqa: S608 - our own words
    return float(seconds / (now - since)) if count >= MIN_PACE_WINDOWS and now > since else 0.0


class ChangeLog:
    """The change log of an open ledger. Raises LedgerError.

    newest_rows: how many rows are not merged yet; merged_rows: how many are merged at once.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.newest_rows = NEWEST_ROWS
        self.merged_rows = MERGED_ROWS
        self._unmerged: int | None = None

    def state(self) -> LogState | None:
        """Return the state of the log, None before its first epoch: the writer has not started on this ledger."""
        row = self._database.sql.execute(
            "SELECT epoch, trimmed, coalesce((SELECT max(seq) FROM changes), trimmed) FROM change_log"
        ).fetchone()
        return None if row is None else LogState(*row)

    def after(self, seq: int, limit: int) -> list[Change]:
        """Return the first changes after a number, at most `limit`, in their order."""
        rows = self._database.sql.execute(f"SELECT {_COLUMNS} FROM changes WHERE seq > ? ORDER BY seq LIMIT ?", (seq, limit))  # noqa: S608 - our own words
        return list(map(_change, rows))

    def windows_after(self, seq: int) -> int:
        """Return how many changes follow a number."""
        return int(self._database.sql.execute("SELECT count(*) FROM changes WHERE seq > ?", (seq,)).fetchone()[0])

    # ---- the writer

    def begin_epoch(self, now: float, former: int | None = None) -> None:
        """Forget all changes: the ledger may lack some that the files hold. Readers of the log start from the files.

        former: an epoch that a ledger which was lost had.
        """
        with self._database.transaction() as sql:
            (newest,) = sql.execute("SELECT max(epoch) FROM change_log").fetchone()
            (last,) = sql.execute("SELECT coalesce(max(seq), 0) FROM changes").fetchone()
            epoch = max(int(now), *(one + 1 for one in (newest, former) if one is not None), 0)
            sql.execute("DELETE FROM changes")
            sql.execute("DELETE FROM change_log")
            before = max(epoch * NUMBERS_PER_SECOND, last)
            sql.execute("INSERT INTO change_log VALUES (?, ?, ?)", (epoch, before, before + 1))
        self._unmerged = None

    def begin_run(self) -> None:
        """Go on in the same epoch, with higher numbers than a power loss may have taken."""
        state = self.state()
        if state is not None:
            # From the former run's first number on, where a power loss took all of that run's changes.
            with self._database.transaction() as sql:
                sql.execute("UPDATE change_log SET first = max(first, ?) + ?", (state.head + 1, LOST_NUMBERS))

    def note(self, system: str, spans: Iterable[tuple[int, int]], kind: Kind, now: float) -> None:
        """Record a change of all of a system's cells in some spans."""
        with self._database.transaction() as sql:
            record(sql, system, "", spans, kind, now)

    def tidy_if_due(self, now: float) -> None:
        """Merge and trim after some changes; called before each transaction that records some. Without effect where it fails."""
        with suppress(LedgerError):
            if self._unmerged is None:
                (self._unmerged,) = self._database.sql.execute("SELECT count(*) FROM changes").fetchone()
            if self._unmerged >= self.newest_rows + self.merged_rows:
                self._unmerged = self.newest_rows
                self.tidy(now)

    def note_recorded(self, rows: int) -> None:
        """Count rows that were recorded."""
        if self._unmerged is not None:
            self._unmerged += rows

    def tidy(self, now: float) -> None:
        """Merge rows that are no longer among the newest, and trim those that are too old, in one transaction. Nothing before an epoch."""
        if self.state() is None:
            return
        with self._database.transaction() as sql:
            self._trim(sql, now - KEEP_SECONDS)
            newest = sql.execute("SELECT seq FROM changes ORDER BY seq DESC LIMIT 1 OFFSET ?", (self.newest_rows,)).fetchone()
            if newest is not None:
                self._merge(sql, newest[0])

    def _trim(self, sql: sqlite3.Connection, before: float) -> None:
        """Remove the oldest rows up to the last one that is too old: what remains is all that followed."""
        query = "SELECT max(seq) FROM changes WHERE time < ?"
        (last,) = sql.execute(query, (before,)).fetchone()
        if last is not None:
            sql.execute("DELETE FROM changes WHERE seq <= ?", (last,))
            sql.execute("UPDATE change_log SET trimmed = max(trimmed, :last), first = max(first, :last + 1)", {"last": last})

    def _merge(self, sql: sqlite3.Connection, until: int) -> None:
        """Merge the last rows up to a number."""
        query = f"SELECT {_COLUMNS} FROM changes WHERE seq <= ? ORDER BY seq DESC LIMIT ?"  # noqa: S608 - our own words
        old = [_change(row) for row in sql.execute(query, (until, self.merged_rows))]
        new = list(merged(old))
        keep = {one.seq for one in new}
        sql.executemany("DELETE FROM changes WHERE seq = ?", [(one.seq,) for one in old if one.seq not in keep])
        sql.executemany(
            'UPDATE changes SET start = ?, "end" = ?, time = ? WHERE seq = ?',
            [(one.window.start, one.window.end, one.time, one.seq) for one in new],
        )


def merged(changes: Iterable[Change]) -> Iterator[Change]:
    """Yield changes of one system, source and kind whose spans touch or overlap as one, with the highest number and time of them."""
    groups: defaultdict[tuple[str, str, Kind], list[Change]] = defaultdict(list)
    for one in changes:
        groups[one.system, one.source, one.kind].append(one)
    for group in groups.values():
        group.sort(key=lambda one: one.window)
        spans = iter(Ranges((one.window.start, one.window.end) for one in group))
        yield from _joined(group, spans)


def _joined(group: list[Change], spans: Iterator[tuple[int, int]]) -> Iterator[Change]:
    """Yield one change for each span; group: sorted by start."""
    position = 0
    for start, end in spans:
        first = position
        while position < len(group) and group[position].window.start < end:
            position += 1
        parts = group[first:position]
        newest = max(parts, key=lambda one: one.seq)
        yield msgspec.structs.replace(newest, window=Window(start, end), time=max(one.time for one in parts))


def _change(row: tuple[int, str, str, int, int, Kind, float]) -> Change:
    seq, system, source, start, end, kind, time = row
    return Change(seq, system, source, Window(start, end), kind, time)
