"""The time that has certainly passed: a clock may be ahead for a while, and nothing may be removed because of it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokiod.clock import Clock

TRUSTED_SECONDS = 6 * 3600
"""For so long a clock must have been past a time. A clock that is years ahead is put right within minutes, where it is noticed at all."""


class PassedTime:
    """Follows a clock. Its steps ahead count once they have lasted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offsets: deque[tuple[float, float]] = deque()

    def __call__(self) -> float:
        """Return the time that has passed, epoch seconds; -inf before the clock was followed for TRUSTED_SECONDS. Called regularly."""
        monotonic = self._clock.monotonic()
        since = monotonic - TRUSTED_SECONDS
        self._offsets.append((monotonic, self._clock.time() - monotonic))
        while len(self._offsets) > 1 and self._offsets[1][0] <= since:
            self._offsets.popleft()
        if self._offsets[0][0] > since:
            return float("-inf")
        return monotonic + min(offset for _, offset in self._offsets)
