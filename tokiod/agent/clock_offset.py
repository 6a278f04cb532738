"""By how much the clock of a node is ahead of the time since its boot: that changes where the clock is set, and by nothing else.

The time since the boot counts on while the node sleeps, so a sleep sets no clock.
"""

from __future__ import annotations

import time as _time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SAME_MOMENT_SECONDS = 0.1
"""Between two readings of the time since the boot, within which the clock was read in the same moment."""
ATTEMPTS = 10


def seconds_asleep() -> float:
    """Return for how long this node slept since its boot: time.monotonic() does not count that."""
    return _time.clock_gettime(_time.CLOCK_BOOTTIME) - _time.clock_gettime(_time.CLOCK_MONOTONIC)


def clock_offset(time: Callable[[], float], monotonic: Callable[[], float], asleep: Callable[[], float] = seconds_asleep) -> float:
    """Return the clock's time less the time since the boot, of one moment: a process that was stopped between the two reads them again."""
    before, offset = monotonic() + asleep(), 0.0
    for _ in range(ATTEMPTS):
        now = time()
        after = monotonic() + asleep()
        offset = now - after
        if abs(after - before) < SAME_MOMENT_SECONDS:
            break
        before = after
    return offset
