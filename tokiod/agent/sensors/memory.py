"""Memory: /proc/meminfo."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tokiod.agent.metric import gauge
from tokiod.agent.sensor import Absent, Readings, Sensor

if TYPE_CHECKING:
    from tokiod.agent.tree import Tree

_LINE = re.compile(rb"^([\w()]+): +(\d+)(?: kB)?$", re.MULTILINE)
_IN_KIB = {
    b"MemTotal": gauge("mem_total", "B", "memory of the node"),
    b"MemFree": gauge("mem_free", "B", "memory not used at all"),
    b"MemAvailable": gauge("mem_available", "B", "memory that programs could get without swapping (Linux 3.14)"),
    b"Buffers": gauge("mem_buffers", "B", "cache of block devices"),
    b"Cached": gauge("mem_cached", "B", "page cache, with shared memory"),
    b"SwapCached": gauge("swap_cached", "B", "pages that are in memory and in swap"),
    b"Active": gauge("mem_active", "B", "memory used recently"),
    b"Inactive": gauge("mem_inactive", "B", "memory not used recently"),
    b"Unevictable": gauge("mem_unevictable", "B", "memory that cannot be evicted"),
    b"Mlocked": gauge("mem_locked", "B", "memory locked by mlock"),
    b"Dirty": gauge("mem_dirty", "B", "data that waits to be written to disk"),
    b"Writeback": gauge("mem_writeback", "B", "data that is being written to disk"),
    b"AnonPages": gauge("mem_anon", "B", "memory of programs"),
    b"AnonHugePages": gauge("mem_anon_huge", "B", "of mem_anon, in huge pages"),
    b"Mapped": gauge("mem_mapped", "B", "mapped files"),
    b"Shmem": gauge("mem_shared", "B", "shared memory and tmpfs"),
    b"Slab": gauge("mem_slab", "B", "the kernel's own caches"),
    b"SReclaimable": gauge("mem_slab_reclaimable", "B", "of mem_slab, what can be reclaimed"),
    b"KernelStack": gauge("mem_kernel_stack", "B", "stacks of the kernel"),
    b"PageTables": gauge("mem_page_tables", "B", "page tables"),
    b"CommitLimit": gauge("mem_commit_limit", "B", "what programs may allocate in strict accounting"),
    b"Committed_AS": gauge("mem_committed", "B", "memory that programs have asked for"),
    b"SwapTotal": gauge("swap_total", "B", "swap space"),
    b"SwapFree": gauge("swap_free", "B", "swap space not used"),
    b"HardwareCorrupted": gauge("mem_corrupted", "B", "memory taken out of use after hardware errors"),
}  # fmt: skip
_IN_HUGE_PAGES = {
    b"HugePages_Total": gauge("huge_pages_total", "B", "memory reserved for huge pages"),
    b"HugePages_Free": gauge("huge_pages_free", "B", "huge pages not used"),
}


class Memory(Sensor):
    """A line that this kernel does not have is no value; a file without any known line is malformed."""

    name = "memory"
    metrics = (*_IN_KIB.values(), *_IN_HUGE_PAGES.values())

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._meminfo = tree.hold("proc/meminfo")

    def find(self) -> None:
        if not self.tree.exists("proc/meminfo"):
            raise Absent("no /proc/meminfo")

    def sample(self, readings: Readings, now: float) -> None:
        with readings:
            found = dict(_LINE.findall(self._meminfo.read()))
            if b"MemTotal" not in found:
                raise ValueError("no line MemTotal in /proc/meminfo")
            present = [key for key in _IN_KIB if key in found]
            metrics = [_IN_KIB[key] for key in present]
            readings.add_all(metrics, [(metric.name, "") for metric in metrics], [int(found[key]) * 1024 for key in present])
            for key, metric in _IN_HUGE_PAGES.items():
                if key in found:
                    readings.add(metric, int(found[key]) * int(found[b"Hugepagesize"]) * 1024)

    def close(self) -> None:
        self._meminfo.close()
