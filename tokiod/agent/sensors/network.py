"""Network interfaces and TCP's retransmissions: /proc/net/dev, /proc/net/snmp."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from tokiod.agent.devices import interfaces
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
_METRICS = tuple(_COLUMNS.values())
_RETRANSMITTED = counter("tcp_retransmitted", "1", "TCP segments sent again")
_TCP = re.compile(rb"^Tcp: (.*)\nTcp: (.*)$", re.MULTILINE)
_FIELDS = 16


class Network(Sensor):
    """Interfaces of a device. Bridges, bonds, VLANs and containers' interfaces would count the same bytes again (tokiod.agent.devices)."""

    name = "network"
    metrics = (*_COLUMNS.values(), _RETRANSMITTED)

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._dev, self._snmp = tree.hold("proc/net/dev"), tree.hold("proc/net/snmp")
        self._devices: dict[bytes, tuple[tuple[str, str], ...]] = {}

    def find(self) -> None:
        names = map(os.fsencode, interfaces(self.tree))
        self._devices = {name: tuple((metric.name, clean(name)) for metric in _METRICS) for name in names}
        if not self._devices:
            raise Absent("no interface of a device in /sys/class/net")

    def sample(self, readings: Readings, now: float) -> None:
        with readings:
            for line in self._dev.read().splitlines()[2:]:
                with readings:
                    name, _, numbers = line.partition(b":")
                    if keys := self._devices.get(name.strip()):
                        _add(readings, keys, numbers.split())
        with readings:
            if (lines := _TCP.search(self._snmp.read())) is None:
                raise ValueError("no two lines Tcp: in /proc/net/snmp")
            names, counts = lines[1].split(), lines[2].split()
            readings.add(_RETRANSMITTED, int(counts[names.index(b"RetransSegs")]))

    def close(self) -> None:
        self._dev.close()
        self._snmp.close()


def _add(readings: Readings, keys: tuple[tuple[str, str], ...], numbers: list[bytes]) -> None:
    if len(numbers) < _FIELDS:
        raise ValueError(f"the line of {keys[0][1]} in /proc/net/dev has {len(numbers)} fields")
    readings.add_all(_METRICS, keys, [int(numbers[column]) for column in _COLUMNS])
