"""Perf events of the node, where the configuration names some: what its processors and its kernel count of all processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.agent.configured_events import NODE_EVENTS, ConfiguredEvents
from tokiod.agent.sensor import Absent, Readings, Sensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokiod.agent.perf_event import EventCounts
    from tokiod.agent.tree import Tree


class Perf(Sensor):
    """Of all processes on all CPUs, from the moment at which the sensor begins. Those of jobs are read by the sensor jobs."""

    name = "perf"
    metrics = tuple(NODE_EVENTS.values())

    def __init__(self, tree: Tree, events: Sequence[str] = ()) -> None:
        """events: their names."""
        super().__init__(tree)
        self.metrics = tuple(NODE_EVENTS[name] for name in events)
        self._events = ConfiguredEvents(self.tree, events)
        self._counts: EventCounts | None = None

    def find(self) -> None:
        self._events.find()
        if self._events.absent:
            raise Absent(self._events.absent)
        if self._counts is None:
            self._counts = self._events.opened()
        else:
            self._counts.follow(self._events.cpus())

    def sample(self, readings: Readings, now: float) -> None:
        self._events.report(readings)
        if self._counts is not None:
            counts, behind = self._counts.read(), self._counts.behind()
            for name, value in counts.items():
                # A count that lacks the time of one CPU would have it later, all at once.
                if name not in behind:
                    readings.add(NODE_EVENTS[name], value)
            if behind:
                readings.drop("no free counter", ", ".join(behind))

    def close(self) -> None:
        if self._counts is not None:
            self._counts.close()
            self._counts = None
