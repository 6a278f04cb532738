"""The collectors' process: one asyncio loop, a poller for each source, one way to the writer. HDF5 is never imported here."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from tokiod.bus.curve import bus_keys
from tokiod.bus.sender import Sender
from tokiod.errors import ConfigError, TokiodError
from tokiod.ledger.database import LedgerError
from tokiod.ledger.ledger import Ledger
from tokiod.metrics import catalogue
from tokiod.polling.backfill import Alone
from tokiod.polling.sources import Making, Sources, room
from tokiod.runtime.log import Repeats
from tokiod.runtime.sd_notify import NOBODY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.collector import SourceConfig
    from tokiod.config.load import Config
    from tokiod.ledger.jobs import Job
    from tokiod.runtime.sd_notify import Notifier

log = structlog.get_logger()

AGAIN = 5.0
"""Seconds between two attempts to open a ledger that can't be had."""
BEAT = 1.0
"""Seconds between two words to whoever keeps this process running."""


def run(load: Callable[[], Config], clock: Clock, notifier: Notifier) -> None:
    """Collect until SIGTERM or SIGINT; read the configuration again at SIGHUP. Raises ConfigError."""
    asyncio.run(_until_signal(load, clock, notifier))


async def collect(load: Callable[[], Config], clock: Clock, notifier: Notifier = NOBODY, reloading: asyncio.Event | None = None) -> None:
    """Collect until cancelled; then wait a moment for what is on its way to the writer, and close the collectors.

    Nothing begins before the writer's welcome: it makes the ledger, or sets a corrupt one aside, before it says so. At each later
    welcome, and when the writer says that something is lost, the ledger is opened anew and every poller reads it again.
    A ledger that can't be opened just now is tried again; until then nothing begins, or all goes on as it was.
    reloading: set when the configuration is to be read again; of that only sources may have changed.
    """
    config, told = load(), Repeats(clock)
    catalogue.start_counting(config, "collectors")
    ledger: Ledger | None = None
    sources: Sources | None = None

    def reload() -> None:
        if ledger is not None:
            try:
                ledger.reopen()
            except (TokiodError, LedgerError) as error:
                _tell(error, told)
                asyncio.get_running_loop().call_later(AGAIN, reload)
                return
        if sources is not None:
            sources.reload()

    sender = _sender(config, reload)
    async with asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(sender.run())
        telling = tasks.create_task(_tell_progress(notifier, sender, lambda: sources))
        try:
            await sender.welcomed()
            with await _opened(config.archive.ledger, told) as ledger:
                async with asyncio.TaskGroup() as working:
                    sources = Sources(config, clock, sender, ledger, working)
                    await sources.take(config)
                    log.info("collectors.ready", sources=len(config.source))
                    await _reload_when_asked(load, sources, notifier, reloading or asyncio.Event())
        finally:
            log.info("collectors.stopped", unanswered=0 if sources is None else sources.unanswered)
            sending.cancel()
            telling.cancel()


async def _reload_when_asked(load: Callable[[], Config], sources: Sources, notifier: Notifier, reloading: asyncio.Event) -> None:
    while True:
        await reloading.wait()
        reloading.clear()
        notifier.reloading()
        try:
            config = load()
            catalogue.start_counting(config, "collectors")
            await sources.take(config)
        except ConfigError as error:
            log.error("config.refused", faults=error.faults)  # noqa: TRY400 - the faults are all there is to say
        notifier.ready()


async def _tell_progress(notifier: Notifier, sender: Sender, known: Callable[[], Sources | None]) -> None:
    """Tell that this process makes progress, while it does: the loop turns, no collector hangs, and the writer answers.

    It is ready once the writer has answered otherwise than "later", for a file that is being made, or all sources were asked in vain: one
    that is down must not keep the others from it.
    """
    is_ready, loop = False, asyncio.get_running_loop()
    while True:
        sources = known()
        if stuck := _stuck(sender, sources, loop.time()):
            log.error("collectors.stuck", reason=stuck)
        elif sources is None:
            notifier.alive("waiting for the writer")
        else:
            notifier.alive(sources.sentence())
            state = sender.state
            is_open = state.unacknowledged or state.postponed
            in_vain = all(poller.has_asked for poller in sources.pollers) and not is_open
            if not is_ready and (state.answered or in_vain):
                is_ready = True
                notifier.ready()
        await asyncio.sleep(BEAT if is_ready else BEAT / 10)


def _stuck(sender: Sender, sources: Sources | None, now: float) -> str:
    reasons = (sender.stuck(now), *(poller.stuck(now) for poller in (() if sources is None else sources.pollers)))
    return next(filter(None, reasons), "")


def _sender(config: Config, on_reload: Callable[[], None] = lambda: None) -> Sender:
    bus = config.bus
    return Sender(bus.endpoint, max_windows=bus.max_windows, max_bytes=bus.max_bytes, on_reload=on_reload, keys=bus_keys(config))


async def _opened(path: Path, told: Repeats) -> Ledger:
    while True:
        try:
            return Ledger.open(path)
        except (TokiodError, LedgerError) as error:
            _tell(error, told)
        await asyncio.sleep(AGAIN)


def _tell(error: Exception, told: Repeats) -> None:
    if times := told(str(error)):
        log.error("ledger.failed", error=str(error), reason=f"tried again every {AGAIN:.0f} s", times=times)


async def backfill(config: Config, clock: Clock, source: SourceConfig, job: Job) -> None:
    """Work on one job, without polling anything; a writer must be running. Returns when the job has ended."""
    async with _sender(config) as sender:
        await sender.welcomed()
        with Ledger.open(config.archive.ledger) as ledger:
            await Making(config, clock, sender, ledger, room(config)).backfill(source, Alone()).work(job)


async def _until_signal(load: Callable[[], Config], clock: Clock, notifier: Notifier) -> None:
    reloading, loop = asyncio.Event(), asyncio.get_running_loop()
    task = asyncio.ensure_future(collect(load, clock, notifier, reloading))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    loop.add_signal_handler(signal.SIGHUP, reloading.set)
    with suppress(asyncio.CancelledError):
        await task
    notifier.stopping()
