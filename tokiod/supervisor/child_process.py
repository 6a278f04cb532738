"""One process of the daemon: start it, watch it, start it again when it dies or hangs, and stop it."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import structlog

from tokiod.errors import TokiodError
from tokiod.runtime.sd_notify import MAX_MESSAGE_BYTES, child_environment, fields
from tokiod.supervisor.health import WATCHDOG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

log = structlog.get_logger()

EXIT_NEEDS_OPERATOR = 2
"""A child's exit code: a restart can't help."""

SHORT_FOR_A_MOMENT = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""Why a process can't be started now: processes, memory or descriptors."""

MIN_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 5.0
STEADY_SECONDS = 10.0
"""Seconds of work, counted from when it is ready, after which a child is restarted at once when it dies. One that dies earlier waits
longer each time; the time that it takes to start doesn't count."""

STOP_LIMIT_SECONDS = 15.0
"""Seconds that a child has to stop before it is killed."""

START_LIMIT_SECONDS = 600.0
"""Seconds until a child's first notification: a writer that rebuilds a lost ledger reads all files before."""

RELOAD_LIMIT_SECONDS = 60.0
"""Seconds that a child has to apply another configuration."""

CHECKS_PER_WATCHDOG = 4
"""Checks of a child within the time that it may be silent."""


def until_next_check(watchdog: float) -> float:
    """Return the seconds until the next check of a child. All are due at the same times, so that the process wakes once."""
    interval = watchdog / CHECKS_PER_WATCHDOG
    return interval - asyncio.get_running_loop().time() % interval


class RestartDelay:
    """How long a child that died waits for its restart: longer each time, until it has worked for STEADY_SECONDS."""

    def __init__(self) -> None:
        self._seconds = MIN_BACKOFF_SECONDS

    def after(self, worked: float | None) -> float:
        """Return the seconds until the restart. worked: seconds since it was ready, None for one that never was."""
        if worked is not None and worked > STEADY_SECONDS:
            self._seconds = MIN_BACKOFF_SECONDS
        seconds, self._seconds = self._seconds, min(2 * self._seconds, MAX_BACKOFF_SECONDS)
        return seconds


