"""The writer and the collectors together: started, asked how they do, given another configuration, stopped in the order of the flow."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from tokiod.errors import TokiodError
from tokiod.supervisor import subreaper as orphans
from tokiod.supervisor.child_process import Child
from tokiod.supervisor.control_socket import Process
from tokiod.supervisor.metrics_snapshot import Health

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = ("writer", "collectors")
"""In the order in which they start; they stop in the other."""


class Children:
    """Both processes, each kept running by a task. spared: other children, which are not ours to end."""

    def __init__(self, watchdog: float) -> None:
        self._watchdog = watchdog
        self._ones: list[Child] = []
        self.keepers: list[asyncio.Task[None]] = []
        self.spared: frozenset[int] = frozenset()

    def start(self, arguments: Sequence[str]) -> None:
        """Start both; arguments: what they get behind their commands."""
        base, tail = [sys.executable, "-m", "tokiod.cli.tokiod"], [*arguments, "--parent", str(os.getpid())]
        starts = {child.name: child.starts for child in self._ones}
        self._ones = [
            Child(name, [*base, name, *tail], self._watchdog, starts=starts.get(name, 0), bereaved=self._bereaved) for name in NAMES
        ]
        self.keepers = [asyncio.create_task(child.keep()) for child in self._ones]

    async def stop(self) -> None:
        """Stop the collectors, then the writer. Raises TokiodError if one of them had needed a person."""
        for child in reversed(self._ones):
            await child.stop()
        await asyncio.gather(*self.keepers)

    async def give_up(self) -> None:
        """Stop both, whatever they had needed."""
        with suppress(TokiodError):
            await self.stop()
        await asyncio.gather(*self.keepers, return_exceptions=True)

    async def reload(self) -> None:
        """Have both read their configuration again. Raises TokiodError where one takes too long."""
        for child in self._ones:
            await child.reload()

    def reap(self) -> None:
        """Let orphans go that have ended, but at a moment when one of our own can't be told from them."""
        if not any(child.is_starting for child in self._ones):
            orphans.reap(self._pids())

    def _bereaved(self) -> None:
        if any(child.is_starting for child in self._ones):
            asyncio.get_running_loop().call_later(0.1, self._bereaved)
        else:
            orphans.end(self._pids())

    def _pids(self) -> set[int]:
        return {*self.spared, *(child.process.pid for child in self._ones if child.process is not None)}

    @property
    def have_failed(self) -> bool:
        """Whether one of them needs a person."""
        return any(keeper.done() for keeper in self.keepers)

    @property
    def are_ready(self) -> bool:
        """Whether both do their work."""
        return all(child.is_ready for child in self._ones)

    @property
    def are_alive(self) -> bool:
        """Whether both make progress."""
        return all(child.is_alive for child in self._ones)

    def sentence(self) -> str:
        """Say how they do."""
        return "; ".join(f"{child.name}: {child.status or ('running' if child.is_ready else 'starting')}" for child in self._ones)

    def health(self) -> Health:
        """Tell how they do to whoever restarts and pages; from any thread."""
        hanging = (f"the {child.name} tells of no progress for {child.silent_for:.0f} s" for child in self._ones if not child.is_alive)
        starting = (f"the {child.name} is starting" for child in self._ones if not child.is_ready)
        restarts = {child.name: child.restarts for child in self._ones}
        return Health(self.are_alive, self.are_ready, next(hanging, "") or next(starting, ""), restarts)

    def processes(self) -> list[Process]:
        """Tell of each."""
        return [
            Process(child.name, child.pid, child.is_ready, child.is_alive, round(child.silent_for, 3), child.restarts, child.status)
            for child in self._ones
        ]
