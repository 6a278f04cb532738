"""The ledger: which windows of every source are stored, and why the others are not.

    stored     one row per maximal range of stored seconds of a source; ten million windows without a hole are one row
    unstored   one row per span that was asked for and is not stored: failed (asked again), rejected (a person must look), lost
    source     what is known of a source: its last window, its sums, its state
    counted    how many records windows had that are to be counted again (tokiod.polling.recount)
    received   what came out of watched folders (tokiod.ledger.received_files)
    job        what people asked to have filled (tokiod.ledger.jobs)

tokiod.ledger.spans has the first two and counted, tokiod.ledger.sources has source; what is said here is one transaction.

Only the writer says what is stored (store, forget), only the collectors say why something is not (register, set_state, failed, lost);
any process may read. The file is SQLite in WAL mode: a reader never waits, a killed process leaves whole transactions, and a power
loss takes at most the last of them, whose windows are then collected again: the files were synced first, so nothing is claimed that
is not there. Where asking again is impossible (a source without a past), `full` syncs every transaction.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from tokiod.ledger import sources, spans
from tokiod.ledger.database import LedgerCorrupt, LedgerUnmade, connect, connect_readonly, set_aside
from tokiod.ledger.rows import SourceStatus, StoredEntry, Unstored, Unstoredness

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tokiod.collector import SourceConfig
    from tokiod.ledger.generation import Stamp
    from tokiod.ranges import Ranges
    from tokiod.window import Window

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
    def open_readonly(cls, path: Path, *, checked: bool = True) -> Self:
        """Open a ledger to read it, whether the daemon runs or not, also without permission to write; errors as open().

        checked: look through all of it for corruption first.
        """
        return cls(path, connect_readonly(path, checked=checked))

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
                sources.count(self._sql, entry, now, first=not spans.covers(self._sql, entry.source, entry.window))
                if not entry.partial:
                    spans.add(self._sql, entry.source, entry.window)
                    spans.cut(self._sql, entry.source, entry.window)
                    spans.note_records(self._sql, entry, now)
        if self.stamp is not None:
            self.stamp.keep(now)

    def forget(self, system: str, window: Window, *, source: str | None = None) -> dict[str, list[Window]]:
        """Say that nothing of a system, or of one source of it, is stored in a window any more; returns what was, by source."""
        with self.transaction():
            names = [n for (n,) in self._sql.execute("SELECT name FROM source WHERE system = ?", (system,)) if source in (None, n)]
            return {name: gone for name in names if (gone := spans.remove(self._sql, name, window))}

    def records(self, source: str, window: Window) -> int | None:
        """Return how many records a stored window had, None where that is not known, or not of all of it."""
        return spans.records(self._sql, source, window)

    # ---- the collectors say why something is not

    def register(self, source: SourceConfig, since: int) -> int:
        """Make a source known, expected from epoch second `since` on; returns since when it is.

        That is an earlier time than `since` only if something was stored between the two: what a source had kept before it was first
        asked, and dropped before tokiod got round to it, was never expected, and no trace of its failures stays. A source without a
        past kept nothing: it is expected from when it was first made known, and what its first windows missed is lost.
        """
        with self.transaction():
            return sources.register(self._sql, source, since)

    def set_state(self, source: str, state: str, reason: str, now: float) -> None:
        """Say how a registered source does: running, waiting, fatal, stopped; since `now` where that is news."""
        with self.transaction():
            sources.set_state(self._sql, source, state, reason, now)

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
            spans.cut(self._sql, source, window)
            spans.insert(self._sql, Unstored(source, window, state, attempts, error_class, message, now, next_try))

    def lost(self, source: str, window: Window, error_class: str, message: str, now: float) -> None:
        """Say that a span can't be had any more; spans that touch and were lost for the same reason are one row."""
        with self.transaction():
            spans.lose(self._sql, Unstored(source, window, "lost", 0, error_class, message, now, None))

    # ---- anybody reads

    def stored(self, source: str, within: Window | None = None) -> Ranges:
        """Return all that is stored of a source, or what overlaps a window."""
        return spans.stored(self._sql, source, within)

    def settled(self, source: str, since: int) -> Iterator[tuple[int, int]]:
        """Yield the spans of a source that are stored or lost, and end after `since`, by their starts; some touch, and some overlap."""
        return spans.settled(self._sql, source, since)

    def unstored(self, source: str) -> list[Unstored]:
        """Return the spans of a source that were asked for and are not stored, oldest first."""
        return spans.unstored(self._sql, source)

    def last_failure(self, source: str) -> Unstored | None:
        """Return the span of a source that is not stored and was asked for last."""
        return spans.last_failure(self._sql, source)

    def lost_seconds(self, source: str) -> int:
        """Return how much of a source can't be had any more."""
        return spans.lost_seconds(self._sql, source)

    def sources(self) -> list[SourceStatus]:
        """Return what is known of every source, by name."""
        return sources.statuses(self._sql)

    def watermark(self, source: str, since: int | None = None) -> int:
        """Return the end of the newest window of a source up to which nothing is missing, counted from `since` on.

        since: when the source was first expected to have data (default), or any epoch second, such as the start of its retention;
        it is the answer where there is a hole right behind it. What is lost for good is not missing: nothing more will come there.
        0 for a source that was never heard of.
        """
        reached = sources.since(self._sql, source) if since is None else since
        for start, end in spans.settled(self._sql, source, reached):
            if start > reached:
                break
            reached = max(reached, end)
        return reached

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
