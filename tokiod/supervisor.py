"""`tokiod run`: keeps the writer and the collectors running, gives them another configuration, stops them in the order of the flow.

The two share nothing but sockets and the ledger, so one may die and come back without the other. A child that says with its exit
code that a person is needed (another daemon on the archive, a directory that can't be written) ends the daemon instead.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import structlog

from tokiod import __version__
from tokiod.child import WATCHDOG, Child
from tokiod.control import Ping, Pong, Process, Refused, serving
from tokiod.errors import ConfigError, TokiodError
from tokiod.running_config import RunningConfig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokiod.control import Answer, Reloaded, Request
    from tokiod.notify import Notifier

log = structlog.get_logger()

READY_LIMIT = 60.0
"""Seconds that the processes have to be ready with a configuration for which they were all restarted."""


class Supervisor:
    """The daemon's first process, which collects and stores nothing itself.

    arguments: what both children get behind their command beside the configuration. It tells systemd that it is alive only while both
    children tell it the same, so that a hang of any of the three ends in a restart.
    """

    def __init__(self, path: Path, arguments: Sequence[str], notifier: Notifier) -> None:
        self._notifier = notifier
        self._running = RunningConfig(path)
        self._arguments = arguments
        self._watchdog = notifier.watchdog or WATCHDOG
        self._begun = time.monotonic()
        self._stopped = asyncio.Event()
        self._reloading = asyncio.Lock()
        self._reloads: set[asyncio.Task[Answer]] = set()
        self._children: list[Child] = []
        self._keepers: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Keep both running until SIGTERM or SIGINT; then collectors first, then the writer.

        Raises TokiodError when a child needs a person.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopped.set)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        self._start()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._stop)
            telling = asyncio.create_task(self._tell())
            stack.callback(telling.cancel)
            try:
                await stack.enter_async_context(serving(self._running.config.control, self._answer))
            except OSError as error:
                log.error("control.failed", path=str(self._running.config.control), error=str(error))  # noqa: TRY400 - nothing of ours
            await self._until_stopped()
            self._notifier.stopping()

    def _start(self) -> None:
        base = [sys.executable, "-m", "tokiod.cli.tokiod"]
        tail = [*self._running.arguments, *self._arguments, "--parent", str(os.getpid())]
        restarts = {child.name: child.starts for child in self._children}
        self._children = [
            Child(name, [*base, name, *tail], self._watchdog, starts=restarts.get(name, 0)) for name in ("writer", "collectors")
        ]
        self._keepers = [asyncio.create_task(child.keep()) for child in self._children]

    async def _stop(self) -> None:
        for child in reversed(self._children):
            await child.stop()
        await asyncio.gather(*self._keepers)

    async def _until_stopped(self) -> None:
        stopped = asyncio.create_task(self._stopped.wait())
        while not stopped.done():
            await asyncio.wait([*self._keepers, stopped], return_when=asyncio.FIRST_COMPLETED)
            async with self._reloading:
                if any(keeper.done() for keeper in self._keepers):
                    break
        stopped.cancel()

    # ---- how it goes

    @property
    def _is_ready(self) -> bool:
        return all(child.is_ready for child in self._children)

    async def _tell(self) -> None:
        """Tell systemd how it goes, and that it goes on, as long as it does."""
        was_ready = False
        while True:
            if self._is_ready and not was_ready:
                was_ready = True
                self._notifier.ready()
            if all(child.is_alive for child in self._children):
                self._notifier.alive(self._sentence())
            await asyncio.sleep(min(1.0, self._watchdog / 4))

    def _sentence(self) -> str:
        told = (f"{child.name}: {child.status or ('starting' if not child.is_ready else 'running')}" for child in self._children)
        return "; ".join(told)

    def _pong(self) -> Pong:
        processes = [
            Process(
                child.name,
                child.process.pid if child.process is not None and child.process.returncode is None else None,
                child.is_ready,
                child.is_alive,
                round(child.silent_for, 3),
                max(0, child.starts - 1),
                child.status,
            )
            for child in self._children
        ]
        seconds = round(time.monotonic() - self._begun, 3)
        return Pong(os.getpid(), __version__, self._is_ready, all(child.is_alive for child in self._children), seconds, processes)

    # ---- another configuration

    async def _answer(self, request: Request) -> Answer:
        return self._pong() if isinstance(request, Ping) else await asyncio.shield(self._hang_up())

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
        if not changes.restarted:
            self._running.accept()
            for child in self._children:
                await child.reload()
            return
        await self._stop()
        before = self._running.accept()
        self._start()
        try:
            await self._until_ready()
        except TokiodError:
            await asyncio.gather(*(child.stop() for child in reversed(self._children)))
            await asyncio.gather(*self._keepers, return_exceptions=True)
            self._running.return_to(before)
            self._start()
            raise

    async def _until_ready(self) -> None:
        deadline = time.monotonic() + READY_LIMIT
        while not self._is_ready and not self._stopped.is_set():
            if any(keeper.done() for keeper in self._keepers):
                raise TokiodError("the daemon can't run with it, see its log: it goes on with the configuration it had")
            if time.monotonic() > deadline:
                raise TokiodError(f"not ready with it after {READY_LIMIT:.0f} s: the daemon goes on with the configuration it had")
            await asyncio.sleep(0.05)
