"""Page faults, swapping, and the kernel's killing for lack of memory: /proc/vmstat."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from tokiod.agent.metric import counter
from tokiod.agent.sensor import Absent, Readings, Sensor

if TYPE_CHECKING:
    from tokiod.agent.tree import Tree

_LINE = re.compile(rb"^(pgpgin|pgpgout|pswpin|pswpout|pgfault|pgmajfault|oom_kill|numa_miss|thp_fault_alloc) (\d+)$", re.MULTILINE)
_COUNTS = {
    b"pgfault": counter("page_faults", "1", "page faults"),
    b"pgmajfault": counter("major_page_faults", "1", "page faults that read from a disk or file system"),
    b"oom_kill": counter("oom_kills", "1", "processes killed for lack of memory (Linux 4.13)"),
    b"numa_miss": counter("numa_misses", "1", "pages allocated on another NUMA node than intended"),
    b"thp_fault_alloc": counter("huge_page_faults", "1", "faults that got a huge page"),
}
_IN_KIB = {
    b"pgpgin": counter("paged_in", "B", "bytes read from block devices"),
    b"pgpgout": counter("paged_out", "B", "bytes written to block devices"),
}
_IN_PAGES = {
    b"pswpin": counter("swapped_in", "B", "bytes read from swap"),
    b"pswpout": counter("swapped_out", "B", "bytes written to swap"),
}


class Paging(Sensor):
    """A line that this kernel does not have is no value."""

    name = "paging"
    metrics = (*_COUNTS.values(), *_IN_KIB.values(), *_IN_PAGES.values())

    def __init__(self, tree: Tree, page_bytes: int = 0) -> None:
        super().__init__(tree)
        page_bytes = page_bytes or os.sysconf("SC_PAGE_SIZE")
        self._factors = [(_COUNTS, 1), (_IN_KIB, 1024), (_IN_PAGES, page_bytes)]
        self._vmstat = tree.hold("proc/vmstat")

    def find(self) -> None:
        if not self.tree.exists("proc/vmstat"):
            raise Absent("no /proc/vmstat")

    def sample(self, readings: Readings, now: float) -> None:
        with readings:
            found = dict(_LINE.findall(self._vmstat.read()))
            if b"pgfault" not in found:
                raise ValueError("no line pgfault in /proc/vmstat")
            for metrics, factor in self._factors:
                for key in metrics.keys() & found.keys():
                    readings.add(metrics[key], int(found[key]) * factor)

    def close(self) -> None:
        self._vmstat.close()
