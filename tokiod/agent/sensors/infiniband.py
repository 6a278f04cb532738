"""Ports of InfiniBand, Omni-Path and RoCE adapters: /sys/class/infiniband."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.agent.metric import Metric, counter
from tokiod.agent.sensor import Absent, Readings, Sensor, clean

if TYPE_CHECKING:
    from tokiod.agent.tree import HeldFile, Tree

WORD_BYTES = 4
"""The ports count data in words of four octets (Linux: Documentation/ABI/stable/sysfs-class-infiniband)."""

_COUNTERS = {
    "port_rcv_data": (counter("fabric_received", "B", "bytes received"), WORD_BYTES, 32),
    "port_xmit_data": (counter("fabric_sent", "B", "bytes sent"), WORD_BYTES, 32),
    "port_rcv_packets": (counter("fabric_packets_received", "1", "packets received"), 1, 32),
    "port_xmit_packets": (counter("fabric_packets_sent", "1", "packets sent"), 1, 32),
    "port_xmit_wait": (counter("fabric_send_waits", "1", "ticks during which data waited for credits"), 1, 32),
    "port_rcv_errors": (counter("fabric_receive_errors", "1", "packets received with errors"), 1, 16),
    "port_xmit_discards": (counter("fabric_send_drops", "1", "packets dropped before sending"), 1, 16),
    "symbol_error": (counter("fabric_symbol_errors", "1", "symbols received with errors"), 1, 16),
    "link_downed": (counter("fabric_link_downs", "1", "times that the link went down"), 1, 8),
}
"""Metric, factor and the fewest bits that the counter has: those of InfiniBand's PortCounters, which stop when they are full."""

_WIDE_BITS = 32, 64
"""What the counters of newer adapters have."""
_EXTENDED = "{}_64"
"""Old drivers have the counters of 64 bits in a directory of their own, counters_ext."""
_HARDWARE = {"port_rcv_data": "rx_bytes", "port_xmit_data": "tx_bytes", "port_rcv_packets": "rx_pkts", "port_xmit_packets": "tx_pkts"}
"""What adapters without PortCounters (AWS's EFA) count, of 64 bits and in bytes."""
_NOT_COUNTED = b"N/A"
"""What a port without a performance manager, such as iWARP's, answers for ever."""


class Infiniband(Sensor):
    """An instance is adapter/port. A counter that this adapter does not have is no value.

    For each counter the driver asks the adapter's firmware, so it is not done each second.
    """

    name = "infiniband"
    metrics = tuple(metric for metric, *_ in _COUNTERS.values())

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._counters: dict[str, tuple[Metric, int, frozenset[int], str, HeldFile]] = {}

    def find(self) -> None:
        found = self._found()
        for path in self._counters.keys() - found.keys():
            self._counters.pop(path)[-1].close()
        for path in sorted(found.keys() - self._counters.keys()):
            self._counters[path] = (*found[path], self.tree.hold(path))
        if not self._counters:
            raise Absent("no port with counters in /sys/class/infiniband")

    def sample(self, readings: Readings, now: float) -> None:
        for path, (metric, factor, full, instance, file) in list(self._counters.items()):
            with readings:
                text = file.read()
                if text.startswith(_NOT_COUNTED):
                    self._counters.pop(path)[-1].close()
                elif (value := int(text)) in full:
                    readings.drop("saturated", f"{instance} {metric.name}")
                else:
                    readings.add(metric, value * factor, instance)

    def close(self) -> None:
        for *_, file in self._counters.values():
            file.close()

    def _found(self) -> dict[str, tuple[Metric, int, frozenset[int], str]]:
        found = {}
        for adapter in self.tree.names("sys/class/infiniband"):
            for port in self.tree.names(f"sys/class/infiniband/{adapter}/ports"):
                directory = f"sys/class/infiniband/{adapter}/ports/{port}"
                files = {kind: set(self.tree.names(f"{directory}/{kind}")) for kind in ("counters_ext", "counters", "hw_counters")}
                for name, (metric, factor, bits) in _COUNTERS.items():
                    candidates = (
                        ("counters_ext", _EXTENDED.format(name), factor, (64,)),
                        ("counters", name, factor, (bits, *_WIDE_BITS)),
                        ("hw_counters", _HARDWARE.get(name), 1, (64,)),
                    )
                    for kind, file, times, widths in candidates:
                        if file in files[kind] and self._is_counted(path := f"{directory}/{kind}/{file}"):
                            full = frozenset((1 << width) - 1 for width in widths)
                            found[path] = metric, times, full, clean(f"{adapter}/{port}")
                            break
        return found

    def _is_counted(self, path: str) -> bool:
        try:
            return path in self._counters or not self.tree.read(path).startswith(_NOT_COUNTED)
        except OSError:
            # It is counted as such when it is sampled.
            return True
