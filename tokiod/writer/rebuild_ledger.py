"""A ledger that was lost, corrupt or put back from an older copy, told again what the files prove, before anybody is asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

from tokiod.ledger.ledger import StoredEntry
from tokiod.ranges import Ranges
from tokiod.window import Calendar, Window
from tokiod.window_data import WindowMeta
from tokiod.writer.proven_windows import proof

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.clock import Clock
    from tokiod.collector import SourceConfig
    from tokiod.config.load import Config
    from tokiod.ledger.ledger import Ledger
    from tokiod.writer.proven_windows import Proof

log = structlog.get_logger()

UNSURE = 3600
"""Seconds before the newest number of a source of which nothing is believed: a power loss may have torn what was just written."""
DAY = 86400
REASON = "the ledger was lost and the files hold nothing for it"


def told_by_files(config: Config, ledger: Ledger, clock: Clock) -> None:
    """Rebuild a ledger that can't be trusted to tell all that the files hold, and stamp it from now on. For the writer alone.

    Killed on the way, it begins again at the next start. Raises LedgerError.
    """
    begun = time.monotonic()
    doubt = ledger.generation.doubt()
    if doubt:
        found = proof(config, clock.time())
        for source in (source for source in config.source if source.polled):
            _learn(ledger, source, found, Calendar(config.timezone), clock.time())
        if found.files:
            seconds = round(time.monotonic() - begun, 3)
            log.warning("ledger.rebuilt", reason=f"it was {doubt}", seconds=seconds, files=found.files, windows=found.windows)
    else:
        for source in (source for source in config.source if source.polled and not source.replayable):
            _complete(config, ledger, source, clock.time())
    ledger.generation.advance(clock.time())


def _complete(config: Config, ledger: Ledger, source: SourceConfig, now: float) -> None:
    """Tell a ledger that is trusted which windows are in the files behind its newest: a kill came before it was told of them.

    Where a source can be asked again, it is; of one that can't, they would be called lost.
    """
    newest = max((end for _, end in ledger.stored(source.name)), default=int(now - DAY))
    behind = proof(config, now, [source], newest).stored[source.name]
    behind.remove(0, newest)
    if behind:
        ledger.store(_entries(source, behind, Calendar(config.timezone)), now)
        log.info("ledger.completed", source=source.name, seconds=behind.total)


def _learn(ledger: Ledger, source: SourceConfig, found: Proof, calendar: Calendar, now: float) -> None:
    name, since, until = source.name, int(now - source.retention), calendar.window(int(now), source.window).start
    # Between an old copy and now a file may have been lost and made anew: what the copy says of it proves nothing.
    _forget(ledger, source, found.stored[name], since, until)
    stored, known = found.stored[name], ledger.stored(name)
    if source.replayable:
        newest = max((end for _, end in stored), default=0)
        stored.remove(calendar.window(newest - UNSURE, source.window).start, newest)
    for start, end in known:
        stored.remove(start, end)
    ledger.store(_entries(source, stored, calendar), now)
    if not source.replayable:
        _lose(ledger, source, since, until, now)


def _forget(ledger: Ledger, source: SourceConfig, proved: Ranges, since: int, until: int) -> None:
    """Forget what an older ledger calls stored and no file proves."""
    for hole in proved.holes(since, until) if since < until else []:
        ledger.forget(source.system, hole, source=source.name)


def _entries(source: SourceConfig, stored: Ranges, calendar: Calendar) -> Iterator[StoredEntry]:
    """Yield the spans as if each were one window, but for the last windows: status tells of the newest."""
    for start, end in stored:
        last = max(start, calendar.window(end - 1, source.window).start)
        for part in [*Ranges([(start, last)]).within(start, end), Window(last, end)]:
            yield StoredEntry(WindowMeta(source.name, source.kind, source.system, part), 0)


def _lose(ledger: Ledger, source: SourceConfig, since: int, until: int, now: float) -> None:
    """Call lost what a source without a past is missing behind the first that there is of it."""
    settled = ledger.stored(source.name)
    had = settled.within(since, until) if since < until else []
    if not had:
        return
    ledger.register(source, had[0].start)
    for one in ledger.unstored(source.name):
        if one.state == "lost":
            settled.add(one.window.start, one.window.end)
    for hole in settled.holes(had[0].start, until):
        ledger.lost(source.name, hole, "LedgerLost", REASON, now)
