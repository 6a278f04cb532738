"""The collectors' process: one asyncio loop, a poller for each source, one connection to the writer. It never imports HDF5."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import msgspec
import structlog

from tokiod.archive.lock import COLLECTORS, ProcessLock
from tokiod.archive.rights import check_private
from tokiod.bus.connection import ZmqConnector
from tokiod.bus.sender import SILENCE_SECONDS, Sender
from tokiod.config.hosts import other_hosts
from tokiod.config.load import log_warnings
from tokiod.errors import ConfigError, TokiodError
from tokiod.ledger.database import SQLITE, LedgerError
from tokiod.ledger.ledger import Ledger
from tokiod.metrics import catalogue, stages
from tokiod.polling.hosts.links import HostLinks
from tokiod.polling.retry import LEDGER_RETRY_SECONDS
from tokiod.polling.schedule import FreeLease
from tokiod.polling.sources import SourceFactory, Sources, backfill_slots
from tokiod.polling.watch.reader import FileReader
from tokiod.runtime.log import Repeats

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokiod.clock import Clock
    from tokiod.collector import SavedCollector, SourceConfig
    from tokiod.config.schema import Config
    from tokiod.ledger.database import Sqlite
    from tokiod.ledger.jobs import Job
    from tokiod.polling.watch.reader import Task
    from tokiod.runtime.service import Service

log = structlog.get_logger()

FIRST_NOTIFY_SECONDS = 0.1
"""Between two reports of progress to the supervisor until the process is ready."""


class Host(msgspec.Struct, frozen=True):
    """What the collectors' process takes from its machine; a simulation of a site has another.

    connector: connects to the writer; silence: see Sender; sqlite: the ledger's; random: makes the generator of each source's jitter;
    reader: the collector of a watched file.
    """

    connector: Callable[[], ZmqConnector] = ZmqConnector
    silence: float = SILENCE_SECONDS
    sqlite: Sqlite = SQLITE
    random: Callable[[], Random] = Random
    reader: Callable[[Task], SavedCollector] = FileReader


class CollectorsProcess:
    """Collects all configured sources, from open() to close().

    Nothing is collected before the writer's welcome, because the writer first creates the ledger or quarantines a corrupt one. At each
    later welcome, and when the writer reports that windows were lost, the ledger is opened again and every poller reads it. While it
    can't be opened, collecting does not start, or goes on as before.
    """

    def __init__(self, service: Service[Config], clock: Clock, host: Host | None = None) -> None:
        self._service, self._notifier = service, service.notifier
        self._host = host or Host()
        self._clock = clock
        self._config = service.load()
        log_warnings(self._config)
        check_private(self._config.run)
        self._sender = _sender(self._config, self._reopen_ledger, self._host)
        self._ledger: Ledger | None = None
        self._sources: Sources | None = None
        self._links = HostLinks(self._config, clock) if other_hosts(self._config.host) else None
        self._reload_requested = asyncio.Event()
        self._repeats = Repeats(clock)

    async def run(self) -> None:
        """Collect until cancelled; then wait briefly for the windows in flight and close the collectors."""
        catalogue.start_counting(self._config.counters, "collectors", self._config.source)
        with stages.recording(self._config.stages, self._config.run, "collectors"):
            await self._collect()

    async def _collect(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(self._sender.run()), tasks.create_task(self._notify_progress())]
            background += [] if self._links is None else [tasks.create_task(self._links.run())]
            try:
                await self.serve(await self.open())
            finally:
                self.close()
                for task in background:
                    task.cancel()

    async def open(self) -> Ledger:
        """Wait for the writer's welcome and for a ledger that can be opened."""
        await self._sender.welcomed()
        while self._ledger is None:
            try:
                self._ledger = Ledger.open_existing(self._config.archive.ledger, self._host.sqlite)
            except (TokiodError, LedgerError) as error:
                self._log_retry(error)
                await asyncio.sleep(LEDGER_RETRY_SECONDS)
        return self._ledger

    async def serve(self, ledger: Ledger) -> None:
        """Collect until cancelled, and read the configuration again whenever that is requested."""
        async with asyncio.TaskGroup() as tasks:
            slots = backfill_slots(self._config)
            random, reader, links = self._host.random, self._host.reader, self._links
            factory = SourceFactory(self._config, self._clock, self._sender, ledger, slots, random, reader, links)
            self._sources = Sources(factory, tasks)
            await self._sources.apply(self._config)
            log.info("collectors.ready", sources=len(self._config.source))
            while True:
                await self._reload_requested.wait()
                self._reload_requested.clear()
                await self.reload(self._sources)

    async def reload(self, sources: Sources) -> None:
        """Read the configuration again and collect its sources. Other changes need another process."""
        with self._service.reloading():
            config = self._service.load()
            self._reload_hosts(config)
            self._config = config
            log_warnings(self._config)
            catalogue.start_counting(self._config.counters, "collectors", self._config.source)
            await sources.apply(self._config)

    def _reload_hosts(self, config: Config) -> None:
        if self._links is not None:
            self._links.configure(config)
        elif other_hosts(config.host):
            raise ConfigError(["host: the first other [[host]] takes effect at a restart of the collectors"])

    def request_reload(self) -> None:
        """Have serve() read the configuration again."""
        self._reload_requested.set()

    def close(self) -> None:
        """Close the ledger."""
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None
        log.info("collectors.stopped", unanswered=0 if self._sources is None else self._sources.unanswered)

    def _reopen_ledger(self) -> None:
        """Open the ledger again and have every poller read it. The sender calls this when stored windows may have been lost."""
        if self._ledger is not None:
            try:
                self._ledger.reopen()
            except (TokiodError, LedgerError) as error:
                self._log_retry(error)
                asyncio.get_running_loop().call_later(LEDGER_RETRY_SECONDS, self._reopen_ledger)
                return
        if self._sources is not None:
            self._sources.reload()

    def _log_retry(self, error: Exception) -> None:
        if times := self._repeats(str(error)):
            log.error("ledger.failed", error=str(error), reason=f"retried every {LEDGER_RETRY_SECONDS:.0f} s", times=times)

    async def _notify_progress(self) -> None:
        """Report to the supervisor that this process makes progress: its loop runs, no collector hangs, and the writer answers.

        It is ready when the writer has answered other than "busy", or when every source's first attempt has ended without a window in
        flight: a source that is down must not delay the others.
        """
        is_ready = False
        while True:
            if stuck := self._stuck():
                log.error("collectors.stuck", reason=stuck)
            elif self._sources is None:
                self._notifier.alive("waiting for the writer")
            else:
                self._notifier.alive(self._sources.summary())
                if not is_ready and self._has_progressed(self._sources):
                    is_ready = True
                    self._notifier.ready()
            await asyncio.sleep(self._notifier.interval if is_ready else FIRST_NOTIFY_SECONDS)

    def _has_progressed(self, sources: Sources) -> bool:
        state = self._sender.state
        in_flight = state.in_flight or state.postponed
        return bool(state.answered) or (not in_flight and all(poller.has_asked for poller in sources.pollers))

    def _stuck(self) -> str:
        now = asyncio.get_running_loop().time()
        pollers = [] if self._sources is None else self._sources.pollers
        return next(filter(None, (self._sender.stuck(now), *(poller.stuck(now) for poller in pollers))), "")


