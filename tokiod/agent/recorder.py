"""The samples of the sensors go into the rows of the node: read each second, understood all at once some seconds later.

An agent that wakes up once a second finds nothing of itself in the processor's caches, so the same code takes three times as long as when
it runs again at once. Each second it reads the files, which is when the figures are taken, and no more. Of counters the last text of ten
seconds is parsed, as the increase is the same, and of gauges the value alone. The rows are as if each sample had been understood at once.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tokiod.agent.rows import Rows
    from tokiod.agent.sampler import Sampler
    from tokiod.agent.sensor import Readings, Sensor


class Recorder:
    """The sampler and the rows of this node.

    taken: is called with all readings, by the sensors' names, when they are in the rows; offset: of the clock
    (tokiod.agent.clock_offset); clock_set: is called with the seconds by which the clock was set, when rows were dropped for it.
    """

    def __init__(
        self,
        sampler: Sampler,
        rows: Rows,
        taken: Callable[[Mapping[str, Readings]], None] = lambda _found: None,
        offset: Callable[[], float] = lambda: 0.0,
        clock_set: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self._sampler, self._rows, self._taken = sampler, rows, taken
        self._offset, self._clock_set = offset, clock_set
        self._ahead: dict[Sensor, float] = {}
        self._poll = select.poll()
        self._polled: tuple[int, ...] = ()
        self._filenos: list[int] = []

    def sample(self, now: float, time: float) -> None:
        """Sample the sensors that are due. now: of a clock that never jumps; time: seconds since the epoch."""
        found = self._sampler.find(now)
        ahead, rest = self._sampler.read_ahead(now, time)
        self._ahead.update(dict.fromkeys(ahead, time))
        if found or rest:
            # What was read ahead must not be understood after what is read now.
            self.settle()
            self._sampler.sample_of(rest, now, found)
            self._take(found, time)
            self._filenos = self._sampler.filenos()

    def follow_clock(self) -> None:
        """Drop what was measured before the clock was set. It is called before the clock is read for a sample, and before rows are sent."""
        offset = self._offset()
        if moved := self._rows.moved(offset):
            self.settle()
            self._rows.set_clock(offset)
            self._clock_set(moved)

    def settle(self) -> None:
        """Put all that was read into the rows."""
        ahead, self._ahead = self._ahead, {}
        for sensor, time in ahead.items():
            self._take({sensor.name: self._sampler.understand(sensor)}, time)

    def wait(self, seconds: float, monotonic: Callable[[], float], time: Callable[[], float], others: Iterable[int]) -> bool:
        """Sleep; put what a sensor reports meanwhile, such as the end of a job, into the rows.

        Return whether one of `others`, which are descriptors, is readable.
        """
        wanted = (*self._filenos, *others)
        if wanted != self._polled:
            # Not select(): with perf events a process has more than the 1,024 descriptors that it knows.
            self._poll, self._polled = select.poll(), wanted
            for fd in wanted:
                self._poll.register(fd, select.POLLIN)
        ready = [fd for fd, _ in self._poll.poll(1000 * max(0.0, seconds))]
        if of_sensors := [fd for fd in ready if fd in self._filenos]:
            self.settle()
            found = self._sampler.heed(of_sensors, monotonic())
            self.follow_clock()
            self._take(found, time())
        return len(ready) > len(of_sensors)

    def _take(self, found: Mapping[str, Readings], time: float) -> None:
        self._rows.take(found, time)
        self._taken(found)
