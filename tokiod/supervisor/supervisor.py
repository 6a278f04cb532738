"""`tokiod run`: keep collectors, writer and feed running, give them another configuration, stop them in the order of the data path.

They share only sockets and the ledger, so each can die and come back without the others. A child whose exit code asks for an operator
(another daemon on the archive, a directory that is not writable) ends the daemon instead.
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
from tokiod.config.hosts import other_hosts
from tokiod.errors import ConfigError, TokiodError
from tokiod.supervisor import subreaper
from tokiod.supervisor.child_group import ChildGroup
from tokiod.supervisor.child_process import until_next_check
from tokiod.supervisor.config_copy import ConfigCopy
from tokiod.supervisor.control_socket import Ping, Pong, Refused, serve_control
from tokiod.supervisor.health import WATCHDOG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path
    from typing import Any

    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.runtime.sd_notify import Notifier
    from tokiod.supervisor.control_socket import Answer, Reloaded, Request
    from tokiod.supervisor.metrics_http import MetricsServer

log = structlog.get_logger()

FIRST_REPORT_SECONDS = 0.1
"""Between two looks at the processes, to report to systemd, until all are ready. Then they are as far apart as those of child_process."""
STOPPING = "the daemon is stopping; it reads the configuration when it starts again"
READY_LIMIT_SECONDS = 60.0
"""Seconds until the processes must be ready with a configuration for which all of them were restarted."""


class Supervisor:
    """The daemon's first process. It collects and stores nothing itself.

    arguments: of the children's commands, in addition to the configuration; on_config: called with each configuration that is applied.
    It reports to systemd that it is alive only while all children report progress, so a hang of any process ends in a restart.
    """

    def __init__(self, path: Path, arguments: Sequence[str], notifier: Notifier, clock: Clock, on_config: Callable[[Config], None]) -> None:
        self._notifier = notifier
        self._clock = clock
        self._on_config = on_config
        self._copy = ConfigCopy(path)
        self._arguments = arguments
        self._watchdog = notifier.watchdog or WATCHDOG_SECONDS
        self._children = ChildGroup(self._watchdog)
        self._metrics: MetricsServer | None = None
        self._started_at = time.monotonic()
        self._stopped = asyncio.Event()
        self._reloading = asyncio.Lock()
        self._reloads: set[asyncio.Task[Answer]] = set()

    async def run(self) -> None:
        """Keep them running until SIGTERM or SIGINT. Raises TokiodError when a child needs an operator."""
        self.open()
        try:
            await self.serve()
        finally:
            await self.close()

    def open(self) -> None:
        """Handle signals, and start the children and the metrics server."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopped.set)
        loop.add_signal_handler(signal.SIGHUP, self._start_reload)
        self._children.preexisting = subreaper.become_subreaper()
        self._start()

    async def serve(self) -> None:
        """Report to systemd and answer at the control socket until a signal, or until a child needs an operator."""
        path = self._copy.config.control
        async with AsyncExitStack() as stack:
            reporting = asyncio.create_task(self._report())
            stack.callback(reporting.cancel)
            try:
                await stack.enter_async_context(serve_control(path, self._answer))
            except OSError as error:
                log.error("control.failed", path=str(path), error=str(error))  # noqa: TRY400 - no fault of tokiod
            await self._until_stopped()
            self._notifier.stopping()

    async def close(self) -> None:
        """Stop the collectors, then the writer, then the feed. Raises TokiodError if one of them needed an operator."""
        try:
            await self._children.stop()
        finally:
            self._close_metrics()

    async def reload(self) -> Answer:
        """Read the configuration file again and apply it; on failure, keep the configuration in use."""
        async with self._reloading:
            if self._stopped.is_set():
                return Refused([STOPPING])
            try:
                changes = self._copy.read()
            except ConfigError as error:
                log.error("config.refused", faults=error.faults)  # noqa: TRY400 - the faults are all there is to report
                return Refused(error.faults)
            self._notifier.reloading()
            try:
                await self._apply_or_roll_back(changes)
            except TokiodError as error:
                log.error("config.failed", error=str(error))  # noqa: TRY400 - as above
                return Refused(str(error).splitlines())
            finally:
                self._notifier.ready()
            log.info("config.reloaded", added=changes.added, removed=changes.removed, changed=changes.changed, restarted=changes.restarted)
            return changes

    # The metrics server makes the files that the children count in, so it opens first.
    def _start(self) -> None:
        config = self._copy.config
        self._on_config(config)
        self._close_metrics()
        if config.metrics is not None:
            from tokiod.supervisor.metrics_http import MetricsServer  # noqa: PLC0415 - only with metrics in the configuration

            self._metrics = MetricsServer(config.metrics.address, config, self._children.health, self._clock)
            self._metrics.open()
        unneeded = {"hub": config.hub.endpoint is None, "relay": not other_hosts(config.host)}
        without = [name for name, is_unneeded in unneeded.items() if is_unneeded]
        self._children.start([*self._copy.arguments, *self._arguments], secret_variables(config), without)

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

    async def _report(self) -> None:
        """Report readiness, state and progress to systemd, the progress only while all children make progress."""
        was_ready = False
        while True:
            if self._children.are_ready and not was_ready:
                was_ready = True
                self._notifier.ready()
            self._children.receive()
            if self._children.are_alive:
                self._notifier.alive(self._children.status())
            self._children.reap_orphans()
            await asyncio.sleep(until_next_check(self._watchdog) if was_ready else min(FIRST_REPORT_SECONDS, self._watchdog / 6))

    async def _answer(self, request: Request) -> Answer:
        return self._pong() if isinstance(request, Ping) else await asyncio.shield(self._start_reload())

    def _pong(self) -> Pong:
        self._children.receive()
        children, seconds = self._children, round(time.monotonic() - self._started_at, 3)
        return Pong(os.getpid(), __version__, children.are_ready, children.are_alive, seconds, children.processes())

    def _start_reload(self) -> asyncio.Task[Answer]:
        reload = asyncio.create_task(self.reload())
        self._reloads.add(reload)
        reload.add_done_callback(self._reloads.discard)
        return reload

    async def _apply_or_roll_back(self, changes: Reloaded) -> None:
        """Give the children the configuration that was read; if they can't work with it, the previous one. Raises TokiodError."""
        previous = self._copy.accept()
        try:
            await self._apply(changes)
        except TokiodError:
            await self._children.stop_quietly()
            self._copy.roll_back(previous)
            if not self._stopped.is_set():
                self._start()
            raise

    async def _apply(self, changes: Reloaded) -> None:
        if changes.restarted:
            await self._children.stop()
            if self._stopped.is_set():
                raise TokiodError(STOPPING)
            self._start()
            await self._until_ready()
            return
        self._on_config(self._copy.config)
        if self._metrics is not None:
            self._metrics.reload(self._copy.config)
        await self._unless_stopped(self._children.reload())

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for something, but not once the daemon is to stop: systemd kills it if that takes long. Raises TokiodError then."""
        working, stopped = asyncio.create_task(work), asyncio.create_task(self._stopped.wait())
        await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not working.done():
            working.cancel()
            raise TokiodError(STOPPING)
        await working

    async def _until_ready(self) -> None:
        deadline = time.monotonic() + READY_LIMIT_SECONDS
        while not self._children.are_ready and not self._stopped.is_set():
            if self._children.have_failed:
                raise TokiodError("the daemon can't start with this configuration (see its log); it keeps its current configuration")
            if time.monotonic() > deadline:
                raise TokiodError(f"not ready with it after {READY_LIMIT_SECONDS:.0f} s: the daemon keeps its current configuration")
            await asyncio.sleep(0.05)


def secret_variables(config: Config) -> frozenset[str]:
    """Return the environment variables from which sources read secrets: only the collectors need them."""
    fields = ((source, name) for source in config.source for name in source.__struct_fields__ if name.endswith("_env"))
    return frozenset(variable for source, name in fields if (variable := getattr(source, name)))
