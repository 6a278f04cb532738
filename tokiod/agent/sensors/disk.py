"""Local disks: /proc/diskstats."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tokiod.agent.devices import Disks, namespace_of
from tokiod.agent.increase import Sums
from tokiod.agent.metric import Metric, counter, gauge
from tokiod.agent.sensor import Absent, Readings, Sensor, clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokiod.agent.metric import Value
    from tokiod.agent.tree import Tree

    Counts = dict[Metric, Value]

SECTOR_BYTES = 512
"""The kernel's unit in this file, whatever the disk's sectors are."""

_MILLISECONDS_WRAP = (1 << 32) / 1000
"""The times are unsigned 32-bit milliseconds in all kernels."""

_READS, _READ_BYTES = counter("disk_reads", "1", "reads completed"), counter("disk_read", "B", "bytes read")
_WRITES, _WRITTEN_BYTES = counter("disk_writes", "1", "writes completed"), counter("disk_written", "B", "bytes written")
_BUSY = counter("disk_busy", "s", "time during which the disk had requests")
_QUEUED = gauge("disk_queue", "1", "requests in progress")

_FIELDS = 14


class Disk(Sensor):
    """Whole disks. Partitions and stacked devices (dm, md) would count the same bytes again (tokiod.agent.devices)."""

    name = "disk"
    metrics = (_READS, _READ_BYTES, _WRITES, _WRITTEN_BYTES, _BUSY, _QUEUED)

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._diskstats = tree.hold("proc/diskstats")
        self._disks = Disks(tree)
        self._sums: dict[str, Sums[tuple[Metric, str]]] = {}

    def find(self) -> None:
        if not self.tree.exists("proc/diskstats"):
            raise Absent("no /proc/diskstats")
        devices = [_device(line) for line in self.tree.read("proc/diskstats").splitlines()]
        self._disks.forget(but={number for number, _ in devices})
        names = {name for _, name in devices}
        if not any(self._disks.is_disk(*device, names) for device in devices):
            raise Absent("no disk in /proc/diskstats")

    def sample(self, readings: Readings, now: float) -> None:
        with readings:
            found = self._counts(readings, self._diskstats.read().splitlines())
            paths: defaultdict[str, dict[str, Counts]] = defaultdict(dict)
            for name in found.copy():
                if disk := namespace_of(name):
                    paths[disk][name] = found.pop(name)
            self._sums = {disk: self._sums.get(disk) or Sums() for disk in paths}
            for disk, of_paths in paths.items():
                found[disk] = _of_namespace(self._sums[disk], disk, found.get(disk, {}), of_paths)
            for name, counts in found.items():
                for metric, value in counts.items():
                    # Sums over paths don't wrap.
                    readings.add(metric, value, clean(name), _MILLISECONDS_WRAP if metric is _BUSY and name not in paths else 0)

    def close(self) -> None:
        self._diskstats.close()

    def _counts(self, readings: Readings, lines: list[bytes]) -> dict[str, Counts]:
        found: dict[str, Counts] = {}
        devices = [_device(line) for line in lines]
        names = {name for _, name in devices}
        for line, (number, name) in zip(lines, devices):
            with readings:
                if namespace_of(name) or self._disks.is_disk(number, name, names):
                    found[name] = _counts(line)
        return found


def _device(line: bytes) -> tuple[str, str]:
    """Return a line's MAJOR:MINOR and its name, which are empty where the line is cut."""
    fields = line.split(None, 3)
    if len(fields) < 3:  # noqa: PLR2004 - as named
        return "", ""
    return f"{fields[0].decode('ascii', 'replace')}:{fields[1].decode('ascii', 'replace')}", fields[2].decode("utf-8", "backslashreplace")


def _counts(line: bytes) -> Counts:
    fields = line.split()
    if len(fields) < _FIELDS:
        raise ValueError(f"a line of /proc/diskstats has {len(fields)} fields")
    reads, _, sectors_read, _, writes, _, sectors_written, _, queued, busy, _ = map(int, fields[3:14])
    return {
        _READS: reads,
        _READ_BYTES: sectors_read * SECTOR_BYTES,
        _WRITES: writes,
        _WRITTEN_BYTES: sectors_written * SECTOR_BYTES,
        _QUEUED: queued,
        _BUSY: busy / 1000,
    }


def _of_namespace(sums: Sums[tuple[Metric, str]], disk: str, own: Counts, paths: dict[str, Counts]) -> Counts:
    """Return the counts of an NVMe namespace: of each the larger of its own and the sum over its paths; the time of the busiest."""
    parts = {
        path: {(metric, path if metric is _BUSY else ""): value for metric, value in _counters(counts)} for path, counts in paths.items()
    }
    parts[disk] = {(metric, disk): value for metric, value in _counters(own)}
    counted: Counts = {_QUEUED: max(own.get(_QUEUED, 0), sum(counts[_QUEUED] for counts in paths.values()))}
    for (metric, _), value in sums.take(parts).items():
        counted[metric] = max(value, counted.get(metric, 0))
    return counted


def _counters(counts: Counts) -> Iterable[tuple[Metric, Value]]:
    return ((metric, value) for metric, value in counts.items() if metric.kind == "counter")
