"""The ledger: which windows of every source are stored, and why the others are not.

    stored     one row per maximal range of stored seconds of a source; ten million windows without a hole are one row
    unstored   one row per span that is not stored after an attempt: failed (another attempt follows), rejected, lost, empty
    source     one row per source: its last window, its sums, its state
    counted    the record counts of windows that are to be recounted
    received   the files of watched folders
    file       the archive's files
    job        backfills
    changes    which spans changed, in their order: what sinks read

Only the writer records what is stored (store, forget, changes); only the collectors record why something is not (register, set_state,
failed, lost, empty); any process may read. The file is SQLite in WAL mode: a reader never waits, a killed process leaves whole
transactions, and a power loss takes at most the last of them. Their windows are collected again: the files were synced first, so the
ledger never records a window that is not in its file. Where a window can't be collected again (a source that is not replayable), `full`
syncs every transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from tokiod.ledger import changes, counts, received_files, sources, spans
from tokiod.ledger.changes import ChangeLog
from tokiod.ledger.counts import Counts
from tokiod.ledger.database import SQLITE, Database, LedgerCorrupt, LedgerError, LedgerNotReady, quarantine
from tokiod.ledger.integrity import Generation
from tokiod.ledger.jobs import Jobs
from tokiod.ledger.known_files import KnownFiles
from tokiod.ledger.published_copy import PublishedCopy
from tokiod.ledger.received_files import ReceivedFiles
from tokiod.ledger.sources import SourceRow
from tokiod.ledger.spans import StoredEntry, Unstored, UnstoredState
from tokiod.ranges import Ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tokiod.collector import SourceConfig
    from tokiod.dropped import Why
    from tokiod.ledger.database import Sqlite
    from tokiod.window import Window

__all__ = ["Ledger", "LedgerCorrupt", "LedgerError", "LedgerNotReady", "SourceRow", "StoredEntry", "Unstored"]


class Ledger:
    """A connection to the ledger of an archive, made by open() and open_or_quarantine(), open_existing() or open_readonly().

    sqlite: what they take from the machine.
    Every public method is one transaction and raises LedgerError where the file can't be read or written at present (a full disk).
    quarantined: where open_or_quarantine() renamed a corrupt predecessor. in_tables: the sources whose windows are in the job table, so
    that they don't depend on the files of days; watched: those whose windows are what the files of a folder hold. jobs: backfills;
    generation: tells it from an older copy; changes: what changed in the files.
    """

    def __init__(self, database: Database, quarantined: Path | None = None) -> None:
        self.path = database.path
        self.quarantined = quarantined
        self.in_tables: frozenset[str] = frozenset()
        self.watched: frozenset[str] = frozenset()
        self.jobs = Jobs(database)
        self.generation = Generation(database)
        self.changes = ChangeLog(database)
        self._database = database

    @classmethod
    def open(cls, path: Path, *, full: bool = False, sqlite: Sqlite = SQLITE) -> Self:
        """Open or create a ledger and its directories; full: sync every transaction to the disk.

        Raises LedgerCorrupt, LedgerUnreadable, and TokiodError for any other file that can't be opened or that a newer tokiod wrote.
        """
        return cls(Database.open(path, full=full, sqlite=sqlite))

    @classmethod
    def open_existing(cls, path: Path, sqlite: Sqlite = SQLITE) -> Self:
        """Open the ledger that the writer has created, as the collectors do. Raises as open(), and LedgerNotReady without one."""
        return cls(Database.open_existing(path, sqlite))

    @classmethod
    def open_or_quarantine(cls, path: Path, now: float, *, full: bool = False, sqlite: Sqlite = SQLITE) -> Self:
        """Open a ledger as open() does; rename a corrupt one to .corrupt-TIME and create another. Only the writer may do this."""
        try:
            return cls.open(path, full=full, sqlite=sqlite)
        except LedgerCorrupt:
            quarantined = quarantine(path, now)
            return cls(Database.open(path, full=full, sqlite=sqlite), quarantined)

    @classmethod
    def open_readonly(cls, path: Path, *, checked: bool = True) -> Self:
        """Open a ledger for reading, with or without a daemon, also without permission to write. Raises as open(), and LedgerNotReady.

        checked: read all pages first to find corruption.
        """
        return cls(Database.open_readonly(path, checked=checked))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def reopen(self) -> None:
        """Open the path again: the writer may have created another file. Raises as open_existing(), without effect."""
        self._database.reopen()

    def counts(self, source: str) -> Counts:
        """Return the record counts of a source."""
        return Counts(self._database, source)

    def received_files(self, source: str) -> ReceivedFiles:
        """Return the files that a source received in its watched folder."""
        return ReceivedFiles(self._database, source)

    def published_copy(self, path: Path, monotonic: Callable[[], float]) -> PublishedCopy:
        """Return what keeps a copy of the ledger for readers at `path`."""
        return PublishedCopy(self._database, path, monotonic)

    def known_files(self, root: Path) -> KnownFiles:
        """Return the files of the archive below `root`."""
        return KnownFiles(self._database, root)

    # ---- the writer records what is stored

    def store(self, entries: Iterable[StoredEntry], now: float) -> None:
        """Record windows as stored, and as changes, in one transaction; a second time changes only the last window's cells."""
        self.changes.tidy_if_due(now)
        recorded = 0
        with self._database.transaction() as sql:
            for entry in entries:
                source, window = entry.meta.source, entry.meta.window
                spans_changed = Ranges([(window.start, window.end), *entry.computed])
                changes.record(sql, entry.meta.system, source, spans_changed, "rows", now)
                recorded += len(spans_changed)
                # A backfill's seams, and its windows of some datasets, are not windows of the source.
                if entry.meta.is_whole or source in self.watched:
                    sources.count(sql, entry, now, first=not spans.covers(sql, source, window))
                if entry.meta.is_whole:
                    spans.add(sql, source, window)
                    spans.cut(sql, source, window)
                    counts.replace(sql, entry, now)
        self.generation.advance_if_due(now)
        self.changes.note_recorded(recorded)

    def forget(self, system: str, window: Window, now: float, *, source: str | None = None) -> dict[str, list[Window]]:
        """Record a window of a system's files, or of one of its sources, as not stored; return what was stored of it, by source.

        Received files with samples in the window count as new, so that they are collected again.
        Durably: another file may be created under the lost one's name next, and then nothing else would show the loss.
        """
        with self.generation.forgetting(now) as sql:
            changes.record(sql, system, source or "", [(window.start, window.end)], "set_aside", now)
            names = [name for name in sources.names(sql, system) if (name not in self.in_tables if source is None else name == source)]
            for name in names:
                received_files.forget_window(sql, name, window)
                counts.cut(sql, name, window)
            return {name: gone for name in names if (gone := spans.remove(sql, name, window))}

    # ---- the collectors record why something is not

    def register(self, source: SourceConfig, since: int) -> int:
        """Register a source whose data is expected from epoch second `since` on; return the time from which it is.

        That is an earlier time than `since` only if something was stored between the two. What a source held before the first attempt, and
        deleted before a window of it was collected, was never expected, and its failures are deleted. A source that is not replayable is
        expected from its first registration on: the windows that it missed since then are lost. An earlier registration counts as the first
        until a day of it is stored.
        """
        with self._database.transaction() as sql:
            return sources.register(sql, source, since)

    def forget_other_system(self, source: SourceConfig) -> None:
        """Forget what a source stored for another system: the files of its present system hold nothing of that."""
        with self._database.transaction() as sql:
            sources.forget_other_system(sql, source)

    def since(self, source: str) -> int:
        """Return the epoch second from which a source's data is expected; unregistered, that of its first window, or 0."""
        return sources.since(self._database.sql, source)

    def set_state(self, source: str, state: str, reason: str, now: float) -> None:
        """Set a registered source's state (running, waiting, fatal, stopped) and its reason."""
        with self._database.transaction() as sql:
            sources.set_state(sql, source, state, reason, now)

    def set_why(self, source: str, why: Mapping[str, Why]) -> None:
        """Record an example and a remedy for reasons why records of a source are dropped."""
        with self._database.transaction() as sql:
            sources.set_why(sql, source, why)

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
        state: UnstoredState = "failed",
    ) -> None:
        """Record why a window is not stored, after how many attempts, and when the next one follows."""
        with self._database.transaction() as sql:
            spans.cut(sql, source, window)
            spans.insert(sql, Unstored(source, window, state, attempts, error_class, message, now, next_try))

    def lost(self, source: str, window: Window, error_class: str, message: str, now: float) -> None:
        """Record a span as lost; spans that touch and were lost for the same reason are one row."""
        with self._database.transaction() as sql:
            spans.insert_joined(sql, Unstored(source, window, "lost", 0, error_class, message, now, None))

    def empty(self, source: str, window: Window, message: str, now: float) -> None:
        """Record a span for which a source that has no records at all answered without one; spans that touch are one row."""
        with self._database.transaction() as sql:
            spans.insert_joined(sql, Unstored(source, window, "empty", 0, "Empty", message, now, None))

    # ---- any process reads

    def snapshot(self) -> AbstractContextManager[None]:
        """Let everything that is read in a block be of one time, whatever other processes record meanwhile."""
        return self._database.snapshot()

    def stored(self, source: str, within: Window | None = None) -> Ranges:
        """Return the stored spans of a source: all, or those that overlap a window."""
        return spans.stored(self._database.sql, source, within)

    def answered(self, source: str, since: int) -> list[tuple[int, int, bool]]:
        """Return the spans of a source that are answered and end after `since`, by their starts.

        Maximal ones that are stored or lost, and empty ones, for which the third value is True.
        """
        return spans.answered(self._database.sql, source, since)

    def data_end(self, source: str) -> int | None:
        """Return the end of the newest stored window of a source that had a sample, None without one."""
        return sources.data_end(self._database.sql, source)

    def silence(self, source: str, data_end: int | None, now: int, window: Window | None = None) -> Window | None:
        """Return the newest span without a hole in which a source answered and had no sample, None if its newest window had one.

        data_end: as data_end() returns it, or later; now: the span's latest end, epoch seconds; window: one that was just answered without
        a sample and is not recorded yet.
        """
        return spans.silence(self._database.sql, source, data_end, now, window)

    def unstored(self, source: str) -> list[Unstored]:
        """Return the spans of a source that failed, were rejected, are lost or empty, oldest first."""
        return spans.unstored(self._database.sql, source)

    def last_failure(self, source: str) -> Unstored | None:
        """Return the unstored span whose last attempt is the newest."""
        return spans.last_failure(self._database.sql, source)

    def pace(self, source: str, now: float) -> float:
        """Return how many seconds of a source's time its latest windows have per second in which they were stored, 0 for a few alone."""
        return changes.pace(self._database.sql, source, now)

    def lost_seconds(self, source: str) -> int:
        """Return how many seconds of a source are lost."""
        return spans.lost_seconds(self._database.sql, source)

    def sources(self) -> list[SourceRow]:
        """Return the status of every source, by name."""
        return sources.statuses(self._database.sql)

    def why_dropped(self, source: str) -> dict[str, Why]:
        """Return an example and a remedy for reasons why records of a source were dropped."""
        return sources.why(self._database.sql, source)

    def watermark(self, source: str, since: int | None = None) -> int:
        """Return the end of the newest window of a source up to which nothing is missing, counted from `since` on.

        Lost spans do not count as missing: no data will follow. since: any epoch second, such as the start of its retention; the answer is
        `since` where a hole begins there. By default the time from which the source's data is expected; the answer is 0 until has_reached()
        that time. A clock that is ahead at the first start puts it into the future, and what is missing before it is not known until the
        source is registered again.
        """
        reached = first = sources.since(self._database.sql, source) if since is None else since
        if since is None and not self.has_reached(source, first):
            return 0
        for start, end in spans.settled(self._database.sql, source, first):
            if start > reached:
                return reached
            reached = max(reached, end)
        return 0 if since is None and reached == first else reached

    def has_reached(self, source: str, time: int) -> bool:
        """Return whether a time has passed for a source, epoch seconds: a sample from then on is stored, or what came after it is lost.

        Windows without samples prove nothing: a source answers so for a time that has not come, too.
        """
        return sources.has_reached(self._database.sql, source, time)
