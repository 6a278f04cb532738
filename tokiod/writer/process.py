"""The writer's process: the lock first, then the ledger, the files and the sockets, then the loop."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING
from uuid import uuid4

import structlog

from sinks.tts.background import Threads
from sinks.tts.day_files import Limits, Shelf
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.archive.lock import ArchiveLock
from tokiod.bus.curve import bus_server_keys, feed_server_keys
from tokiod.bus.feed import Feed
from tokiod.bus.receiver import Receiver
from tokiod.errors import ConfigError
from tokiod.ledger.database import LedgerUnreadable
from tokiod.ledger.integrity import IntegrityCheck, LedgerLost
from tokiod.ledger.ledger import Ledger
from tokiod.metrics import catalogue
from tokiod.tts.live.files import REAL, sweep
from tokiod.window import Calendar
from tokiod.writer.loop import Writer
from tokiod.writer.maintenance import Upkeep
from tokiod.writer.rebuild_ledger import told_by_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.config.load import Config
    from tokiod.runtime.process_setup import SignalFlag
    from tokiod.runtime.sd_notify import Notifier

log = structlog.get_logger()

AGAIN = 1
"""The exit code of a writer that nobody but its disk or its ledger stands in the way of: whoever started it starts it again."""


def run(load: Callable[[], Config], clock: Clock, notifier: Notifier, stopping: Callable[[], bool], reloading: SignalFlag) -> None:
    """Write the archive until `stopping` says so; read the configuration again when `reloading` says so.

    Raises ConfigError, ArchiveLocked where another process does already, TokiodError where a directory or socket can't be had.
    """
    config, epoch = load(), uuid4().hex
    with ArchiveLock(config.archive.lock):
        _sweep(config.archive.root)
        with (
            _opened(config, clock) as ledger,
            Receiver(config.bus.endpoint, epoch, keys=bus_server_keys(config)) as receiver,
            Feed(config.feed.endpoint, epoch, keys=feed_server_keys(config)) as feed,
        ):
            check_ledger = IntegrityCheck(ledger.path, clock.monotonic)
            catalogue.start_counting(config, "writer")
            told_by_files(config, ledger, clock)
            layout, limits = daily(Calendar(config.timezone), config.archive.file), Limits(columns=config.archive.max_columns)
            shelf = Shelf(layout, clock, REAL, Threads(), limits)
            upkeep = Upkeep(config, shelf, ledger, clock, REAL)
            upkeep.adopt()
            writer = Writer(receiver, TtsSink(shelf), ledger, feed, clock, time.monotonic, upkeep.turn, notifier.alive)
            shelf.pause = writer.beat
            log.info("writer.ready", epoch=epoch, archive=str(config.archive.root))
            notifier.ready()

            def is_over() -> bool:
                check_ledger()
                if reloading():
                    reloading.clear()
                    _reload(load, (upkeep, receiver, feed), notifier)
                return stopping()

            try:
                writer.run(is_over)
                notifier.stopping()
                shelf.seal_all()
            except LedgerLost as error:
                log.critical("ledger.lost", path=str(ledger.path), reason=f"{error}; the writer begins anew, with what the files tell")
                # To close it would write to it, and take away by its name the log of the one that is there now.
                os._exit(AGAIN)
            finally:
                shelf.close()
    log.info("writer.stopped")


def _opened(config: Config, clock: Clock) -> Ledger:
    """Open the ledger, a new one where it is corrupt; end as one that is to be started again where it can't be had just now."""
    full = not all(source.replayable for source in config.source)
    try:
        ledger = Ledger.open_or_quarantine(config.archive.ledger, int(clock.time()), full=full)
    except LedgerUnreadable as error:
        log.error("ledger.failed", error=str(error), reason="the writer is started again")  # noqa: TRY400 - a disk needs no traceback
        raise SystemExit(AGAIN) from None
    if ledger.quarantined is not None:
        log.error("ledger.set_aside", path=str(ledger.path), aside=str(ledger.quarantined), reason="it is corrupt")
    return ledger


def _reload(load: Callable[[], Config], parts: tuple[Upkeep, Receiver, Feed], notifier: Notifier) -> None:
    """Look after the files of other sources, and who may come; what else the configuration says needs another writer."""
    upkeep, receiver, feed = parts
    notifier.reloading()
    try:
        config = load()
        upkeep.reconfigure(config)
        receiver.reload_allowed_keys()
        feed.reload_allowed_keys()
        catalogue.start_counting(config, "writer")
    except ConfigError as error:
        log.error("config.refused", faults=error.faults)  # noqa: TRY400 - the faults are all there is to say
    notifier.ready()


def _sweep(root: Path) -> None:
    """Delete what a killed writer left half made."""
    for directory in {file.parent for file in root.rglob(".*.tmp")}:
        sweep(directory, REAL)
