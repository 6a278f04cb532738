"""The writer's loop: it stores windows, in the only process that writes the archive.

    receive whole windows -> apply to the files -> one sync per file -> one ledger transaction -> acknowledge -> publish

Windows that wait at the same time share the sync and the transaction. A window that fails on the way is refused by name, with the time at
which it may come again; an acknowledged window is on the disk and in the ledger.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from tokiod.errors import Refusal
from tokiod.ledger.database import LedgerError
from tokiod.ledger.integrity import raise_if_corrupt
from tokiod.ledger.ledger import StoredEntry
from tokiod.metrics import catalogue, stages
from tokiod.ranges import Ranges
from tokiod.runtime.log import Repeats
from tokiod.sink import QuarantinedFile, UnsyncedFile
from tokiod.writer.admission import NotCovered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokiod.bus.feed import Feed
    from tokiod.bus.receiver import Arrived, Receiver
    from tokiod.clock import Clock
    from tokiod.ledger.ledger import Ledger
    from tokiod.sink import Applied, Sink
    from tokiod.writer.admission import Admission
    from tokiod.writer.maintenance import Maintenance

log = structlog.get_logger()

HEARTBEAT_SECONDS = 10.0
"""Between two heartbeats to the collectors, which give a writer up after three times as long without. A writer that dies ends the
connection: only one that hangs, or whose host is gone, is noticed by its silence."""
FEED_HEARTBEAT_SECONDS = 1.0
"""The same for the feed: each heartbeat is a message per topic to every subscriber, and takes a place in the queue of a slow one."""
BUSY_MS, FOLLOWED_MS, ACTIVE_MS, IDLE_MS = 100, 1000, 5000, 10_000
"""How long a turn waits for windows at most: while files are looked at or rewritten; with subscribers; after a window; else."""
ACTIVE_SECONDS = 10.0
"""After a window: readers get the ledger's copy, and files that were sealed are noted."""

UPKEEP_SECONDS = 0.1
"""At least from one look at the archive's files to the next while windows come: it takes 20 ms, which each of them would wait for."""

MAX_WINDOWS_PER_SYNC = 64
"""More would only delay the first one's acknowledgement."""

_DONE, _NOT_DONE = ({change: f"file.{prefix}{change}" for change in catalogue.CHANGES} for prefix in ("", "not_"))


class Heartbeat(msgspec.Struct):
    """Reports to collectors, subscribers and the supervisor that the writer is alive; called often, also from inside long work.

    report: takes the status sentence with each heartbeat; interval: seconds between two.
    """

    receiver: Receiver
    feed: Feed
    monotonic: Callable[[], float]
    report: Callable[[str], None] = lambda _status: None
    status: str = "nothing stored yet"
    interval: float = HEARTBEAT_SECONDS
    _sent: float = 0.0
    _sent_to_feed: float = 0.0
    _reported: str = ""
    _dropped: int = 0

    def __call__(self) -> None:
        """Send a heartbeat if it is time to: to collectors every few seconds, to subscribers once a second."""
        now = self.monotonic()
        self.feed.poll()
        if now - self._sent_to_feed >= FEED_HEARTBEAT_SECONDS:
            self._sent_to_feed = now
            self.feed.beat()
            self._measure()
            if self.status != self._reported:
                self._report()
        if now - self._sent >= self.interval:
            self._sent = now
            self.receiver.beat()
            self._report()

    def _report(self) -> None:
        self._reported = self.status
        self.report(self.status)

    def _measure(self) -> None:
        catalogue.BUS_COLLECTORS.set(self.receiver.peers)
        catalogue.BUS_INCOMPLETE_BYTES.set(self.receiver.incomplete_bytes)
        dropped, self._dropped = self._dropped, self.receiver.dropped.total()
        catalogue.BUS_DROPPED.inc(by=self._dropped - dropped)


