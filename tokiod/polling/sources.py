"""The sources that are collected, each with tasks of its own: started, stopped and changed while the others go on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import structlog

from tokiod.collector import Site
from tokiod.config import plugins
from tokiod.config.watched_folder import Watched
from tokiod.polling.backfill import Backfill
from tokiod.polling.poller import Poller
from tokiod.polling.recount import Recount
from tokiod.polling.watch.intake import Intake
from tokiod.window import Calendar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokiod.bus.sender import Sender
    from tokiod.clock import Clock
    from tokiod.collector import Collector, SavedCollector, SourceConfig
    from tokiod.config.load import Config
    from tokiod.ledger.ledger import Ledger
    from tokiod.polling.backfill import Lender

log = structlog.get_logger()

GRACE = 5.0
"""Real seconds that the writer has for its last answers when a source stops; what it doesn't answer is collected again."""
Work = Poller | Backfill | Recount | Intake


class Making:
    """Makes what collects a source. room: bounds the windows of all backfills together."""

    def __init__(self, config: Config, clock: Clock, sender: Sender, ledger: Ledger, room: asyncio.Semaphore) -> None:
        self._calendar = Calendar(config.timezone)
        self._site = Site(self._calendar, clock, config.secret)
        self._sender = sender
        self._ledger = ledger
        self._room = room

    def collector(self, source: SourceConfig) -> Collector:
        """Return a collector of a source. Raises whatever its plugin does."""
        return plugins.load(source.kind).live(source, self._site)

    def poller(self, source: SourceConfig, collector: Collector) -> Poller:
        """Return the poller of a source."""
        return Poller(source, collector, self._ledger, self._sender.submit, self._calendar, self._site.clock, Random())  # noqa: S311 - jitter

    def backfill(self, source: SourceConfig, lender: Lender) -> Backfill:
        """Return who fills the past of a source."""
        submit, clock = self._sender.submit, self._site.clock
        return Backfill(source, self.collector, lender, self._ledger, submit, self._room, self._calendar, clock, Random())  # noqa: S311

    def recount(self, source: SourceConfig, poller: Poller) -> Recount:
        """Return who counts again what is stored of a source."""
        return Recount(source, self.collector(source), poller, self._ledger, self._site.clock)

    def intake(self, source: Watched) -> Intake:
        """Return who collects the files of a watched folder."""
        submit, clock = self._sender.submit, self._site.clock
        plugin, options = plugins.load(source.kind), source.options

        def make(path: Path) -> SavedCollector:
            return plugin.saved([path], options, self._site)

        return Intake(source, make, self._ledger, submit, self._room, self._calendar, clock, Random())  # noqa: S311 - jitter


def room(config: Config) -> asyncio.Semaphore:
    """Return the room that backfills have on the bus: half of it is left to live polling."""
    return asyncio.Semaphore(max(1, config.bus.max_windows // 2))


class Sources:
    """All that are configured. tasks: where their tasks run; what one of them raises ends all."""

    def __init__(self, config: Config, clock: Clock, sender: Sender, ledger: Ledger, tasks: asyncio.TaskGroup) -> None:
        self._clock = clock
        self._sender = sender
        self._ledger = ledger
        self._tasks = tasks
        self._room = room(config)
        self._ones: dict[str, _One] = {}

    async def take(self, config: Config) -> None:
        """Collect just the sources of a configuration: what is in it as before goes on undisturbed."""
        wanted = {source.name: source for source in config.source}
        going = [one for name, one in self._ones.items() if one.source != wanted.get(name) or one.has_failed]
        for one in going:
            one.task.cancel()
        await asyncio.gather(*(one.task for one in going), return_exceptions=True)
        self._ones = {name: one for name, one in self._ones.items() if one not in going}
        making = Making(config, self._clock, self._sender, self._ledger, self._room)
        for name in wanted.keys() - self._ones.keys():
            self._ones[name] = self._start(wanted[name], making)

    def reload(self) -> None:
        """Have all of them read the ledger again."""
        for poller in self.pollers:
            poller.reload()

    @property
    def pollers(self) -> list[Poller]:
        """Those that poll."""
        return [one.poller for one in self._ones.values() if one.poller is not None]

    @property
    def unanswered(self) -> int:
        """How many windows were still on their way to the writer when their sources stopped."""
        return sum(one.unanswered for one in self._ones.values())

    def sentence(self) -> str:
        """Say how they do."""
        troubled = {one.source.name: one.poller.trouble for one in self._ones.values() if one.poller and one.poller.trouble}
        troubled |= {one.source.name: "can't be made, see the log" for one in self._ones.values() if one.has_failed}
        down = "".join(f", {name} down ({why})" for name, why in sorted(troubled.items())[:3])
        return f"{len(self._ones) - len(troubled)} of {len(self._ones)} sources running{down}{', ...' if len(troubled) > 3 else ''}"  # noqa: PLR2004

    def _start(self, source: SourceConfig, making: Making) -> _One:
        """Start one; one that can't be made is told in the status and holds up no other."""
        try:
            one = _One(source, *_work(source, making))
        except Exception as error:
            log.exception("source.fatal", source=source.name, reason=str(error))
            self._ledger.register(source, int(self._clock.time()))
            self._ledger.set_state(source.name, "fatal", str(error), self._clock.time())
            one = _One(source, None, [])
        one.task = self._tasks.create_task(one.run())
        return one


def _work(source: SourceConfig, making: Making) -> tuple[Collector | None, list[Work]]:
    if isinstance(source, Watched):
        return None, [making.intake(source)]
    collector = making.collector(source)
    poller = making.poller(source, collector)
    return collector, [poller, making.backfill(source, poller), making.recount(source, poller)] if collector.replayable else [poller]


@dataclass(slots=True, eq=False)
class _One:
    """A source; without any work it could not be made."""

    source: SourceConfig
    collector: Collector | None
    work: list[Work]
    unanswered: int = 0
    task: asyncio.Task[None] = None  # type: ignore[assignment] # begun as soon as this is made

    @property
    def has_failed(self) -> bool:
        return not self.work

    @property
    def poller(self) -> Poller | None:
        return next(self._pollers(), None)

    async def run(self) -> None:
        """Work until cancelled; then wait a moment for what is on its way to the writer, and close the collector."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for one in self.work:
                    tasks.create_task(one.run())
        finally:
            for poller in self._pollers():
                self.unanswered = await poller.drain(GRACE)
            if self.collector is not None:
                with suppress(Exception):
                    await self.collector.close()

    def _pollers(self) -> Iterator[Poller]:
        return (one for one in self.work if isinstance(one, Poller))
