"""The writer's process: it opens the lock first, then the ledger, the sockets and the files, and runs the loop."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import msgspec
import structlog

from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.archive.lock import ProcessLock
from tokiod.archive.mount import check_mounted
from tokiod.archive.rights import make_private
from tokiod.bus.feed import Feed
from tokiod.bus.receiver import Receiver
from tokiod.bus.server_socket import ServerSocket
from tokiod.errors import TokiodError
from tokiod.jobs.table import JobTable
from tokiod.ledger.database import SQLITE, LedgerError, LedgerUnreadable
from tokiod.ledger.integrity import IntegrityCheck, LedgerLost
from tokiod.ledger.ledger import Ledger
from tokiod.metrics import catalogue, stages
from tokiod.runtime.full_disk import FULL, DiskFull
from tokiod.runtime.log import Repeats
from tokiod.tts.live.files import REAL, Files, sweep
from tokiod.writer.admission import Admission
from tokiod.writer.archive_sink import ArchiveSink
from tokiod.writer.loop import HEARTBEAT_SECONDS, Heartbeat, Writer
from tokiod.writer.maintenance import Maintenance
from tokiod.writer.rebuild_ledger import rebuild_if_untrusted
from tokiod.writer.sink_options import max_open, max_rates, sources_of_tables, steps, units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tokiod.archive.layout import FileSlot
    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.ledger.database import Sqlite
    from tokiod.runtime.service import Service

log = structlog.get_logger()

RESTART_EXIT_CODE = 1
"""Of a writer that only its disk or its ledger stopped: the supervisor starts it again."""


FEED_LINGER_MS = 1000
"""At the end, for the last messages on their way to the feed's process."""


class Host(msgspec.Struct, frozen=True):
    """What the writer takes from its machine; a simulation of a site has another.

    files: all file operations of the archive; sqlite: those of the ledger; executor: see DayFiles; bind: makes the sockets.
    monotonic: real seconds, by which other processes notice that this one is alive.
    """

    files: Files = REAL
    sqlite: Sqlite = SQLITE
    executor: Any = "threads"
    bind: Callable[..., ServerSocket] = ServerSocket
    monotonic: Callable[[], float] = time.monotonic


def run(service: Service[Config], clock: Clock) -> None:
    """Write the archive until the service must stop.

    Raises ConfigError, AlreadyRunning if another process writes the archive, TokiodError for a directory or socket that can't be used.
    """
    with _opened(service, clock) as process, stages.recording(*process.stage_directories, "writer"):
        process.serve()
    log.info("writer.stopped")


def _opened(service: Service[Config], clock: Clock) -> WriterProcess:
    """Open everything. Exits with RESTART_EXIT_CODE where only the disk or the ledger prevents it at the moment."""
    try:
        return WriterProcess(service, clock)
    except (DiskFull, LedgerUnreadable, LedgerError) as error:
        log.error("writer.failed", error=str(error), reason="it is started again")  # noqa: TRY400 - no fault of the code
        raise SystemExit(RESTART_EXIT_CODE) from None


