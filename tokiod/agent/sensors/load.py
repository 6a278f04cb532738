"""The load and the time since the start: /proc/loadavg, /proc/uptime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.agent.metric import gauge
from tokiod.agent.sensor import Absent, Readings, Sensor

if TYPE_CHECKING:
    from tokiod.agent.tree import Tree

_LOADS = tuple(gauge(f"load_{minutes}min", "1", f"mean length of the run queue of {minutes} min") for minutes in (1, 5, 15))
_THREADS = gauge("threads", "1", "threads that exist")
_UPTIME = gauge("uptime", "s", "time since the node started", "max")


class Load(Sensor):
    """Of the whole node."""

    name = "load"
    metrics = (*_LOADS, _THREADS, _UPTIME)

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._loadavg, self._uptime = tree.hold("proc/loadavg"), tree.hold("proc/uptime")

    def find(self) -> None:
        if not self.tree.exists("proc/loadavg"):
            raise Absent("no /proc/loadavg")

    def sample(self, readings: Readings, now: float) -> None:
        with readings:
            *loads, threads, _ = self._loadavg.read().split()
            for metric, load in zip(_LOADS, loads):
                readings.add(metric, float(load))
            readings.add(_THREADS, int(threads.partition(b"/")[2]))
        with readings:
            readings.add(_UPTIME, float(self._uptime.read().split()[0]))

    def close(self) -> None:
        self._loadavg.close()
        self._uptime.close()
