"""Rebuild a ledger that was lost, corrupt or restored from an older copy from what the files prove, before any source is queried."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

from tokiod.ledger.ledger import StoredEntry
from tokiod.ranges import Ranges
from tokiod.tts.live.files import REAL
from tokiod.window import Calendar, Window
from tokiod.window_data import WindowMeta
from tokiod.writer.proven_windows import proof

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.clock import Clock
    from tokiod.collector import SourceConfig
    from tokiod.config.schema import Config
    from tokiod.ledger.ledger import Ledger
    from tokiod.tts.live.files import Files
    from tokiod.writer.proven_windows import Proof

log = structlog.get_logger()

UNTRUSTED_SECONDS = 3600
"""The newest part of a source's data that proves nothing: a kill or a power loss may have torn what was just written."""
LOST_REASON = "the ledger was lost and the files do not prove all of it"


def rebuild_if_untrusted(config: Config, ledger: Ledger, clock: Clock, files: Files = REAL) -> None:
    """Rebuild a ledger that may not record all that the files hold, and number its generations from now on. Only the writer calls this.

    After a kill the next start begins again. Raises LedgerError.
    """
    begun, doubt = time.monotonic(), ledger.generation.doubt()
    if doubt or ledger.changes.state() is None:
        ledger.changes.begin_epoch(clock.time(), ledger.generation.former_epoch)
    else:
        ledger.changes.begin_run()
    if doubt:
        ledger.generation.begin_rebuild()
        found = proof(config, clock.time(), files)
        # Before the windows that they prove: the loss of a file that the ledger does not know is never noticed.
        ledger.known_files(config.archive.root).add(found.files)
        for source in config.source:
            if source.polled:
                _rebuild(ledger, source, found, config.calendar, clock.time())
            else:
                # No file proves their cells, which may have been lost with a file that was made again since.
                ledger.received_files(source.name).forget_collected()
        if found.files:
            seconds = round(time.monotonic() - begun, 3)
            log.warning("ledger.rebuilt", reason=f"it was {doubt}", seconds=seconds, files=len(found.files), windows=found.windows)
    ledger.generation.advance(clock.time())


def _rebuild(ledger: Ledger, source: SourceConfig, found: Proof, calendar: Calendar, now: float) -> None:
    name, until = source.name, calendar.window(int(now), source.window).start
    # The window in which the retention ends can't be queried any more: what an older ledger records of it stays as it is.
    since = source.reach(calendar, now)
    # Since the copy was made a file may have been lost and created again: what the copy records of it proves nothing.
    _forget_unproven(ledger, source, found, (since, until), now)
    stored, known = found.stored[name], ledger.stored(name)
    # A torn window shows as well how far the writer had come.
    newest = max((end for _, end in [*stored, *found.torn[name]]), default=0)
    stored.remove(calendar.window(newest - UNTRUSTED_SECONDS, source.window).start, newest)
    for start, end in known:
        stored.remove(start, end)
    ledger.store(_entries(source, stored, calendar), now)
    if source.replayable:
        # The writer stores windows before the collectors come: without this the watermark would begin at whatever is stored. A clock may be
        # ahead: the newest sample proves how late it is at least, as it does where collectors register a source.
        ledger.register(source, source.reach(calendar, min(now, newest or now)))
    else:
        _record_lost(ledger, source, since, until, now)


def _forget_unproven(ledger: Ledger, source: SourceConfig, found: Proof, span: tuple[int, int], now: float) -> None:
    """Forget the windows that an older ledger records and no file proves. One that lacks columns may have been stored so."""
    held = Ranges([*found.stored[source.name], *found.torn[source.name]])
    for hole in held.holes(*span) if span[0] < span[1] else []:
        ledger.forget(source.system, hole, now, source=source.name)


def _entries(source: SourceConfig, stored: Ranges, calendar: Calendar) -> Iterator[StoredEntry]:
    """Yield each span as one entry, and its last window as another: status reports the newest window."""
    for start, end in stored:
        last = max(start, calendar.window(end - 1, source.window).start)
        for part in [*Ranges([(start, last)]).within(start, end), Window(last, end)]:
            yield StoredEntry(WindowMeta(source.name, source.kind, source.system, part), 0)


def _record_lost(ledger: Ledger, source: SourceConfig, since: int, until: int, now: float) -> None:
    """Record as lost what a source that is not replayable misses after its first stored window."""
    settled = ledger.stored(source.name)
    stored = settled.within(since, until) if since < until else []
    if not stored:
        return
    ledger.register(source, stored[0].start)
    for one in ledger.unstored(source.name):
        if one.state == "lost":
            settled.add(one.window.start, one.window.end)
    for hole in settled.holes(stored[0].start, until):
        ledger.lost(source.name, hole, "LedgerLost", LOST_REASON, now)
