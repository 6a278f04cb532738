"""CPU time, context switches and processes: /proc/stat."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tokiod.agent.metric import counter, gauge
from tokiod.agent.sensor import Absent, Readings, Sensor

if TYPE_CHECKING:
    from tokiod.agent.tree import Tree

IDLE_SLACK_SECONDS = 3.0
"""idle and iowait fall when the kernel corrects them; node_exporter uses the same bound."""

_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
_TIMES = tuple(counter(f"cpu_{state}", "s", f"time of all CPUs in the state {state}", IDLE_SLACK_SECONDS) for state in _STATES)
_COUNTS = {
    b"intr": counter("interrupts", "1", "interrupts served"),
    b"ctxt": counter("context_switches", "1", "context switches"),
    b"processes": counter("forks", "1", "processes and threads created"),
    b"procs_running": gauge("processes_running", "1", "runnable threads"),
    b"procs_blocked": gauge("processes_blocked", "1", "threads that wait for a disk or file system"),
}


class Cpu(Sensor):
    """Of the whole node. `user` contains `guest`, `nice` contains `guest_nice`."""

    name = "cpu"
    metrics = (*_TIMES, *_COUNTS.values())
    period = 1.0

    def __init__(self, tree: Tree, ticks: int = 0) -> None:
        super().__init__(tree)
        self._stat = tree.hold("proc/stat")
        self._ticks = ticks or os.sysconf("SC_CLK_TCK")

    def find(self) -> None:
        if not self.tree.exists("proc/stat"):
            raise Absent("no /proc/stat")

    def sample(self, readings: Readings, now: float) -> None:
        with readings:
            text = self._stat.read()
            with readings:
                for metric, ticks in zip(_TIMES, _line(text, b"cpu").split()):
                    readings.add(metric, int(ticks) / self._ticks)
            for key, metric in _COUNTS.items():
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
    end = text.find(b"\n", begin)
    if end < 0:
        raise ValueError(f"the line {key.decode()} of /proc/stat has no end")
    return text[begin + len(key) + 1 : end].strip()
