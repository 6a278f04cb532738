"""CPU time, context switches and processes: /proc/stat."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from tokiod.agent.metric import counter, gauge
from tokiod.agent.sensor import Absent, Readings, Sensor

if TYPE_CHECKING:
    from tokiod.agent.metric import Metric
    from tokiod.agent.tree import Tree

IDLE_SLACK_SECONDS = 3.0
"""idle and iowait fall when the kernel corrects them; node_exporter uses the same bound."""

_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
_TIMES = tuple(counter(f"cpu_{state}", "s", f"time of all CPUs in the state {state}", IDLE_SLACK_SECONDS) for state in _STATES)
_COUNTS = {
    b"intr": counter("interrupts", "1", "interrupts served"),
    b"ctxt": counter("context_switches", "1", "context switches"),
    b"processes": counter("forks", "1", "processes and threads created"),
}
_RUNNING = gauge("processes_running", "1", "runnable threads")
_BLOCKED = gauge("processes_blocked", "1", "threads that wait for a disk or file system")
_GAUGES = {b"procs_running": _RUNNING, b"procs_blocked": _BLOCKED}


_KEYS = tuple((metric.name, "") for metric in _TIMES)
_STATES_LINES = re.compile(rb"\nprocs_running (\d{1,9})\nprocs_blocked (\d{1,9})\n")


class Cpu(Sensor):
    """Of the whole node. `user` contains `guest`, `nice` contains `guest_nice`."""

    name = "cpu"
    metrics = (*_TIMES, *_COUNTS.values(), *_GAUGES.values())
    period = 1.0

    def __init__(self, tree: Tree, ticks: int = 0) -> None:
        super().__init__(tree)
        self._stat = tree.hold("proc/stat")
        self._ticks = ticks or os.sysconf("SC_CLK_TCK")
        self._ahead = b""
        self._running = self._blocked = self._samples = 0

    def find(self) -> None:
        if not self.tree.exists("proc/stat"):
            raise Absent("no /proc/stat")

    def sample(self, readings: Readings, now: float) -> None:
        with readings:
            self._parse(readings, self._stat.read(), _GAUGES)

    def read_ahead(self, now: float, *, is_rare: bool) -> bool:
        if is_rare:
            return False
        text = self._stat.read()
        # The last lines but one, in all kernels since 2.6.
        states = _STATES_LINES.match(text, text.rfind(b"\nprocs_running "))
        if states is None:
            return False
        self._ahead = text
        self._running += int(states[1])
        self._blocked += int(states[2])
        self._samples += 1
        return True

    def understand(self, readings: Readings) -> None:
        if self._samples:
            self._parse(readings, self._ahead, {})
            for metric, total in ((_RUNNING, self._running), (_BLOCKED, self._blocked)):
                readings.add(metric, total / self._samples)
                readings.samples[metric.name, ""] = self._samples
            self._running = self._blocked = self._samples = 0

    def _parse(self, readings: Readings, text: bytes, gauges: dict[bytes, Metric]) -> None:
        with readings:
            readings.add_all(_TIMES, _KEYS, [int(ticks) / self._ticks for ticks in _line(text, b"cpu").split()])
        for key, metric in (*_COUNTS.items(), *gauges.items()):
            with readings:
                readings.add(metric, int(_line(text, key).partition(b" ")[0]))

    def close(self) -> None:
        self._stat.close()


def _line(text: bytes, key: bytes) -> bytes:
    """Return what follows the key on its line. Raise ValueError if there is none. The interrupts' long line is not split."""
    if text.startswith(key + b" "):
        begin = 0
    elif (begin := text.find(b"\n" + key + b" ") + 1) == 0:
        raise ValueError(f"no line {key.decode()} in /proc/stat")
    begin += len(key)
    end = text.find(b"\n", begin)
    if end < 0:
        raise ValueError(f"the line {key.decode()} of /proc/stat has no end")
    return text[begin:end].strip()
