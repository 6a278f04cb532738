"""What this node does on its Lustre mounts: the files llite.*.stats.

snapshot_time             1510950459.772792457 secs.nsecs
read_bytes                1 samples [bytes] 4194304 4194304 4194304      (minimum, maximum, sum, from 2.13 on a sum of squares)
open                      136 samples [regs]                             ([usecs] with the same four numbers from 2.13 on)
"""

from __future__ import annotations

from tokiod.agent.metric import Metric, counter
from tokiod.agent.sensor import Absent, Readings, Sensor, clean
from tokiod.agent.tree import HeldFile, Tree, why

PLACES = ("proc/fs/lustre/llite", "sys/kernel/debug/lustre/llite", "sys/fs/lustre/llite")
"""Up to 2.11 the files are in /proc, from 2.12 on in debugfs, which only root can enter."""

_READ, _WRITTEN = counter("lustre_read", "B", "bytes that programs read"), counter("lustre_written", "B", "bytes that programs wrote")
_READS, _WRITES = counter("lustre_reads", "1", "calls of read"), counter("lustre_writes", "1", "calls of write")
_CALLS = {
    name: counter(f"lustre_{name}", "1", f"calls of {name}")
    for name in ("open", "close", "getattr", "setattr", "fsync", "unlink", "mkdir", "rmdir", "mknod", "rename", "readdir", "statfs", "seek")
}
_BYTES = {"read_bytes": (_READS, _READ), "write_bytes": (_WRITES, _WRITTEN)}
_SUM = 6


class LustreClient(Sensor):
    """An instance is the name of a mount, such as scratch-ffff88105db50000: another mount of the file system counts from zero."""

    name = "lustre_client"
    metrics = (_READ, _WRITTEN, _READS, _WRITES, *_CALLS.values())

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._mounts: dict[str, HeldFile] = {}

    def find(self) -> None:
        found, refused = {}, ""
        for place in PLACES:
            try:
                found.update(
                    {name: f"{place}/{name}/stats" for name in self.tree.names(place) if self.tree.exists(f"{place}/{name}/stats")}
                )
            except OSError as error:  # noqa: PERF203 - three places
                refused = f"; /{place}: {why(error)}"
        for name in self._mounts.keys() - found.keys():
            self._mounts.pop(name).close()
        for name in found.keys() - self._mounts.keys():
            self._mounts[name] = self.tree.hold(found[name])
        if not found:
            raise Absent(f"no Lustre mount, or its statistics are for root alone{refused}")

    def sample(self, readings: Readings, now: float) -> None:
        for name, file in self._mounts.items():
            with readings:
                lines = file.read().splitlines()
                if not lines or not lines[0].startswith(b"snapshot_time"):
                    raise ValueError(f"the statistics of {clean(name)} do not begin with snapshot_time")
                for line in lines[1:]:
                    with readings:
                        _add(readings, clean(name), line.split())

    def close(self) -> None:
        for file in self._mounts.values():
            file.close()


def _add(readings: Readings, mount: str, words: list[bytes]) -> None:
    key = words[0].decode("utf-8", "replace")
    if key in _BYTES:
        calls, total = _BYTES[key]
        count, octets = int(words[1]), int(words[_SUM])
        readings.add(calls, count, mount)
        readings.add(total, octets, mount)
    elif key in _CALLS:
        metric: Metric = _CALLS[key]
        readings.add(metric, int(words[1]), mount)