class WriterProcess:
    """The parts of the writer: made by opening it, released in the reverse order by closing it.

    stage_directories: where it records its stages, and the daemon's private directory.
    """

    def __init__(self, service: Service[Config], clock: Clock, host: Host | None = None) -> None:
        """Open everything. Raises as run()."""
        self._service, self._notifier, self._host = service, service.notifier, host or Host()
        with ExitStack() as stack:
            self._open(service.load(), clock, stack)
            self._parts = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, config: Config, clock: Clock, stack: ExitStack) -> None:
        epoch, opened, host = uuid4().hex, stack.enter_context, self._host
        self._repeats, self.stage_directories = Repeats(clock), (config.stages, config.run)
        check_mounted(config.archive)
        opened(ProcessLock(config.archive.lock, owner=config.archive.owner))
        _make_run_directory(config)
        _remove_temporary_files(config.archive.root, host.files)
        self._ledger = opened(_open_ledger(config, clock, host.sqlite))
        self._receiver = opened(Receiver(config.bus.endpoint, epoch, monotonic=host.monotonic, bind=host.bind))
        self._feed = Feed(config.feed_inner, epoch, bind=host.bind)
        stack.callback(self._feed.close, FEED_LINGER_MS)
        self._published = self._ledger.published_copy(config.archive.ledger_copy, host.monotonic)
        self._check_ledger = IntegrityCheck(self._ledger.path, clock.monotonic)
        catalogue.start_counting(config.counters, "writer", config.source)
        self._describe_sources(config)
        rebuild_if_untrusted(config, self._ledger, clock, host.files)
        heartbeat = Heartbeat(
            self._receiver, self._feed, host.monotonic, self._notifier.alive, interval=min(HEARTBEAT_SECONDS, self._notifier.interval)
        )
        layout, columns = daily(config.calendar, config.archive.file), config.archive.max_columns
        tts = TtsSink(DayFiles(
            layout, clock, host.files, host.executor, max_columns=columns, max_open=max_open(config),
            units=units(config), steps=steps(config), max_rates=max_rates(config), pause=heartbeat, before_create=self._before_create,
        ), self._record_computed)  # fmt: skip
        table = JobTable(config.archive.jobs, config.calendar, clock, host.files, inline=host.executor != "threads")
        table.configure(config.jobs.retention, config.jobs.users_retention)
        self._days, self._sink = tts.days, ArchiveSink(tts, table)
        stack.callback(self._sink.close)
        self._maintenance = Maintenance(config, layout, self._sink, self._ledger, clock, host.files)
        self._maintenance.forget_missing_files()
        self._maintenance.adopt_of_predecessor()
        self._admission = Admission(config.source, config.calendar, self._ledger.jobs, clock)
        self._announce(config)
        self._writer = Writer(self._receiver, self._sink, self._ledger, self._feed, clock, heartbeat, self._maintenance, self._admission)
        log.info("writer.ready", epoch=epoch, archive=str(config.archive.root))
        self._notifier.ready()

    def _announce(self, config: Config) -> None:
        """Announce the topics of all that is stored. A dataset of several sources has the watermark of the one that is furthest behind."""
        marks: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for source in config.source:
            if watermark := self._ledger.watermark(source.name):
                for dataset in source.datasets():
                    marks[source.system, dataset].append(watermark)
        for (system, dataset), found in sorted(marks.items()):
            self._feed.announce(system, dataset, min(found))

    def _before_create(self, slot: FileSlot) -> None:
        self._maintenance.before_create(slot)

    def _record_computed(self, system: str, spans: Iterable[tuple[int, int]]) -> None:
        self._maintenance.note_computed(system, spans)

    def serve(self) -> None:
        """Store windows until the service must stop; then seal the reopened days."""
        try:
            self._receiver.wakeups = (self._service.wakeup, self._feed.socket)
            self._writer.run(self._must_stop)
            self.stop()
        except LedgerLost as error:
            reason = f"{error}; the writer starts again and rebuilds it from the files"
            log.critical("ledger.lost", path=str(self._ledger.path), reason=reason)
            # Closing the ledger would write to it, and delete the write-ahead log of the one that has its name now.
            os._exit(RESTART_EXIT_CODE)

    def turn(self, timeout_ms: int) -> None:
        """Store the windows that have arrived, after waiting for the first one; see Writer.turn()."""
        self._writer.turn(timeout_ms)

    def examine_ledger(self) -> None:
        """Find out between turns whether the ledger is still the archive's, and copy it for the readers. Raises LedgerLost."""
        self._check_ledger()
        self._publish_ledger(self._published.refresh_if_due)

    def stop(self) -> None:
        """Seal the reopened days, after the last turn."""
        self._notifier.stopping()
        for done in self._sink.seal_reopened():
            if done.change == "sealed" and done.error is None:
                self._maintenance.note_sealed(done.path)
        self._publish_ledger(self._published.refresh)

    def _must_stop(self) -> bool:
        self.examine_ledger()
        return self._service.must_stop(self.reload)

    def _publish_ledger(self, refresh: Callable[[], None]) -> None:
        try:
            refresh()
        except (LedgerError, OSError) as error:
            if times := self._repeats(str(error)):
                log.warning("ledger.not_published", path=str(self._published.path), error=str(error), times=times)

    def reload(self) -> None:
        """Read the configuration again for other sources. Other changes need another writer."""
        with self._service.reloading():
            config = self._service.load()
            self._maintenance.reconfigure(config)
            self._admission.reconfigure(config.source)
            self._describe_sources(config)
            self._sink.jobs.configure(config.jobs.retention, config.jobs.users_retention)
            days = self._days
            days.units, days.steps, days.max_rates = units(config), steps(config), max_rates(config)
            catalogue.start_counting(config.counters, "writer", config.source)

    def _describe_sources(self, config: Config) -> None:
        self._ledger.in_tables = sources_of_tables(config)
        self._ledger.watched = frozenset(source.name for source in config.source if not source.polled)

    def close(self) -> None:
        """Release the files, the sockets, the ledger and the lock."""
        self._parts.close()


def _open_ledger(config: Config, clock: Clock, sqlite: Sqlite) -> Ledger:
    """Open the ledger, a new one if it is corrupt."""
    full = not all(source.replayable for source in config.source)
    ledger = Ledger.open_or_quarantine(config.archive.ledger, int(clock.time()), full=full, sqlite=sqlite)
    if ledger.quarantined is not None:
        log.error("ledger.set_aside", path=str(ledger.path), aside=str(ledger.quarantined), reason="it is corrupt")
    return ledger


def _make_run_directory(config: Config) -> None:
    """Make the directory of the bus, for this user alone."""
    try:
        make_private(config.run)
    except OSError as error:
        if error.errno in FULL:
            raise DiskFull("the directory of the bus can't be made", error, config.run) from None
        raise TokiodError(f"{config.run} can't be made: {error.strerror}; its parent must exist and be writable") from None


def _remove_temporary_files(root: Path, files: Files) -> None:
    """Remove what a killed writer left unfinished."""
    for directory in sorted({file.parent for file in root.rglob(".*.tmp")}):
        sweep(directory, files)
