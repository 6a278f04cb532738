"""The clock is an argument: the daemon's, a simulation's, a test's (tokiod.testing.FakeClock)."""

from __future__ import annotations

import time as _time
from typing import Protocol

import msgspec


class Clock(Protocol):
    """Wall time in UTC epoch seconds, monotonic time, and sleep."""

    def time(self) -> float:
        """Return the wall time, UTC epoch seconds."""
        ...

    def monotonic(self) -> float:
        """Return seconds that pass as time() does but never jump."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep for a span of this clock's seconds."""
        ...


async def _sleep(seconds: float) -> None:
    import asyncio  # noqa: PLC0415 - 30 ms, which commands that only read the time need not spend

    await asyncio.sleep(max(0.0, seconds))


class SystemClock:
    """The machine's clock."""

    def time(self) -> float:
        """Return the wall time, UTC epoch seconds."""
        return _time.time()  # noqa: TID251 - the one place

    def monotonic(self) -> float:
        """Return the machine's monotonic clock."""
        return _time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        await _sleep(seconds)


class SimulatedClock(msgspec.Struct, frozen=True):
    """A clock that stood at `epoch` when the machine's clock stood at `origin`, and runs `rate` times as fast.

    It is a function of the machine's clock alone, so every process of a simulation, restarted ones too, sees the same time.
    """

    epoch: float
    origin: float
    rate: float

    def time(self) -> float:
        """Return the simulated wall time, UTC epoch seconds."""
        return self.epoch + (_time.time() - self.origin) * self.rate  # noqa: TID251 - the one place

    def monotonic(self) -> float:
        """Return simulated seconds since the machine's boot."""
        return _time.monotonic() * self.rate

    async def sleep(self, seconds: float) -> None:
        """Sleep for a span of simulated seconds."""
        await _sleep(seconds / self.rate)

    def __str__(self) -> str:
        return f"{self.epoch}@{self.origin}x{self.rate}"

    @classmethod
    def parse(cls, text: str) -> SimulatedClock:
        """Read back what str() wrote: EPOCH@ORIGINxRATE.

        Raises ValueError for anything else.
        """
        epoch, _, rest = text.partition("@")
        origin, _, rate = rest.partition("x")
        return cls(float(epoch), float(origin), float(rate))


MIN_JUMP_SECONDS = 1.0
"""A smaller change of the wall clock against the monotonic clock, between two readings, is slewing."""


class JumpDetector:
    """Detects jumps of the wall clock: compares it with the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.time() - clock.monotonic()

    def read(self) -> float:
        """Return the seconds by which the wall clock jumped since the last reading, 0.0 without a jump."""
        before = self._clock.monotonic()
        wall = self._clock.time()
        after = self._clock.monotonic()
        jump = wall - after - self._offset
        self._offset = wall - after
        return jump if abs(jump) > MIN_JUMP_SECONDS + (after - before) else 0.0
