"""Whether the wall clock jumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokiod.clock import Clock

JUMP = 1.0
"""Seconds by which the wall clock must part from the monotonic one between two looks: less is slewing."""


class Jumps:
    """Compares a clock's two times."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.time() - clock.monotonic()

    def look(self) -> float:
        """Return by how many seconds the wall clock has jumped since the last look, 0.0 where it has not."""
        before = self._clock.monotonic()
        wall = self._clock.time()
        after = self._clock.monotonic()
        jump = wall - after - self._offset
        self._offset = wall - after
        return jump if abs(jump) > JUMP + (after - before) else 0.0
