"""Runs the sensors, so that none can stop the others."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

from tokiod.agent.sensor import RARE_SECONDS, TICK_SECONDS, Absent, Readings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tokiod.agent.sensor import Sensor

FIND_SECONDS = 60.0
"""Between two searches for devices: a disk or a mount may come later."""


class Sampler:
    """The sensors of this node. `absent` has the reason for each that finds nothing to read."""

    def __init__(self, sensors: Iterable[Sensor]) -> None:
        self.sensors = list(sensors)
        self.absent: dict[str, str] = {}
        self._found = float("-inf")
        self._present: list[Sensor] = []
        self._each_tick: list[Sensor] = []
        self._turn = float("nan")
        self._sampled: dict[Sensor, float] = {}

    def sample(self, now: float, *, is_last: bool = False) -> dict[str, Readings]:
        """Sample each sensor that is due, all for the last time, and return the readings of each by its name.

        `now` is of a clock that never jumps, in seconds.
        """
        found = self.find(now)
        self.sample_of((sensor for sensor in self._present if is_last or self._is_due(sensor, now)), now, found)
        return found

    def sample_of(self, sensors: Iterable[Sensor], now: float, found: dict[str, Readings]) -> None:
        """Sample some sensors, and add their readings to what was found."""
        for sensor in sensors:
            self._sampled[sensor] = now
            readings = found.setdefault(sensor.name, Readings())
            _guarded(sensor.sample, readings, readings, now)

    def read_ahead(self, now: float, time: float) -> tuple[list[Sensor], list[Sensor]]:
        """Read each second what can be understood later; return the sensors that did, and those that must be sampled now.

        time: in seconds since the epoch. The sensors that are not sampled each second are due when it has reached a multiple of their
        period, so the last sample of each in a row is at the row's end.
        """
        ahead: list[Sensor] = []
        rest: list[Sensor] = []
        if is_rare := time // RARE_SECONDS != self._turn:
            self._turn = time // RARE_SECONDS
            rest = [sensor for sensor in self._present if sensor.period > TICK_SECONDS]
        for sensor in self._each_tick:
            try:
                (ahead if sensor.read_ahead(now, is_rare=is_rare) else rest).append(sensor)
            except Exception:  # noqa: BLE001, PERF203 - sampling it counts what is wrong
                rest.append(sensor)
        return ahead, rest

    def find(self, now: float) -> dict[str, Readings]:
        """Look for what there is to read, if that is due; return what could not be read then, by the sensors' names."""
        found: dict[str, Readings] = {}
        if now - self._found >= FIND_SECONDS:
            self._found = now
            for sensor in self.sensors:
                readings = found.setdefault(sensor.name, Readings())
                try:
                    _guarded(sensor.find, readings)
                    self.absent.pop(sensor.name, None)
                except Absent as reason:
                    self.absent[sensor.name] = str(reason)
            self._present = [sensor for sensor in self.sensors if sensor.name not in self.absent]
            self._each_tick = [sensor for sensor in self._present if sensor.period <= TICK_SECONDS]
        return found

    def understand(self, sensor: Sensor) -> Readings:
        """Return the readings of what a sensor read ahead."""
        readings = Readings()
        _guarded(sensor.understand, readings, readings)
        return readings

    def again(self, sensor: Sensor, readings: Readings, now: float) -> None:
        """Sample one sensor although it is not due: its command may have ended."""
        _guarded(sensor.sample, readings, readings, now)

    def wait(self, seconds: float, clock: Callable[[], float], others: Iterable[int] = ()) -> dict[str, Readings]:
        """Sleep, but return early with the readings of a sensor that is not due and has something to report, such as the end of a job.

        others: descriptors that end the sleep too, once they are readable.
        """
        # Not select(): with perf events a process has more than the 1,024 descriptors that it knows.
        waiting = select.poll()
        for fd in (*self.filenos(), *others):
            waiting.register(fd, select.POLLIN)
        return self.heed([fd for fd, _ in waiting.poll(1000 * max(0.0, seconds))], clock())

    def filenos(self) -> list[int]:
        """Return the descriptors that are readable when heed() has something to report."""
        return [fd for sensor in self._present if (fd := sensor.fileno()) is not None]

    def heed(self, ready: Iterable[int], now: float) -> dict[str, Readings]:
        """Take what sensors report between their samples. ready: descriptors that are readable; those of others do not matter."""
        sensors = {fd: sensor for sensor in self._present if (fd := sensor.fileno()) is not None}
        found: dict[str, Readings] = {}
        for sensor in (sensors[fd] for fd in ready if fd in sensors):
            readings = found[sensor.name] = Readings()
            _guarded(sensor.heed, readings, readings, now)
        return found

    def close(self) -> None:
        """Release what the sensors hold."""
        for sensor in self.sensors:
            sensor.close()

    def _is_due(self, sensor: Sensor, now: float) -> bool:
        return now - self._sampled.get(sensor, float("-inf")) > sensor.period - TICK_SECONDS / 2


def _guarded(call: Callable[..., None], readings: Readings, *arguments: object) -> None:
    """Call a part of a sensor; what it raises is counted, except that there is nothing to read."""
    try:
        with readings:
            call(*arguments)
    except Absent:
        raise
    except Exception as error:  # noqa: BLE001 - a fault in one sensor must not stop the others: it is counted and reported
        readings.drop("fault in the sensor", f"{type(error).__name__}: {error}")
