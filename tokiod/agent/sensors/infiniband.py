"""Ports of InfiniBand, Omni-Path and RoCE adapters: /sys/class/infiniband."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.agent.metric import Metric, counter
from tokiod.agent.sensor import Absent, Readings, Sensor, clean

if TYPE_CHECKING:
    from tokiod.agent.tree import HeldFile, Tree

WORD_BYTES = 4
"""The ports count data in words of four octets (Linux: Documentation/ABI/stable/sysfs-class-infiniband)."""

SATURATED = (1 << 32) - 1
"""Old adapters have counters of 32 bits that stop here."""

_COUNTERS = {
    "port_rcv_data": (counter("fabric_received", "B", "bytes received"), WORD_BYTES),
    "port_xmit_data": (counter("fabric_sent", "B", "bytes sent"), WORD_BYTES),
    "port_rcv_packets": (counter("fabric_packets_received", "1", "packets received"), 1),
    "port_xmit_packets": (counter("fabric_packets_sent", "1", "packets sent"), 1),
    "port_xmit_wait": (counter("fabric_send_waits", "1", "ticks during which data waited for credits"), 1),
    "port_rcv_errors": (counter("fabric_receive_errors", "1", "packets received with errors"), 1),
    "port_xmit_discards": (counter("fabric_send_drops", "1", "packets dropped before sending"), 1),
    "symbol_error": (counter("fabric_symbol_errors", "1", "symbols received with errors"), 1),
    "link_downed": (counter("fabric_link_downs", "1", "times that the link went down"), 1),
}
_EXTENDED = "{}_64"
"""Old drivers have the counters of 64 bits in a directory of their own, counters_ext."""


class Infiniband(Sensor):
    """An instance is adapter/port. A counter that this adapter does not have is no value.

    For each counter the driver asks the adapter's firmware, so it is not done each second.
    """

    name = "infiniband"
    metrics = tuple(metric for metric, _ in _COUNTERS.values())

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._counters: dict[str, tuple[Metric, int, str, HeldFile]] = {}

    def find(self) -> None:
        found = {path: what for path, *what in self._found()}
        for path in self._counters.keys() - found.keys():
            self._counters.pop(path)[-1].close()
        for path in sorted(found.keys() - self._counters.keys()):
            name, instance = found[path]
            self._counters[path] = (*_COUNTERS[name], instance, self.tree.hold(path))
        if not self._counters:
            raise Absent("no port with counters in /sys/class/infiniband")

    def sample(self, readings: Readings, now: float) -> None:
        for path, (metric, factor, instance, file) in list(self._counters.items()):
            with readings:
                text = file.read()
                if text.startswith(b"N/A"):
                    # A port without a performance manager, such as iWARP's, answers so for ever.
                    self._counters.pop(path)[-1].close()
                elif (value := int(text)) == SATURATED:
                    readings.drop("saturated", f"{instance} {metric.name}")
                else:
                    readings.add(metric, value * factor, instance)

    def close(self) -> None:
        for *_, file in self._counters.values():
            file.close()

    def _found(self) -> list[tuple[str, str, str]]:
        found = []
        for adapter in self.tree.names("sys/class/infiniband"):
            for port in self.tree.names(f"sys/class/infiniband/{adapter}/ports"):
                directory = f"sys/class/infiniband/{adapter}/ports/{port}"
                plain, extended = set(self.tree.names(f"{directory}/counters")), set(self.tree.names(f"{directory}/counters_ext"))
                for name in _COUNTERS:
                    if (wide := _EXTENDED.format(name)) in extended:
                        found.append((f"{directory}/counters_ext/{wide}", name, clean(f"{adapter}/{port}")))
                    elif name in plain:
                        found.append((f"{directory}/counters/{name}", name, clean(f"{adapter}/{port}")))
        return found
