"""`tokiod run`: starts the writer and the collectors, restarts what dies, stops them in the order of the flow.

The two share nothing but sockets and the ledger, so one may die and come back without the other. A child that says with its exit
code that a person is needed (another daemon on the archive, a directory that can't be written) ends the daemon instead.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from tokiod.errors import TokiodError

if TYPE_CHECKING:
    from collections.abc import Sequence

log = structlog.get_logger()

NEEDS_A_PERSON = 2
"""A child's exit code: restarting it can't help."""

BACKOFF = 0.1
BACKOFF_MAX = 5.0
STEADY = 1.0
"""Seconds after which a child counts as started: its next death restarts it at once again, only what dies at its start waits longer."""

STOP_LIMIT = 15.0
"""Seconds that a child has for stopping before it is killed."""


@dataclass(slots=True)
class Child:
    """One process of the daemon, kept running until stop()."""

    name: str
    command: Sequence[str]
    process: asyncio.subprocess.Process | None = None
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

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

    async def _once(self) -> int:
        # A session of its own: Ctrl-C in a terminal reaches the supervisor alone, which stops the children in order.
        self.process = await asyncio.create_subprocess_exec(*self.command, start_new_session=True)
        log.info("child.started", child=self.name, pid=self.process.pid)
        if self._stopping.is_set():
            self.process.terminate()
        return await self.process.wait()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return


async def supervise(arguments: Sequence[str]) -> None:
    """Keep the writer and the collectors running until SIGTERM or SIGINT; then collectors first, then the writer.

    arguments: what both get behind their command, e.g. --config FILE. Raises TokiodError when a child needs a person.
    """
    base = [sys.executable, "-m", "tokiod.cli.tokiod"]
    tail = [*arguments, "--parent", str(os.getpid())]
    writer = Child("writer", [*base, "writer", *tail])
    collectors = Child("collectors", [*base, "collectors", *tail])
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    keepers = [asyncio.create_task(child.keep()) for child in (writer, collectors)]
    waiting = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait([*keepers, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        for child in (collectors, writer):
            await child.stop()
    await asyncio.gather(*keepers)
