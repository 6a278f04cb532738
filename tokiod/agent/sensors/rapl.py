"""Energy of the processors and their memory: /sys/class/powercap (RAPL of Intel and AMD)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tokiod.agent.metric import Metric, counter
from tokiod.agent.sensor import Absent, Readings, Sensor, clean

if TYPE_CHECKING:
    from tokiod.agent.tree import HeldFile, Tree

_METRICS = {
    "package": counter("energy_package", "J", "energy of the processors"),
    "dram": counter("energy_dram", "J", "energy of the memory"),
    "core": counter("energy_core", "J", "energy of the cores, a part of energy_package"),
    "uncore": counter("energy_uncore", "J", "energy of the processors' graphics, a part of energy_package"),
    "psys": counter("energy_platform", "J", "energy of the platform, with the processors"),
}
_ZONE = re.compile(r"intel-rapl(:[0-9a-f]+)+")
"""Linux numbers them in hexadecimal. Zones named intel-rapl-mmio count the same energy by another interface."""


class Rapl(Sensor):
    """Linux 5.10 and newer give it to root alone, because the energy tells what the processor computes (CVE-2020-8694).

    A reading interrupts a core of each processor, so it is not done each second.
    """

    name = "rapl"
    metrics = tuple(_METRICS.values())

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._zones: dict[str, tuple[Metric, str, float, HeldFile]] = {}

    def find(self) -> None:
        names = [name for name in self.tree.names("sys/class/powercap") if _ZONE.fullmatch(name)]
        if not names:
            raise Absent("no zone intel-rapl in /sys/class/powercap")
        for name in self._zones.keys() - set(names):
            self._zones.pop(name)[-1].close()
        for name in names:
            if name not in self._zones and (zone := self._zone(name)):
                self._zones[name] = zone

    def sample(self, readings: Readings, now: float) -> None:
        for metric, instance, joules, file in self._zones.values():
            with readings:
                readings.add(metric, int(file.read()) / 1e6, instance, joules)

    def close(self) -> None:
        for *_, file in self._zones.values():
            file.close()

    def _zone(self, name: str) -> tuple[Metric, str, float, HeldFile] | None:
        path = f"sys/class/powercap/{name}"
        try:
            kind = self.tree.read(f"{path}/name").strip().decode("utf-8", "replace")
            joules = int(self.tree.read(f"{path}/max_energy_range_uj")) / 1e6
        except (OSError, ValueError):
            return None
        metric = _METRICS.get(kind.partition("-")[0])
        return (metric, clean(f"{name.partition(':')[2]}/{kind}"), joules, self.tree.hold(f"{path}/energy_uj")) if metric else None
