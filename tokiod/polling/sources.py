"""The sources that are collected, each with its own tasks: started, stopped and changed while the others run."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import msgspec
import structlog

from tokiod.collector import Site
from tokiod.config import plugins
from tokiod.config.hosts import host_of
from tokiod.config.watched_folder import Watched
from tokiod.crossing.remote import remote_collector
from tokiod.errors import TokiodError
from tokiod.jobs.identity import identities
from tokiod.polling.backfill import Backfill
from tokiod.polling.poller import Poller
from tokiod.polling.recount import Recount
from tokiod.polling.watch.intake import Intake
from tokiod.polling.watch.reader import FileReader, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tokiod.bus.sender import Sender
    from tokiod.clock import Clock
    from tokiod.collector import Collector, SavedCollector, SourceConfig
    from tokiod.config.schema import Config
    from tokiod.ledger.ledger import Ledger
    from tokiod.polling.hosts.links import HostLinks
    from tokiod.polling.schedule import WindowLease
    from tokiod.window_data import Collected
    from tokiod.window_result import Answer

log = structlog.get_logger()

DRAIN_SECONDS = 5.0
"""Real seconds to wait for the writer's last answers when a source stops. A window without an answer is collected again."""
DOWN_SHOWN = 3
"""Sources that are down and that a summary names; all are counted."""
Work = Poller | Backfill | Recount | Intake


class SourceFactory:
    """Makes the collectors and tasks of a source.

    slots: limits the windows that all backfills together have on the bus; random: makes the generator of a task's jitter; reader: the
    collector of a watched file; links: the other hosts, which collect the sources that the configuration gives them.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what all sources share
        self,
        config: Config,
        clock: Clock,
        sender: Sender,
        ledger: Ledger,
        slots: asyncio.Semaphore,
        random: Callable[[], Random] = Random,
        reader: Callable[[Task], SavedCollector] = FileReader,
        links: HostLinks | None = None,
    ) -> None:
        self._config = config
        self._links = links
        self._calendar = config.calendar
        self._site = Site(self._calendar, clock, config.secret, hub=config.hub_inner)
        has_tables = any(source.tables for source in config.source)
        self._identities = identities(config.jobs, config.archive, config.secret) if has_tables else None
        self._sender = sender
        self._ledger = ledger
        self._slots = slots
        self._random = random
        self._reader = reader

    def configured(self, config: Config) -> SourceFactory:
        """Return the factory of another configuration; everything else, the slots too, is that of this one."""
        return SourceFactory(config, self._site.clock, self._sender, self._ledger, self._slots, self._random, self._reader, self._links)

    def note_fatal(self, source: SourceConfig, error: Exception) -> None:
        """Note in the ledger that a source can't be started."""
        now = self._site.clock.time()
        self._ledger.register(source, int(now))
        self._ledger.set_state(source.name, "fatal", str(error), now)

    def collector(self, source: SourceConfig) -> Collector:
        """Return a new collector of a source, here or on its host. Raises what its plugin raises; TokiodError for a host without links."""
        collector = plugins.load(source.kind).live(source, self._site)
        if (host := host_of(self._config.host, source.name)) is None:
            return collector
        if self._links is None:
            raise TokiodError(f"source {source.name} runs on host {host.name}: only the daemon reaches it; start the daemon")
        is_whole = source in self._config.source
        datasets = None if is_whole else source.datasets()
        return remote_collector(self._links.hosts[host.name], source, collector, self._site.clock, datasets)

    def place(self, source: SourceConfig) -> str:
        """Return the name of the host that collects a source, empty for this one."""
        host = host_of(self._config.host, source.name)
        return "" if host is None else host.name

    async def submit(self, collected: Collected) -> Answer:
        """Submit a window with what is stored of its jobs' identities: personal data leaves this process only as the site allows it."""
        if collected.tables and self._identities is not None:
            collected = self._identities.applied(collected)
        return await self._sender.submit(collected)

    def poller(self, source: SourceConfig, collector: Collector) -> Poller:
        """Return the poller of a source."""
        return Poller(source, collector, self._ledger, self.submit, self._calendar, self._site.clock, self._random())

    def backfill(self, source: SourceConfig, lease: WindowLease) -> Backfill:
        """Return the backfills of a source."""
        submit, clock = self.submit, self._site.clock
        return Backfill(source, self.collector, lease, self._ledger, submit, self._slots, self._calendar, clock, self._random())

    def recount(self, source: SourceConfig, poller: Poller) -> Recount:
        """Return the recounts of a source."""
        return Recount(source, self.collector(source), poller, self._ledger, self._site.clock)

    def intake(self, source: Watched) -> Intake:
        """Return what collects the files of a watched folder."""
        submit, clock = self.submit, self._site.clock

        def make(path: Path) -> SavedCollector:
            return self._reader(Task(source.kind, path, source.options, self._calendar.timezone, int(source.max_time)))

        return Intake(source, make, self._ledger, submit, self._slots, self._calendar, clock, self._random())


