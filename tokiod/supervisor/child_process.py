"""One process of the daemon: started, watched, started again when it dies or hangs, and stopped when asked."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from tokiod.errors import TokiodError
from tokiod.runtime.sd_notify import LONGEST, child_environment, fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

log = structlog.get_logger()

NEEDS_A_PERSON = 2
"""A child's exit code: restarting it can't help."""

BACKOFF = 0.1
BACKOFF_MAX = 5.0
STEADY = 1.0
"""Seconds after which a child counts as started: its next death restarts it at once again, only what dies at its start waits longer."""

STOP_LIMIT = 15.0
"""Seconds that a child has for stopping before it is killed."""

WATCHDOG = 30.0
"""Seconds without a word of progress after which a child counts as hung, where systemd doesn't say."""

START_LIMIT = 600.0
"""Seconds until a child's first word: a writer that rebuilds a lost ledger reads all files before it."""

RELOAD_LIMIT = 60.0
"""Seconds that a child has for taking over another configuration."""

LOOKS = 8
"""Looks at a child within the time that it may be silent."""


@dataclass(slots=True)
class Child:
    """A process that says over a socket pair that it makes progress, kept running until stop().

    It is killed when it has said nothing for `watchdog` seconds. starts: how often it was started; status: its last sentence; is_ready:
    whether it does its work; is_starting: whether its pid is not known yet; bereaved: called when it has died.
    progress: set when it has become ready, has reloaded, or has died.
    """

    name: str
    command: Sequence[str]
    watchdog: float = WATCHDOG
    process: asyncio.subprocess.Process | None = None
    starts: int = 0
    status: str = ""
    is_ready: bool = False
    is_starting: bool = False
    bereaved: Callable[[], None] = field(default=lambda: None)
    progress: asyncio.Event = field(default_factory=asyncio.Event)
    _patience: float = START_LIMIT
    _heard: float = 0.0
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pid(self) -> int | None:
        """Its process, while there is one."""
        return self.process.pid if self.process is not None and self.process.returncode is None else None

    @property
    def restarts(self) -> int:
        """How often it was started again."""
        return max(0, self.starts - 1)

    @property
    def silent_for(self) -> float:
        """Seconds since its last word, or its start."""
        return time.monotonic() - self._heard

    @property
    def is_alive(self) -> bool:
        """Whether it makes progress, or is just being started again; a child that not even SIGKILL ends is neither."""
        return self.silent_for < self._patience + self.watchdog / 2

    async def keep(self) -> None:
        """Run the child and restart it, later and later while it keeps dying, until stop().

        Raises TokiodError when the child says that a person is needed.
        """
        backoff = BACKOFF
        while not self._stopping.is_set():
            started = time.monotonic()
            code = await self._once()
            if self._stopping.is_set():
                return
            if code == NEEDS_A_PERSON:
                raise TokiodError(f"the {self.name} can't run; its message is above")
            if time.monotonic() - started > STEADY:
                backoff = BACKOFF
            log.warning("child.died", child=self.name, code=code, restart_in=round(backoff, 1))
            await self._pause(backoff)
            backoff = min(2 * backoff, BACKOFF_MAX)

    async def stop(self) -> None:
        """Ask the child to stop and wait until it has; kill it when it takes too long."""
        self._stopping.set()
        if self.process is None or self.process.returncode is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_LIMIT):
                await self.process.wait()
        except TimeoutError:
            log.warning("child.killed", child=self.name, after=STOP_LIMIT)
            self.process.kill()
            await self.process.wait()

    async def reload(self) -> None:
        """Have it read its configuration again, and wait until it has. One that dies reads it when it is started again.

        What is just starting may die of the signal, and is not waited for. Raises TokiodError where it takes too long.
        """
        if self.process is None or self.process.returncode is not None:
            return
        was_ready, self.is_ready = self.is_ready, False
        self.progress.clear()
        self.process.send_signal(signal.SIGHUP)
        if not was_ready:
            return
        try:
            async with asyncio.timeout(RELOAD_LIMIT):
                await self.progress.wait()
        except TimeoutError:
            raise TokiodError(f"the {self.name} has not taken over the configuration within {RELOAD_LIMIT:.0f} s; see the log") from None

    async def _once(self) -> int:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                self.process = await self._start(theirs.fileno())
            self.starts += 1
            self._heard, self._patience, self.status = time.monotonic(), START_LIMIT, ""
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
                self._heard = time.monotonic()
                self.progress.set()
                self.bereaved()

    async def _start(self, talks: int) -> asyncio.subprocess.Process:
        self.is_starting = True
        try:
            # A session of its own: Ctrl-C in a terminal reaches the supervisor alone, which stops the children in order.
            return await asyncio.create_subprocess_exec(
                *self.command, start_new_session=True, pass_fds=[talks], env=child_environment(talks, self.watchdog, os.environ)
            )
        finally:
            self.is_starting = False

    async def _watch(self, process: asyncio.subprocess.Process, ours: socket.socket) -> None:
        """Listen to the child, and kill it when it hangs."""
        ours.setblocking(False)
        loop, rest = asyncio.get_running_loop(), self.watchdog / LOOKS
        loop.add_reader(ours, self._listen, ours)
        try:
            while True:
                before = time.monotonic()
                await asyncio.sleep(rest)
                self._listen(ours)
                if time.monotonic() - before > rest + self.watchdog / 2:
                    self._heard = time.monotonic()  # we stood still ourselves: nobody can be blamed for it
                elif self.silent_for > self._patience:
                    log.error("child.hung", child=self.name, pid=process.pid, silent_for=round(self.silent_for, 1), status=self.status)
                    process.kill()
                    return
        finally:
            loop.remove_reader(ours)

    def _listen(self, ours: socket.socket) -> None:
        with suppress(OSError):
            while message := ours.recv(LONGEST):
                self._hear(fields(message))
            asyncio.get_running_loop().remove_reader(ours)  # it is gone, or says nothing more

    def _hear(self, said: Mapping[str, str]) -> None:
        self._heard, self._patience = time.monotonic(), self.watchdog
        self.status = said.get("STATUS", self.status)
        if "READY" in said:
            self.is_ready = True
            self.progress.set()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
