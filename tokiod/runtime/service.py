"""What the daemon's processes do alike: read the configuration again at SIGHUP, refuse a wrong one, end at SIGTERM or SIGINT.

`tokiod run` is different: it gives its processes a configuration that it has checked (tokiod.supervisor.supervisor).
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import structlog

from tokiod.errors import ConfigError, TokiodError
from tokiod.runtime.sd_notify import NO_NOTIFIER, Notifier

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

log = structlog.get_logger()

C = TypeVar("C")


class Service(Generic[C]):
    """The configuration, the signals and the service manager of one process.

    A process with a loop of its own calls catch_signals() and, between two turns, must_stop(). One with an event loop calls until_signal(),
    or on_signals().
    load: reads the configuration, at the start and at each reload; raises ConfigError.
    """

    def __init__(self, load: Callable[[], C], notifier: Notifier = NO_NOTIFIER) -> None:
        self.load, self.notifier = load, notifier
        self._is_stopping = self._is_reloading = False

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Report a reload, whose work is done inside. If that raises TokiodError, the process logs why and keeps its configuration."""
        self.notifier.reloading()
        try:
            yield
        except TokiodError as error:  # of a wrong configuration, or because something that it needs is missing
            faults = error.faults if isinstance(error, ConfigError) else [str(error)]
            log.error("config.refused", faults=faults)  # noqa: TRY400 - the faults are the whole message
        self.notifier.ready()

    def catch_signals(self) -> None:
        """Have signals request a stop or a reload."""
        _ = self.wakeup  # a handler could come in the middle of making it
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.request_stop())
        signal.signal(signal.SIGHUP, lambda *_: self.request_reload())

    def request_stop(self) -> None:
        """Have must_stop() return True."""
        self._is_stopping = True
        os.eventfd_write(self.wakeup, 1)

    def request_reload(self) -> None:
        """Have must_stop() reload."""
        self._is_reloading = True
        os.eventfd_write(self.wakeup, 1)

    @cached_property
    def wakeup(self) -> int:
        """A descriptor that can be read after a request, so that a poll which waits long ends."""
        return os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def must_stop(self, reload: Callable[[], None]) -> bool:
        """Call reload() if that was requested, and return whether a stop was."""
        if self._is_reloading:
            # In this order: what is requested from now on ends the next poll, or is seen below.
            with suppress(BlockingIOError):
                os.eventfd_read(self.wakeup)
            self._is_reloading = False
            reload()
        return self._is_stopping

    def on_signals(self, stop: Callable[[], object], reload: Callable[[], object]) -> None:
        """Have the event loop call stop() at SIGTERM and SIGINT, and reload() at SIGHUP."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        loop.add_signal_handler(signal.SIGHUP, reload)

    async def until_signal(self, work: Coroutine[Any, Any, None], reload: Callable[[], object]) -> None:
        """Do some work until SIGTERM or SIGINT cancels it; reload() at SIGHUP."""
        task = asyncio.ensure_future(work)
        self.on_signals(task.cancel, reload)
        with suppress(asyncio.CancelledError):
            await task
        self.notifier.stopping()