class ChildProcess(msgspec.Struct):
    """A process that reports its progress over a socket pair, kept running until stop().

    It is killed when it has reported nothing for `watchdog` seconds. While it is ready, its reports are received at each check, not one by
    one. starts: how often it was started;
    restarts: how often after a death, also of its predecessors; status: its last status text;
    is_ready: whether it does its work; is_starting: whether its pid is still unknown; on_exit: called when it has died.
    is_essential: whether the daemon ends when the child needs an operator; else only if it never was ready, and it is restarted after that.
    progress: set when it has become ready, has reloaded, or has died.
    """

    name: str
    command: Sequence[str]
    watchdog: float = WATCHDOG_SECONDS
    process: asyncio.subprocess.Process | None = None
    starts: int = 0
    restarts: int = 0
    status: str = ""
    is_ready: bool = False
    is_starting: bool = False
    hidden: frozenset[str] = frozenset()
    is_essential: bool = True
    on_exit: Callable[[], None] = lambda: None
    progress: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    _ready_since: float | None = None
    _was_ready: bool = False
    _silence_limit: float = START_LIMIT_SECONDS
    _notified_at: float = 0.0
    _stopping: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    _channel: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """The pid, while the process runs."""
        return self.process.pid if self.process is not None and self.process.returncode is None else None

    @property
    def silent_for(self) -> float:
        """Seconds since its last notification, or its start."""
        return time.monotonic() - self._notified_at

    @property
    def is_alive(self) -> bool:
        """Whether it makes progress or is being restarted; False for a child that not even SIGKILL ends."""
        return self.silent_for < self._silence_limit + self.watchdog / 2

    async def keep(self) -> None:
        """Run the child, and restart it with a growing delay while it keeps dying, until stop().

        Raises TokiodError when the child's exit code asks for an operator.
        """
        delay = RestartDelay()
        while not self._stopping.is_set():
            try:
                code = await self._once()
            except OSError as error:
                if not self.starts and error.errno not in SHORT_FOR_A_MOMENT:
                    raise
                await self._wait_for_resources(delay, error)
                continue
            if self._stopping.is_set():
                return
            if code == EXIT_NEEDS_OPERATOR and (self.is_essential or not self._was_ready):
                raise TokiodError(f"the {self.name} failed to start (see above)")
            seconds = delay.after(None if self._ready_since is None else time.monotonic() - self._ready_since)
            self.restarts += 1
            log.warning("child.died", child=self.name, code=code, restart_in=round(seconds, 1))
            await self._pause(seconds)

    # They are short just when a child was killed for want of memory.
    async def _wait_for_resources(self, delay: RestartDelay, error: OSError) -> None:
        self._ready_since, self._notified_at = None, time.monotonic()
        seconds = delay.after(None)
        log.warning("child.not_started", child=self.name, error=str(error), restart_in=round(seconds, 1))
        await self._pause(seconds)

    async def stop(self) -> None:
        """Send SIGTERM and wait until the child has ended; kill it when it takes too long."""
        self._stopping.set()
        if self.process is None or self.process.returncode is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_LIMIT_SECONDS):
                await self.process.wait()
        except TimeoutError:
            log.warning("child.killed", child=self.name, after=STOP_LIMIT_SECONDS)
            self.process.kill()
            await self.process.wait()

    async def reload(self) -> None:
        """Make the child read its configuration again, and wait until it has. A child that dies reads it when it is restarted.

        A child that is still starting may die of the signal, and is not waited for. Raises TokiodError where it takes too long.
        """
        if self.process is None or self.process.returncode is not None:
            return
        self.receive()
        was_ready, self.is_ready = self.is_ready, False
        self._await_readiness()
        self.progress.clear()
        self.process.send_signal(signal.SIGHUP)
        if not was_ready:
            return
        try:
            async with asyncio.timeout(RELOAD_LIMIT_SECONDS):
                await self.progress.wait()
        except TimeoutError:
            limit = f"{RELOAD_LIMIT_SECONDS:.0f} s"
            raise TokiodError(f"the {self.name} has not applied the configuration within {limit}; see the log") from None

    async def _once(self) -> int:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                self.process = await self._start(theirs.fileno())
            self.starts += 1
            self._ready_since = None
            self._notified_at, self._silence_limit, self.status = time.monotonic(), START_LIMIT_SECONDS, ""
            log.info("child.started", child=self.name, pid=self.process.pid)
            if self._stopping.is_set():
                self.process.terminate()
            watching = asyncio.create_task(self._watch(self.process, ours))
            try:
                return await self.process.wait()
            finally:
                watching.cancel()
                await asyncio.wait({watching})
                self.is_ready = False
                self._notified_at = time.monotonic()
                self.progress.set()
                self.on_exit()

    async def _start(self, descriptor: int) -> asyncio.subprocess.Process:
        self.is_starting = True
        inherited = {name: value for name, value in os.environ.items() if name not in self.hidden}
        environment = child_environment(descriptor, self.watchdog, inherited)
        try:
            # A session of its own: Ctrl-C in a terminal reaches only the supervisor, which stops the children in order.
            return await asyncio.create_subprocess_exec(*self.command, start_new_session=True, pass_fds=[descriptor], env=environment)
        finally:
            self.is_starting = False

    async def _watch(self, process: asyncio.subprocess.Process, ours: socket.socket) -> None:
        """Receive the child's notifications, and kill it when it hangs."""
        ours.setblocking(False)
        self._channel = ours
        self._await_readiness()
        try:
            while True:
                before, seconds = time.monotonic(), until_next_check(self.watchdog)
                await asyncio.sleep(seconds)
                self.receive()
                if time.monotonic() - before > seconds + self.watchdog / 2:
                    self._notified_at = time.monotonic()  # the supervisor itself stood still, so the silence proves nothing
                elif self.silent_for > self._silence_limit:
                    log.error("child.hung", child=self.name, pid=process.pid, silent_for=round(self.silent_for, 1), status=self.status)
                    process.kill()
                    return
        finally:
            self._end_reader(ours)
            self._channel = None

    def _await_readiness(self) -> None:
        """Receive each notification at once until the child is ready; later ones only say that it makes progress."""
        if self._channel is not None:
            asyncio.get_running_loop().add_reader(self._channel, self.receive)

    def receive(self) -> None:
        """Receive the notifications that the child has sent."""
        if self._channel is None:
            return
        with suppress(OSError):
            while message := self._channel.recv(MAX_MESSAGE_BYTES):
                self._apply(fields(message))
            self._end_reader(self._channel)  # the child has closed its end
        if self.is_ready:
            self._end_reader(self._channel)

    # By its number: asyncio makes a text of what it does not know, and that of a socket asks the kernel for both of its addresses, which
    # was a third of an idle supervisor's time.
    def _end_reader(self, channel: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(channel.fileno())

    def _apply(self, notification: Mapping[str, str]) -> None:
        self._notified_at, self._silence_limit = time.monotonic(), self.watchdog
        self.status = notification.get("STATUS", self.status)
        if "READY" in notification:
            self.is_ready = self._was_ready = True
            self._ready_since = time.monotonic() if self._ready_since is None else self._ready_since
            self.progress.set()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
