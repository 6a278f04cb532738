"""Runs the sensors, so that none can stop the others."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

from tokiod.agent.sensor import Absent, Readings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tokiod.agent.sensor import Sensor

TICK_SECONDS = 1.0
"""Between two calls of sample()."""
FIND_SECONDS = 60.0
"""Between two searches for devices: a disk or a mount may come later."""


class Sampler:
    """The sensors of this node. `absent` has the reason for each that finds nothing to read."""

    def __init__(self, sensors: Iterable[Sensor]) -> None:
        self.sensors = list(sensors)
        self.absent: dict[str, str] = {}
        self._found = float("-inf")
        self._sampled: dict[str, float] = {}

    def sample(self, now: float, *, is_last: bool = False) -> dict[str, Readings]:
        """Sample each sensor that is due, all for the last time, and return the readings of each by its name.

        `now` is of a clock that never jumps, in seconds.
        """
        found: dict[str, Readings] = {}
        if now - self._found >= FIND_SECONDS:
            self._found = now
            self._find(found)
        for sensor in self.sensors:
            is_due = now - self._sampled.get(sensor.name, float("-inf")) > sensor.period - TICK_SECONDS / 2
            if sensor.name not in self.absent and (is_due or is_last):
                self._sampled[sensor.name] = now
                readings = found.setdefault(sensor.name, Readings())
                _guarded(sensor.sample, readings, readings, now)
        return found

    def again(self, sensor: Sensor, readings: Readings, now: float) -> None:
        """Sample one sensor although it is not due: its command may have ended."""
        _guarded(sensor.sample, readings, readings, now)

    def wait(self, seconds: float, clock: Callable[[], float], others: Iterable[int] = ()) -> dict[str, Readings]:
        """Sleep, but return early with the readings of a sensor that is not due and has something to report, such as the end of a job.

        others: descriptors that end the sleep too, once they are readable.
        """
        heeding = {fd: sensor for sensor in self.sensors if sensor.name not in self.absent and (fd := sensor.fileno()) is not None}
        found: dict[str, Readings] = {}
        # Not select(): with perf events a process has more than the 1,024 descriptors that it knows.
        waiting = select.poll()
        for fd in (*heeding, *others):
            waiting.register(fd, select.POLLIN)
        for fd, _ in waiting.poll(1000 * max(0.0, seconds)):
            if fd not in heeding:
                continue
            readings = found[heeding[fd].name] = Readings()
            _guarded(heeding[fd].heed, readings, readings, clock())
        return found

    def close(self) -> None:
        """Release what the sensors hold."""
        for sensor in self.sensors:
            sensor.close()

    def _find(self, found: dict[str, Readings]) -> None:
        for sensor in self.sensors:
            readings = found.setdefault(sensor.name, Readings())
            try:
                _guarded(sensor.find, readings)
                self.absent.pop(sensor.name, None)
            except Absent as reason:
                self.absent[sensor.name] = str(reason)


def _guarded(call: Callable[..., None], readings: Readings, *arguments: object) -> None:
    """Call a part of a sensor; what it raises is counted, except that there is nothing to read."""
    try:
        with readings:
            call(*arguments)
    except Absent:
        raise
    except Exception as error:  # noqa: BLE001 - a fault in one sensor must not stop the others: it is counted and reported
        readings.drop("fault in the sensor", f"{type(error).__name__}: {error}")
