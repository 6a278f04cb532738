"""A scene whose processes are killed and frozen, and which remembers when its sources did not run."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from tokiod.simulator.scene import Scene
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokiod.simulator.scene import Process
    from tokiod.simulator.sources import Source

FOREVER = 2**40
"""Epoch seconds."""


@dataclass(slots=True)
class FaultyScene(Scene):
    """A scene of faults: its daemon and its sources are killed, frozen and started again."""

    _dead: dict[str, list[Window]] = field(default_factory=dict)

    def start_source(self, source: Source) -> None:
        """Start a source again and wait until it answers."""
        self._simulators[source.name] = self._simulator(source)
        self._await(source)
        *before, last = self._dead[source.name]
        self._dead[source.name] = [*before, Window(last.start, ceil(self.clock.time()))]

    def kill_source(self, source: Source) -> None:
        """SIGKILL a source."""
        self._dead.setdefault(source.name, []).append(Window(int(self.clock.time()), FOREVER))
        self._simulators[source.name].kill()
        self._simulators[source.name].wait()

    @contextmanager
    def stopped(self, source: Source) -> Iterator[None]:
        """Freeze a source: its clients wait."""
        self._simulators[source.name].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._simulators[source.name].send_signal(signal.SIGCONT)

    def kill_daemon(self) -> None:
        """SIGKILL the supervisor. Its children end with it."""
        if self._daemon is not None:
            self._daemon.kill()
            self._daemon.wait()

    @contextmanager
    def frozen(self, process: Process) -> Iterator[bool]:
        """Freeze a process of the daemon. Yields False if it does not run. It may be killed meanwhile."""
        pid = self.pid(process)
        if pid is None:
            yield False
            return
        _signal(pid, signal.SIGSTOP)
        try:
            yield True
        finally:
            _signal(pid, signal.SIGCONT)

    def memory(self, process: Process | None = None) -> float:
        """Return the anonymous resident memory of the daemon's processes, or of one process, in MB; 0 if it does not run."""
        pids = self.processes() if process is None else [pid for pid in [self.pid(process)] if pid is not None]
        return sum(map(_anonymous, pids)) / 1024

    def dead(self, source: Source) -> Sequence[Window]:
        """Return when a source did not run."""
        return self._dead.get(source.name, ())


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _anonymous(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon:")), 0)
