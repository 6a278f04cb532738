"""`tokiod run`: keeps the writer and the collectors running, gives them another configuration, stops them in the order of the flow.

The two share nothing but sockets and the ledger, so one may die and come back without the other. A child that says with its exit
code that a person is needed (another daemon on the archive, a directory that can't be written) ends the daemon instead.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import structlog

from tokiod import __version__
from tokiod.errors import ConfigError, TokiodError
from tokiod.supervisor import subreaper as orphans
from tokiod.supervisor.child_group import Children
from tokiod.supervisor.child_process import WATCHDOG
from tokiod.supervisor.config_copy import RunningConfig
from tokiod.supervisor.control_socket import Ping, Pong, Refused, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.config.load import Config
    from tokiod.runtime.sd_notify import Notifier
    from tokiod.supervisor.control_socket import Answer, Reloaded, Request
    from tokiod.supervisor.metrics_http import Server

log = structlog.get_logger()

READY_LIMIT = 60.0
"""Seconds that the processes have to be ready with a configuration for which they were all restarted."""


class Supervisor:
    """The daemon's first process, which collects and stores nothing itself.

    arguments: what both children get behind their command beside the configuration; heed: told of each configuration that is taken.
    It tells systemd that it is alive only while both children tell it the same, so that a hang of any of the three ends in a restart.
    """

    def __init__(self, path: Path, arguments: Sequence[str], notifier: Notifier, clock: Clock, heed: Callable[[Config], None]) -> None:
        self._notifier = notifier
        self._clock = clock
        self._heed = heed
        self._running = RunningConfig(path)
        self._arguments = arguments
        self._watchdog = notifier.watchdog or WATCHDOG
        self._children = Children(self._watchdog)
        self._metrics: Server | None = None
        self._begun = time.monotonic()
        self._stopped = asyncio.Event()
        self._reloading = asyncio.Lock()
        self._reloads: set[asyncio.Task[Answer]] = set()

    async def run(self) -> None:
        """Keep both running until SIGTERM or SIGINT; then collectors first, then the writer.

        Raises TokiodError when a child needs a person.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopped.set)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        self._children.spared = orphans.adopt()
        self._start()
        async with AsyncExitStack() as stack:
            stack.callback(self._close_metrics)
            stack.push_async_callback(self._children.stop)
            telling = asyncio.create_task(self._tell())
            stack.callback(telling.cancel)
            control = self._running.config.control
            try:
                await stack.enter_async_context(serving(control, self._answer))
            except OSError as error:
                log.error("control.failed", path=str(control), error=str(error))  # noqa: TRY400 - nothing of ours
            await self._until_stopped()
            self._notifier.stopping()

    # The children count into files that serving metrics makes, so that begins first.
    def _start(self) -> None:
        self._heed(self._running.config)
        self._close_metrics()
        if self._running.config.metrics is not None:
            from tokiod.supervisor.metrics_http import serve  # noqa: PLC0415 - only where somebody wants metrics

            self._metrics = serve(self._running.config, self._children.health, self._clock)
        self._children.start([*self._running.arguments, *self._arguments])

    def _close_metrics(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None

    async def _until_stopped(self) -> None:
        stopped = asyncio.create_task(self._stopped.wait())
        while not stopped.done():
            await asyncio.wait([*self._children.keepers, stopped], return_when=asyncio.FIRST_COMPLETED)
            async with self._reloading:
                if self._children.have_failed:
                    break
        stopped.cancel()

    async def _tell(self) -> None:
        """Tell systemd how it goes, and that it goes on, as long as it does."""
        was_ready = False
        while True:
            if self._children.are_ready and not was_ready:
                was_ready = True
                self._notifier.ready()
            if self._children.are_alive:
                self._notifier.alive(self._children.sentence())
            self._children.reap()
            await asyncio.sleep(min(1.0, self._watchdog / 4))

    async def _answer(self, request: Request) -> Answer:
        return self._pong() if isinstance(request, Ping) else await asyncio.shield(self._hang_up())

    def _pong(self) -> Pong:
        children, seconds = self._children, round(time.monotonic() - self._begun, 3)
        return Pong(os.getpid(), __version__, children.are_ready, children.are_alive, seconds, children.processes())

    # ---- another configuration

    def _hang_up(self) -> asyncio.Task[Answer]:
        reload = asyncio.create_task(self._reload())
        self._reloads.add(reload)
        reload.add_done_callback(self._reloads.discard)
        return reload

    async def _reload(self) -> Answer:
        async with self._reloading:
            try:
                changes = self._running.read()
            except ConfigError as error:
                log.error("config.refused", faults=error.faults)  # noqa: TRY400 - the faults are all there is to say
                return Refused(error.faults)
            self._notifier.reloading()
            try:
                await self._take_over(changes)
            except TokiodError as error:
                log.error("config.failed", error=str(error))  # noqa: TRY400 - as above
                return Refused(str(error).splitlines())
            finally:
                self._notifier.ready()
            log.info("config.reloaded", added=changes.added, removed=changes.removed, changed=changes.changed, restarted=changes.restarted)
            return changes

    async def _take_over(self, changes: Reloaded) -> None:
        """Give the children the configuration that was read; where they can't work with it, the one before. Raises TokiodError."""
        before = self._running.accept()
        try:
            await self._change(changes)
        except TokiodError:
            await self._children.give_up()
            self._running.return_to(before)
            self._start()
            raise

    async def _change(self, changes: Reloaded) -> None:
        if changes.restarted:
            await self._children.stop()
            self._start()
            await self._until_ready()
            return
        self._heed(self._running.config)
        if self._metrics is not None:
            self._metrics.reload(self._running.config)
        await self._children.reload()

    async def _until_ready(self) -> None:
        deadline = time.monotonic() + READY_LIMIT
        while not self._children.are_ready and not self._stopped.is_set():
            if self._children.have_failed:
                raise TokiodError("the daemon can't run with it, see its log: it keeps its current configuration")
            if time.monotonic() > deadline:
                raise TokiodError(f"not ready with it after {READY_LIMIT:.0f} s: the daemon keeps its current configuration")
            await asyncio.sleep(0.05)
