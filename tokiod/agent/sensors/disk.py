"""Local disks: /proc/diskstats."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tokiod.agent.metric import counter, gauge
from tokiod.agent.sensor import Absent, Readings, Sensor, clean

if TYPE_CHECKING:
    from tokiod.agent.tree import Tree

SECTOR_BYTES = 512
"""The kernel's unit in this file, whatever the disk's sectors are."""

_MILLISECONDS_WRAP = (1 << 32) / 1000
"""The times are unsigned 32-bit milliseconds in all kernels."""

_READS, _READ_BYTES = counter("disk_reads", "1", "reads completed"), counter("disk_read", "B", "bytes read")
_WRITES, _WRITTEN_BYTES = counter("disk_writes", "1", "writes completed"), counter("disk_written", "B", "bytes written")
_BUSY = counter("disk_busy", "s", "time during which the disk had requests")
_QUEUED = gauge("disk_queue", "1", "requests in progress")

_NOT_A_DISK = re.compile(r"(loop|ram|zram|dm-|md|sr|fd|nbd|drbd)\d")
_PARTITION = re.compile(r"(?:[shv]d[a-z]+|xvd[a-z]+)\d+$|(?:nvme\d+n\d+|mmcblk\d+)p\d+$|nvme\d+c\d+n\d+")
_FIELDS = 14


class Disk(Sensor):
    """Whole disks. Partitions and stacked devices (dm, md) would count the same bytes again."""

    name = "disk"
    metrics = (_READS, _READ_BYTES, _WRITES, _WRITTEN_BYTES, _BUSY, _QUEUED)

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._diskstats = tree.hold("proc/diskstats")

    def find(self) -> None:
        if not self.tree.exists("proc/diskstats"):
            raise Absent("no /proc/diskstats")
        if not any(_is_disk(line) for line in self.tree.read("proc/diskstats").splitlines()):
            raise Absent("no disk in /proc/diskstats")

    def sample(self, readings: Readings, now: float) -> None:
        with readings:
            for line in self._diskstats.read().splitlines():
                with readings:
                    if _is_disk(line):
                        _add(readings, line)

    def close(self) -> None:
        self._diskstats.close()


def _is_disk(line: bytes) -> bool:
    name = line.split(None, 3)[2].decode("utf-8", "replace")
    return not _NOT_A_DISK.match(name) and not _PARTITION.match(name)


def _add(readings: Readings, line: bytes) -> None:
    fields = line.split()
    if len(fields) < _FIELDS:
        raise ValueError(f"a line of /proc/diskstats has {len(fields)} fields")
    name = clean(fields[2])
    reads, _, sectors_read, _, writes, _, sectors_written, _, queued, busy, _ = map(int, fields[3:14])
    readings.add(_READS, reads, name)
    readings.add(_READ_BYTES, sectors_read * SECTOR_BYTES, name)
    readings.add(_WRITES, writes, name)
    readings.add(_WRITTEN_BYTES, sectors_written * SECTOR_BYTES, name)
    readings.add(_QUEUED, queued, name)
    readings.add(_BUSY, busy / 1000, name, _MILLISECONDS_WRAP)