def backfill_slots(config: Config) -> asyncio.Semaphore:
    """Return the slots that backfills have on the bus: half of its windows are left to live polling."""
    return asyncio.Semaphore(max(1, config.bus.max_windows // 2))


class Sources:
    """All configured sources. tasks: the group in which they run; an exception of one ends all."""

    def __init__(self, factory: SourceFactory, tasks: asyncio.TaskGroup) -> None:
        self._factory = factory
        self._tasks = tasks
        self._running: dict[str, _RunningSource] = {}

    async def apply(self, config: Config) -> None:
        """Collect the sources of a configuration, and no others. Unchanged sources keep running."""
        wanted = {source.name: source for source in config.source}
        new = self._factory.configured(config)
        ending = [one for name, one in self._running.items() if (one.source, one.place) != _placed(wanted.get(name), new) or one.has_failed]
        for one in ending:
            one.task.cancel()
        await asyncio.gather(*(one.task for one in ending), return_exceptions=True)
        self._running = {name: one for name, one in self._running.items() if one not in ending}
        self._factory = new
        for name in [name for name in wanted if name not in self._running]:
            self._running[name] = self._start(wanted[name])

    def reload(self) -> None:
        """Have every poller and every watched folder read the ledger again."""
        for poller in self.pollers:
            poller.reload()
        for intake in (work for one in self._running.values() for work in one.work if isinstance(work, Intake)):
            intake.reload()

    @property
    def pollers(self) -> list[Poller]:
        """The pollers of the sources that have one."""
        return [one.poller for one in self._running.values() if one.poller is not None]

    @property
    def unanswered(self) -> int:
        """How many windows were still in flight when their sources stopped."""
        return sum(one.unanswered for one in self._running.values())

    def summary(self) -> str:
        """Return how many sources run, and which are down or empty."""
        down = {one.source.name: one.poller.trouble for one in self._running.values() if one.poller and one.poller.trouble}
        down |= {one.source.name: "down (can't be started, see the log)" for one in self._running.values() if one.has_failed}
        named = "".join(f", {name} {reason}" for name, reason in sorted(down.items())[:DOWN_SHOWN])
        more = ", ..." if len(down) > DOWN_SHOWN else ""
        return f"{len(self._running) - len(down)} of {len(self._running)} sources running{named}{more}"

    def _start(self, source: SourceConfig) -> _RunningSource:
        """Start a source; the status shows one that can't be started, and the others run."""
        try:
            one = _RunningSource(source, self._factory.place(source), *_work(source, self._factory))
        except Exception as error:
            log.exception("source.fatal", source=source.name, reason=str(error))
            self._factory.note_fatal(source, error)
            one = _RunningSource(source, "", None, [])
        one.task = self._tasks.create_task(one.run())
        return one


def _placed(source: SourceConfig | None, factory: SourceFactory) -> tuple[SourceConfig | None, str]:
    return source, "" if source is None else factory.place(source)


def _work(source: SourceConfig, factory: SourceFactory) -> tuple[Collector | None, list[Work]]:
    if isinstance(source, Watched):
        return None, [factory.intake(source)]
    collector = factory.collector(source)
    poller = factory.poller(source, collector)
    return collector, [poller, factory.backfill(source, poller), factory.recount(source, poller)] if collector.replayable else [poller]


class _RunningSource(msgspec.Struct, eq=False):
    """A source with its tasks; without any work it could not be started. place: its host, empty for this one."""

    source: SourceConfig
    place: str
    collector: Collector | None
    work: list[Work]
    unanswered: int = 0
    task: asyncio.Task[None] = None  # type: ignore[assignment] # started right after this

    @property
    def has_failed(self) -> bool:
        return not self.work

    @property
    def poller(self) -> Poller | None:
        return next(self._pollers(), None)

    async def run(self) -> None:
        """Work until cancelled; then wait briefly for the windows in flight and close the collector."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for one in self.work:
                    tasks.create_task(one.run())
        finally:
            for poller in self._pollers():
                self.unanswered = await poller.drain(DRAIN_SECONDS)
            if self.collector is not None:
                with suppress(Exception):
                    await self.collector.close()

    def _pollers(self) -> Iterator[Poller]:
        return (one for one in self.work if isinstance(one, Poller))
