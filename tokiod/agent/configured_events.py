"""The perf events that a node's configuration names: their metrics, and which of them this machine counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.agent.metric import JOB_PREFIX, counter
from tokiod.agent.perf_event import EVENTS, EventCounts, fitting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokiod.agent.perf_event import Event
    from tokiod.agent.sensor import Readings
    from tokiod.agent.tree import Tree

NODE_EVENTS = {name: counter(f"perf_{name}", event.unit, event.about) for name, event in EVENTS.items() if name != "task_clock"}
"""Of all processes. On a whole CPU the task clock counts idle time too."""
JOB_EVENTS = {
    name: counter(f"{JOB_PREFIX}perf_{name}", event.unit, f"{event.about}, since the agent met the job") for name, event in EVENTS.items()
}
"""Of a job's cgroup."""
_ONLINE = "sys/devices/system/cpu/online"


class ConfiguredEvents:
    """The events that are named, as far as this machine has them. `absent` is why none is counted, "" if some are."""

    def __init__(self, tree: Tree, names: Sequence[str]) -> None:
        self.absent = "not configured"
        self._tree, self._names = tree, names
        self._groups: list[list[Event]] = []
        self._unreported: dict[str, str] = {}

    def find(self) -> None:
        """Find which of them this machine counts. Raise ValueError for a list of CPUs that is malformed."""
        if not self._names or self._groups:
            return
        absent = without = ""
        try:
            self._groups, missing = fitting((EVENTS[name] for name in self._names), self.cpus()[0])
        except PermissionError as error:
            absent = f"{error.filename}: {error.strerror}: it needs CAP_PERFMON, as in dropins/agent-perf.conf"
        except OSError as error:
            absent = f"{error.filename}: {error.strerror}"
        else:
            without = f"this machine does not count {', '.join(missing)}" if missing else ""
            absent = "" if self._groups else without
        if absent != self.absent:
            self.absent = absent
            self._unreported = {"no perf events": absent} if absent else {"event not supported": without} if without else {}

    def cpus(self) -> list[int]:
        """Return the CPUs that are online. Raise OSError, ValueError."""
        spans = (span.partition("-") for span in self._tree.read(_ONLINE).decode("ascii", "replace").strip().split(","))
        return [cpu for first, _, last in spans for cpu in range(int(first), int(last or first) + 1)]

    def opened(self, directory: str = "") -> EventCounts:
        """Begin to count, all processes or those of a cgroup. Raise OSError, ValueError."""
        return EventCounts(self._groups, self.cpus(), directory)

    def report(self, readings: Readings) -> None:
        """Count once what this machine does not count."""
        while self._unreported:
            readings.drop(*self._unreported.popitem())


def report_waiting(readings: Readings, counts: EventCounts) -> None:
    """Count what got no counter of the processor, because other programs have them all."""
    if counts.waiting:
        readings.drop("no free counter", ", ".join(counts.waiting))
