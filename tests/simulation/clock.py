"""The clock of a simulated machine: wall time that operators and NTP set, over the loop's time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.loop import SimulatedLoop


class MachineClock:
    """The clock of all processes of one machine.

    tick: sleeps take at least so many seconds, as on a busy machine: what looks for work once a second looks less often, and a simulated
    day costs less.
    """

    def __init__(self, loop: SimulatedLoop, epoch: float, tick: float) -> None:
        self.ahead = 0.0
        self.tick = tick
        self._loop = loop
        self._epoch = epoch

    def true_time(self) -> float:
        """Return the time of the world, epoch seconds: that of the sources."""
        return self._epoch + self._loop.now

    def time(self) -> float:
        """Return the wall time of the machine."""
        return self.true_time() + self.ahead

    def monotonic(self) -> float:
        """Return seconds that never jump."""
        return self._loop.now

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        await asyncio.sleep(max(seconds, self.tick) if seconds > 0 else 0)


class WriterClock:
    """The clock of the writer: its monotonic seconds are longer, so that it scans the files as often for each window as at a real site,
    where windows are shorter. window: seconds.
    """

    MIN_SCALE, MAX_SCALE = 30.0, 120.0
    REAL_WINDOW = 60.0

    def __init__(self, machine: MachineClock, window: float) -> None:
        self.time = machine.time
        self.sleep = machine.sleep
        self._machine = machine
        self._scale = min(self.MAX_SCALE, max(self.MIN_SCALE, window / self.REAL_WINDOW))

    def monotonic(self) -> float:
        """Return longer seconds that never jump."""
        return self._machine.monotonic() / self._scale
