"""All processes of the daemon together: start, reload and report on them, stop them in the order of the data path."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from tokiod.errors import TokiodError
from tokiod.runtime.process_setup import python_command
from tokiod.supervisor import subreaper
from tokiod.supervisor.child_process import ChildProcess
from tokiod.supervisor.control_socket import Process
from tokiod.supervisor.health import Health

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

NAMES = ("feed", "hub", "relay", "writer", "collectors")
"""In the order in which they start; they stop in reverse. The hub and the relay run only where the configuration needs them."""
EXTERNAL = frozenset({"feed", "hub", "relay"})
"""Those that external clients reach: the daemon goes on without them."""
ORPHAN_RETRY_SECONDS = 0.1


class ChildGroup:
    """The processes, each kept running by a task. preexisting: pids of other children of this process, which are left alone."""

    def __init__(self, watchdog: float) -> None:
        self._watchdog = watchdog
        self._children: list[ChildProcess] = []
        self.keepers: list[asyncio.Task[None]] = []
        self.preexisting: frozenset[int] = frozenset()

    def start(self, arguments: Sequence[str], secrets: frozenset[str] = frozenset(), without: Collection[str] = ()) -> None:
        """Start all. arguments: of their commands; secrets: environment variables that only the collectors get; without: names."""
        tail = [*arguments, "--parent", str(os.getpid())]
        restarts = {child.name: child.restarts for child in self._children}
        self._children = [
            ChildProcess(
                name,
                python_command("tokiod.cli.tokiod", name, *tail),
                self._watchdog,
                restarts=restarts.get(name, 0),
                hidden=frozenset() if name == "collectors" else secrets,
                is_essential=name not in EXTERNAL,
                on_exit=self._end_orphans,
            )
            for name in NAMES
            if name not in without
        ]
        self.keepers = [asyncio.create_task(child.keep()) for child in self._children]

    async def stop(self) -> None:
        """Stop the collectors, then the writer, then what external clients reach. Raises TokiodError if one of them needed an operator."""
        for child in reversed(self._children):
            await child.stop()
        await asyncio.gather(*self.keepers)

    async def stop_quietly(self) -> None:
        """Stop all, also if one of them needed an operator."""
        with suppress(TokiodError, OSError):
            await self.stop()
        await asyncio.gather(*self.keepers, return_exceptions=True)

    async def reload(self) -> None:
        """Make all read their configuration again. Raises TokiodError where one takes too long."""
        for child in self._children:
            await child.reload()

    def receive(self) -> None:
        """Receive what all have reported since the last time."""
        for child in self._children:
            child.receive()

    def reap_orphans(self) -> None:
        """Reap orphans that have ended, except while the pid of a child is unknown."""
        if not any(child.is_starting for child in self._children):
            subreaper.reap_orphans(self._pids())

    def _end_orphans(self) -> None:
        if any(child.is_starting for child in self._children):
            asyncio.get_running_loop().call_later(ORPHAN_RETRY_SECONDS, self._end_orphans)
        else:
            subreaper.end_orphans(self._pids())

    def _pids(self) -> set[int]:
        return {*self.preexisting, *(child.process.pid for child in self._children if child.process is not None)}

    @property
    def have_failed(self) -> bool:
        """Whether one of them needs an operator."""
        return any(keeper.done() for keeper in self.keepers)

    @property
    def are_ready(self) -> bool:
        """Whether all do their work."""
        return all(child.is_ready for child in self._children)

    @property
    def are_alive(self) -> bool:
        """Whether all make progress."""
        return all(child.is_alive for child in self._children)

    def status(self) -> str:
        """Return the state of all, in one line."""
        states = ((child.name, child.status or ("running" if child.is_ready else "starting")) for child in self._children)
        return "; ".join(f"{name}: {state}" for name, state in states)

    def health(self) -> Health:
        """Return the health of all; from any thread."""
        hung = (f"the {child.name} has reported no progress for {child.silent_for:.0f} s" for child in self._children if not child.is_alive)
        starting = (f"the {child.name} is starting" for child in self._children if not child.is_ready)
        restarts = {child.name: child.restarts for child in self._children}
        return Health(self.are_alive, self.are_ready, next(hung, "") or next(starting, ""), restarts)

    def processes(self) -> list[Process]:
        """Return all, as the control socket reports them."""
        return [
            Process(child.name, child.pid, child.is_ready, child.is_alive, round(child.silent_for, 3), child.restarts, child.status)
            for child in self._children
        ]