def run(service: Service[Config], clock: Clock) -> None:
    """Collect until SIGTERM or SIGINT; read the configuration again at SIGHUP.

    Raises ConfigError, AlreadyRunning if another process collects for the same writer: both would query each source, and the one that ends
    first would record all of them as stopped.
    """
    with ProcessLock(service.load().collectors_lock, locked=COLLECTORS):
        asyncio.run(_collect(service, clock))


async def _collect(service: Service[Config], clock: Clock) -> None:
    process = CollectorsProcess(service, clock)
    await service.until_signal(process.run(), process.request_reload)


async def backfill(config: Config, clock: Clock, source: SourceConfig, job: Job) -> None:
    """Work on one job until it ends, without polling. A writer must be running."""
    async with _sender(config) as sender:
        await sender.welcomed()
        with Ledger.open_existing(config.archive.ledger) as ledger:
            factory = SourceFactory(config, clock, sender, ledger, backfill_slots(config))
            await factory.backfill(source, FreeLease()).work(job)


def _sender(config: Config, on_reload: Callable[[], None] = lambda: None, host: Host | None = None) -> Sender:
    bus, host = config.bus, host or Host()
    return Sender(
        bus.endpoint,
        max_windows=bus.max_windows,
        max_bytes=bus.max_bytes,
        silence=host.silence,
        on_reload=on_reload,
        connector=host.connector,
    )
