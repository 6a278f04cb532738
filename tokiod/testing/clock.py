"""A clock that a test moves, for tests of tokiod and of other distributions' kinds."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count


class FakeClock:
    """A clock that stands still until advance() moves it; wall and monotonic time move together unless jump() is used."""

    def __init__(self, epoch: float = 1_517_126_400.0) -> None:
        self._time = epoch
        self._monotonic = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    def time(self) -> float:
        """Return the wall time that was set."""
        return self._time

    def monotonic(self) -> float:
        """Return the sum of all advances."""
        return self._monotonic

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an operator or NTP does; sleepers are not affected."""
        self._time += seconds

    async def sleep(self, seconds: float) -> None:
        """Sleep until advance() has moved the clock that far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Move the clock, waking sleepers in order and letting each run before the next."""
        target = self._monotonic + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            due, _, future = heapq.heappop(self._sleepers)
            self._move(due)
            if not future.done():
                future.set_result(None)
            await settle()
        self._move(target)
        await settle()

    def _move(self, monotonic: float) -> None:
        self._time += monotonic - self._monotonic
        self._monotonic = monotonic


async def settle(turns: int = 50) -> None:
    """Let every task that can run do so."""
    for _ in range(turns):
        await asyncio.sleep(0)
