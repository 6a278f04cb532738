"""The collectors' process: one asyncio loop, a poller for each source, one way to the writer. HDF5 is never imported here."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import structlog

from tokiod import plugins
from tokiod.backfill import Alone, Backfill
from tokiod.bus.sender import Sender
from tokiod.collector import Site
from tokiod.errors import TokiodError
from tokiod.ledger import Ledger
from tokiod.log import Repeats
from tokiod.poller import Poller
from tokiod.recount import Recount
from tokiod.watch.intake import Intake
from tokiod.watch.stanza import Watched
from tokiod.window import Calendar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from pathlib import Path

    from tokiod.backfill import Lender
    from tokiod.clock import Clock
    from tokiod.collector import Collector, SavedCollector, SourceConfig
    from tokiod.config import Config
    from tokiod.jobs import Job

log = structlog.get_logger()

GRACE = 5.0
"""Real seconds that the writer has for its last answers when the process stops; what it doesn't answer is collected again."""
AGAIN = 5.0
"""Seconds between two attempts to open a ledger that can't be had."""


def run(config: Config, clock: Clock) -> None:
    """Collect until SIGTERM or SIGINT."""
    asyncio.run(_until_signal(collect(config, clock)))


async def collect(config: Config, clock: Clock) -> None:
    """Collect until cancelled; then wait a moment for what is on its way to the writer, and close the collectors.

    Nothing begins before the writer's welcome: it makes the ledger, or sets a corrupt one aside, before it says so. At each later
    welcome, and when the writer says that something is lost, the ledger is opened anew and every poller reads it again.
    A ledger that can't be opened just now is tried again; until then nothing begins, or all goes on as it was.
    """
    ledger: Ledger | None = None
    pollers: list[Poller] = []
    told = Repeats(clock)

    def reload() -> None:
        if ledger is not None:
            try:
                ledger.reopen()
            except (TokiodError, sqlite3.Error) as error:
                _tell(error, told)
                asyncio.get_running_loop().call_later(AGAIN, reload)
                return
        for poller in pollers:
            poller.reload()

    bus = config.bus
    sender = Sender(bus.endpoint, max_windows=bus.max_windows, max_bytes=bus.max_bytes, on_reload=reload)
    async with asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(sender.run())
        try:
            await sender.welcomed()
            with await _opened(config.archive.ledger, told) as ledger:
                calendar = Calendar(config.timezone)
                live = _live([source for source in config.source if source.polled], Site(calendar, clock, config.secret), ledger)
                pollers += [Poller(source, one, ledger, sender.submit, calendar, clock, Random()) for source, one in live]  # noqa: S311 - jitter
                filling = _Filling(config, clock, sender, ledger)
                backfills = [filling.of(source, poller) for (source, one), poller in zip(live, pollers, strict=True) if one.replayable]
                intakes = [filling.intake(source) for source in config.source if isinstance(source, Watched)]
                log.info("collectors.ready", sources=len(config.source))
                recounts = [
                    Recount(source, filling.make(source), poller, ledger, clock)
                    for (source, one), poller in zip(live, pollers, strict=True)
                    if one.replayable
                ]
                await _poll(pollers, [*backfills, *recounts, *intakes], [one for _, one in live])
        finally:
            sending.cancel()


async def _opened(path: Path, told: Repeats) -> Ledger:
    while True:
        try:
            return Ledger.open(path)
        except (TokiodError, sqlite3.Error) as error:
            _tell(error, told)
        await asyncio.sleep(AGAIN)


def _tell(error: Exception, told: Repeats) -> None:
    if times := told(str(error)):
        log.error("ledger.failed", error=str(error), reason=f"tried again every {AGAIN:.0f} s", times=times)


async def backfill(config: Config, clock: Clock, source: SourceConfig, job: Job) -> None:
    """Work on one job, without polling anything; a writer must be running. Returns when the job has ended."""
    bus = config.bus
    sender = Sender(bus.endpoint, max_windows=bus.max_windows, max_bytes=bus.max_bytes)
    async with sender:
        await sender.welcomed()
        with Ledger.open(config.archive.ledger) as ledger:
            await _Filling(config, clock, sender, ledger).of(source, Alone()).work(job)


class _Filling:
    """What the backfills of all sources share."""

    def __init__(self, config: Config, clock: Clock, sender: Sender, ledger: Ledger) -> None:
        self._calendar = Calendar(config.timezone)
        self._site = Site(self._calendar, clock, config.secret)
        self._sender = sender
        self._ledger = ledger
        # Half of the bus is left to live polling.
        self._room = asyncio.Semaphore(max(1, config.bus.max_windows // 2))

    def make(self, source: SourceConfig) -> Collector:
        """Return another collector of a source."""
        return plugins.load(source.kind).live(source, self._site)

    def of(self, source: SourceConfig, lender: Lender) -> Backfill:
        """Return the backfill of a source."""
        submit, clock = self._sender.submit, self._site.clock
        return Backfill(
            source,
            self.make,
            lender,
            self._ledger,
            submit,
            self._room,
            self._calendar,
            clock,
            Random(),  # noqa: S311 - jitter
        )

    def intake(self, source: Watched) -> Intake:
        """Return who collects the files of a watched folder."""
        submit, clock = self._sender.submit, self._site.clock
        plugin, options = plugins.load(source.kind), source.options

        def make(path: Path) -> SavedCollector:
            return plugin.saved([path], options, self._site)

        return Intake(source, make, self._ledger, submit, self._room, self._calendar, clock, Random())  # noqa: S311 - jitter


async def _poll(pollers: list[Poller], others: list[Backfill | Recount | Intake], collectors: list[Collector]) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            for poller in pollers:
                tasks.create_task(poller.run())
            for other in others:
                tasks.create_task(other.run())
            await asyncio.Event().wait()
    finally:
        unanswered = sum(await asyncio.gather(*(poller.drain(GRACE) for poller in pollers)))
        await asyncio.gather(*(collector.close() for collector in collectors), return_exceptions=True)
        log.info("collectors.stopped", unanswered=unanswered)


def _live(sources: Iterable[SourceConfig], site: Site, ledger: Ledger) -> list[tuple[SourceConfig, Collector]]:
    """Make the collectors; one that can't be made is told in the status and holds up no other."""
    live = []
    for source in sources:
        try:
            live.append((source, plugins.load(source.kind).live(source, site)))
        except Exception as error:
            log.exception("source.fatal", source=source.name, reason=str(error))
            ledger.register(source, int(site.clock.time()))
            ledger.set_state(source.name, "fatal", str(error), site.clock.time())
    return live


async def _until_signal(work: Coroutine[None, None, None]) -> None:
    task = asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with suppress(asyncio.CancelledError):
        await task