@dataclass(slots=True)
class Writer:
    """The writer's loop."""

    receiver: Receiver
    sink: Sink
    ledger: Ledger
    feed: Feed
    clock: Clock
    heartbeat: Heartbeat
    upkeep: Maintenance
    admission: Admission
    _not_covered: Counter[str] = field(default_factory=Counter)
    _stored: int = field(default=0)
    _stored_at: float = field(default=float("-inf"))
    _last: str = field(default="")
    _unrecorded: list[QuarantinedFile] = field(default_factory=list)
    _kept_up_at: float = field(default=float("-inf"))
    _unpublished: dict[str, set[str]] = field(default_factory=dict)
    _unrecorded_spans: defaultdict[str, Ranges] = field(default_factory=lambda: defaultdict(Ranges))
    _repeats: Repeats = field(init=False)

    def __post_init__(self) -> None:
        self._repeats = Repeats(self.clock)

    def run(self, stopping: Callable[[], bool]) -> None:
        """Store windows until stopping() is true; windows that have arrived by then are stored first."""
        while not stopping():
            self.turn(self._longest_wait())
        self.turn(timeout_ms=0)

    def _longest_wait(self) -> int:
        """Return how many milliseconds a turn may wait for windows."""
        if self.upkeep.is_busy or self.sink.is_busy:
            return BUSY_MS
        is_active = self.clock.monotonic() - self._stored_at < ACTIVE_SECONDS
        longest = FOLLOWED_MS if self.feed.subscriptions else ACTIVE_MS if is_active else IDLE_MS
        return min(longest, int(1000 * self.heartbeat.interval))

    def turn(self, timeout_ms: int) -> None:
        """Store and acknowledge the windows that have arrived, after waiting for the first one up to `timeout_ms`."""
        arrived = self.receiver.poll(timeout_ms)
        while arrived and len(arrived) < MAX_WINDOWS_PER_SYNC and (more := self.receiver.poll(0)):
            arrived += more
        if arrived:
            catalogue.WAITING_WINDOWS.set(len(arrived))
            with stages.Commit() as commit:
                self._store(arrived, commit)
            catalogue.WAITING_WINDOWS.set(0)
            self._stored_at = self.clock.monotonic()
        if not arrived or self.heartbeat.monotonic() - self._kept_up_at >= UPKEEP_SECONDS:
            self._keep_up()
        self._maintain()
        self.heartbeat()

    def _store(self, arrived: list[Arrived], commit: stages.Commit) -> None:
        applied = [(one, done) for one in arrived if (done := self._apply(one, commit)) is not None]
        with commit.stage("sync", [one.head for one, _ in applied]):
            quarantined, unsynced = self._commit()
        self._unrecorded += quarantined
        refused = [(one, done, reason) for one, done in applied if (reason := _unstored_reason(one, quarantined, unsynced))]
        stored = [(one, done) for one, done in applied if not _unstored_reason(one, quarantined, unsynced)]
        try:
            with commit.stage("ledger", [one.head for one, _ in stored]):
                self._forget()
                self.upkeep.note_stored(one.collected.meta for one, _ in stored)
                self.ledger.store([self._entry(one, done) for one, done in stored], self.clock.time())
        except (LedgerError, OSError) as error:
            self._report_ledger_failure(error)
            for one, done in applied:
                self._refuse(one, done, f"ledger: {error}")
            return
        for one, done in stored:
            self._unrecorded_spans.pop(one.collected.meta.system, None)
            self.receiver.ack(one, done.cells, _dropped(one, done))
            with commit.stage("feed", [one.head]):
                self._publish(one, done)
            self._stored += 1
            self._last = f", the last {one.collected.meta.source} {one.collected.meta.window}"
        self._set_status()
        for one, done, reason in refused:
            self._refuse(one, done, reason)

    def _report_ledger_failure(self, error: LedgerError | OSError) -> None:
        if isinstance(error, LedgerError):
            raise_if_corrupt(error)
        if times := self._repeats(str(error)):
            log.error("ledger.failed", error=str(error), times=times)

    def _count_not_covered(self, error: NotCovered) -> None:
        catalogue.WINDOWS_NOT_COVERED.inc(error.reason)
        self._not_covered[error.reason] += 1
        self._set_status()

    def _set_status(self) -> None:
        counts = ", ".join(f"{reason} {count}" for reason, count in sorted(self._not_covered.items()))
        refused = f"; refused, because the configuration does not cover them: {counts}" if counts else ""
        self.heartbeat.status = f"{self._stored} windows stored{self._last}{refused}"

    def _keep_up(self) -> None:
        if self.upkeep.run():
            self.receiver.reload()
        self._kept_up_at = self.heartbeat.monotonic()

    def _maintain(self) -> None:
        self._record_quarantined()
        for done in self.sink.run_maintenance():
            catalogue.count_file_change(done)
            if done.error is None:
                log.info(_DONE[done.change], path=str(done.path))
                if done.change == "sealed":
                    self.upkeep.note_sealed(done.path)
            elif times := self._repeats((done.change, done.path, str(done.error))):
                log.warning(_NOT_DONE[done.change], path=str(done.path), error=str(done.error), times=times)

    def _record_quarantined(self) -> None:
        """Record what maintenance quarantined: the next window may come in an hour, and a kill before."""
        self._unrecorded += self._commit()[0]
        try:
            self._forget()
        except (LedgerError, OSError) as error:
            self._report_ledger_failure(error)

    def _apply(self, one: Arrived, commit: stages.Commit) -> Applied | None:
        meta = one.collected.meta
        try:
            self.admission.check(one.collected)
            with commit.stage("apply", [one.head]):
                applied = self.sink.apply(one.collected)
        except LedgerError as error:
            self._report_ledger_failure(error)
            self.receiver.refuse(one, Refusal(f"ledger: {error}", "retry"))
            return None
        except Refusal as error:
            # A key has no text of a peer's choice that the configuration does not bound: other texts could fill the log.
            key = ("window.refused", meta.source, str(error))
            if isinstance(error, NotCovered):
                key = ("window.refused", "", error.reason)
                self._count_not_covered(error)
            elif error.when != "busy":
                self._note_applied(one)
            fields = {"source": meta.source, "window": str(meta.window), "reason": str(error)}
            if error.when == "busy":
                log.debug("window.refused", **fields)
            elif times := self._repeats(key):
                log.warning("window.refused", **fields, times=times)
            self.receiver.refuse(one, error)
            return None
        except Exception as error:
            # A fault in the code: it must not end the writer at each attempt and stop every other source with it.
            if times := self._repeats(("window.failed", meta.source, type(error).__name__)):
                log.exception("window.failed", source=meta.source, window=str(meta.window), times=times)
            self._note_applied(one)
            self.receiver.refuse(one, Refusal(f"a fault in the writer, see its log: {type(error).__name__}: {error}", "retry"))
            return None
        catalogue.WRITER_CELLS.inc(by=applied.cells)
        self.heartbeat()
        return applied

    def _commit(self) -> tuple[list[QuarantinedFile], list[UnsyncedFile]]:
        failed = self.sink.commit()
        quarantined = [one for one in failed if isinstance(one, QuarantinedFile)]
        unsynced = [one for one in failed if isinstance(one, UnsyncedFile)]
        catalogue.FILES_QUARANTINED.inc(by=len(quarantined))
        for one in quarantined:
            log.error("file.set_aside", path=one.path, aside=one.aside, reason=one.reason, salvaged=one.salvaged)
        for later in unsynced:
            if times := self._repeats(("file.not_synced", later.path, later.reason)):
                log.error("file.not_synced", path=later.path, error=later.reason, times=times)
        return quarantined, unsynced

    def _forget(self) -> None:
        """Forget the windows of quarantined files in the ledger; if that fails, before any other window is recorded."""
        for one in (one for one in self._unrecorded if not one.salvaged):
            self.ledger.forget(one.system, one.window, self.clock.time())
            self.upkeep.note_forgotten(Path(one.path))
        if self._unrecorded:
            self._unrecorded.clear()
            self.receiver.reload()

    def _entry(self, one: Arrived, done: Applied) -> StoredEntry:
        """Return a window as the ledger records it, with the spans of windows of its system that were applied and not recorded."""
        meta = one.collected.meta
        computed = (*done.computed, *self._unrecorded_spans.get(meta.system, ()))
        return StoredEntry(replace(meta, dropped=_dropped(one, done)), done.cells, one.collected.is_empty, computed)

    def _refuse(self, one: Arrived, done: Applied, message: str) -> None:
        self.receiver.refuse(one, Refusal(message, "retry"))
        for span in done.computed:
            self._unrecorded_spans[one.collected.meta.system].add(*span)
        self._note_applied(one)
        self._note_unpublished(one, done)

    # Some of its cells may be in the file, and it may never come again: its source may have no past.
    def _note_applied(self, one: Arrived) -> None:
        """Note that the next window of the system that is recorded is recorded with the span of this one."""
        meta = one.collected.meta
        self._unrecorded_spans[meta.system].add(meta.window.start, meta.window.end)

    def _publish(self, one: Arrived, done: Applied) -> None:
        meta = one.collected.meta
        log.debug("window.stored", source=meta.source, window=str(meta.window), cells=done.cells)
        for dataset in sorted(self._unpublished.pop(meta.system, set()) | done.unreported):
            self.feed.skip(meta.system, dataset)
        if not done.changes:
            return
        own = {batch.dataset for batch in one.collected.batches}
        try:
            watermark = self.ledger.watermark(meta.source)
            of_others = watermark if own.issuperset(batch.dataset for batch in done.changes) else self._watermark_of_all(meta.system)
        except LedgerError as error:
            self._report_ledger_failure(error)
            self._note_unpublished(one, done)
            return
        for batch in done.changes:
            self.feed.publish(meta.system, batch, watermark if batch.dataset in own else of_others)

    # Cells that another source's refused window changed, or that changed where files were joined, come with this window.
    def _watermark_of_all(self, system: str) -> int:
        """Return the lowest watermark of a system's sources: which of them a dataset has is not known here."""
        return min(self.ledger.watermark(source.name) for source in self.ledger.sources() if source.system == system)

    # The next attempt finds the cells in the file and changes none of them, so it would publish nothing.
    def _note_unpublished(self, one: Arrived, done: Applied) -> None:
        """Note that subscribers miss the changes of a window: with the next window of its system they notice, and read the files."""
        self._unpublished.setdefault(one.collected.meta.system, set()).update(done.unreported, (batch.dataset for batch in done.changes))


def _is_in(failed: Sequence[QuarantinedFile | UnsyncedFile], one: Arrived) -> bool:
    meta = one.collected.meta
    return any(f.system == meta.system and f.window.start < meta.window.end and meta.window.start < f.window.end for f in failed)


def _unstored_reason(one: Arrived, quarantined: list[QuarantinedFile], unsynced: list[UnsyncedFile]) -> str:
    """Return why a window that was applied is not stored, empty if it is."""
    if _is_in(quarantined, one):
        return "its file was quarantined"
    return next((f"not synced yet: {later.reason}" for later in unsynced if _is_in([later], one)), "")


def _dropped(one: Arrived, done: Applied) -> dict[str, int]:
    """Return what the collector and the sink dropped, by reason."""
    return dict(Counter(one.collected.meta.dropped) + done.dropped)
