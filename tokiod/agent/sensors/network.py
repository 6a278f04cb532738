"""Network interfaces and TCP's retransmissions: /proc/net/dev, /proc/net/snmp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.agent.metric import counter
from tokiod.agent.sensor import Absent, Readings, Sensor, clean

if TYPE_CHECKING:
    from tokiod.agent.tree import Tree

_COLUMNS = {
    0: counter("net_received", "B", "bytes received"),
    1: counter("net_packets_received", "1", "packets received"),
    2: counter("net_receive_errors", "1", "packets received with errors"),
    3: counter("net_receive_drops", "1", "packets dropped on receipt"),
    8: counter("net_sent", "B", "bytes sent"),
    9: counter("net_packets_sent", "1", "packets sent"),
    10: counter("net_send_errors", "1", "errors on sending"),
    11: counter("net_send_drops", "1", "packets dropped before sending"),
}
_RETRANSMITTED = counter("tcp_retransmitted", "1", "TCP segments sent again")
_FIELDS = 16


class Network(Sensor):
    """Interfaces of a device. Bridges, bonds, VLANs and containers' interfaces would count the same bytes again."""

    name = "network"
    metrics = (*_COLUMNS.values(), _RETRANSMITTED)
    period = 1.0

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._dev, self._snmp = tree.hold("proc/net/dev"), tree.hold("proc/net/snmp")
        self._devices: set[bytes] = set()

    def find(self) -> None:
        self._devices = {name.encode() for name in self.tree.names("sys/class/net") if self.tree.exists(f"sys/class/net/{name}/device")}
        if not self._devices:
            raise Absent("no interface of a device in /sys/class/net")

    def sample(self, readings: Readings, now: float) -> None:
        with readings:
            for line in self._dev.read().splitlines()[2:]:
                with readings:
                    name, _, numbers = line.partition(b":")
                    if name.strip() in self._devices:
                        _add(readings, clean(name.strip()), numbers.split())
        with readings:
            names, counts = (line.split() for line in self._snmp.read().splitlines() if line.startswith(b"Tcp:"))
            readings.add(_RETRANSMITTED, int(counts[names.index(b"RetransSegs")]))

    def close(self) -> None:
        self._dev.close()
        self._snmp.close()


def _add(readings: Readings, name: str, numbers: list[bytes]) -> None:
    if len(numbers) < _FIELDS:
        raise ValueError(f"the line of {name} in /proc/net/dev has {len(numbers)} fields")
    for column, metric in _COLUMNS.items():
        readings.add(metric, int(numbers[column]), name)
