"""Temperatures, fans and power of the machine's own sensors: /sys/class/hwmon, /sys/class/thermal."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from tokiod.agent.devices import Meter, measured_devices, outermost
from tokiod.agent.metric import Metric, gauge
from tokiod.agent.sensor import Absent, Readings, Sensor, clean

if TYPE_CHECKING:
    from tokiod.agent.tree import HeldFile, Tree

_TEMPERATURE = Metric("temperature", "degC", "gauge", "temperature of the hottest sensor", "max", may_be_negative=True)
_FAN = gauge("fan", "1/min", "revolutions of the fastest fan", "max")
_POWER = gauge("power", "W", "power that the machine's sensors measure")
_INPUTS = {"temp": (_TEMPERATURE, 1e3), "fan": (_FAN, 1.0), "power": (_POWER, 1e6)}
_NAME = re.compile(r"(temp|fan)(\d+)_input|(power)(\d+)_(?:average|input)")
COLDEST, HOTTEST = -55.0, 200.0
"""Sensors that are not connected report values such as -128 or 255 degC."""
_ALL_ONES = {((1 << bits) - 1) * unit for bits in (32, 64) for unit in (1, 1000, 1_000_000)}
"""What a meter says that has no reading, in microwatts: the firmware's unknown value of 32 or 64 bits, in its own unit."""


class Hwmon(Sensor):
    """An instance is device/label, such as coretemp.0/Core 3: the numbers of hwmon change from start to start."""

    name = "hwmon"
    metrics = (_TEMPERATURE, _FAN, _POWER)

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._inputs: dict[str, tuple[str, Metric, float, HeldFile]] = {}
        self._of_acpi: set[str] = set()
        """Where meters of the firmware are: of a machine that runs, none measures nothing."""

    def find(self) -> None:
        found = {path: what for path, *what in (*self._of_hwmon(), *self._of_thermal())}
        for path in self._inputs.keys() - found.keys():
            self._inputs.pop(path)[-1].close()
        for path in sorted(found.keys() - self._inputs.keys()):
            instance, kind = found[path]
            self._inputs[path] = (instance, *_INPUTS[kind], self.tree.hold(path))
        if not self._inputs:
            raise Absent("no sensor in /sys/class/hwmon and /sys/class/thermal")

    def sample(self, readings: Readings, now: float) -> None:
        for instance, metric, factor, file in self._inputs.values():
            with readings:
                raw = int(file.read())
                value = raw / factor
                if metric is _TEMPERATURE and not COLDEST < value < HOTTEST:
                    readings.drop("not connected", f"{instance}: {value} degC")
                elif metric is _POWER and raw in _ALL_ONES:
                    readings.drop("no reading", f"{instance}: {value} W")
                elif raw == 0 and file.path in self._of_acpi:
                    readings.drop("not measuring", f"{instance}: 0 W")
                else:
                    readings.add(metric, value, instance)

    def close(self) -> None:
        for *_, file in self._inputs.values():
            file.close()

    def _of_hwmon(self) -> list[tuple[str, str, str]]:
        found = []
        for monitor in self.tree.names("sys/class/hwmon"):
            # Drivers before Linux 3.10 put their files into the directory of the device.
            for directory in (f"sys/class/hwmon/{monitor}", f"sys/class/hwmon/{monitor}/device"):
                inputs: dict[tuple[str, str], str] = {}
                for name in self.tree.names(directory):
                    if match := _NAME.fullmatch(name):
                        # The average comes first, where there is a momentary value too.
                        inputs.setdefault((match[1] or match[3], match[2] or match[4]), f"{directory}/{name}")
                found += [(path, monitor, self._label(directory, *which), which[0]) for which, path in inputs.items()]
        return self._named(self._without_parts(found))

    def _label(self, directory: str, kind: str, number: str) -> str:
        name = f"{directory}/{kind}{number}"
        return self._text(f"{name}_label") or self._text(f"{name}_oem_info") or f"{kind}{number}"

    def _without_parts(self, found: list[tuple[str, str, str, str]]) -> list[tuple[str, str, str, str]]:
        """Return what was found without the meters of power that another one contains."""
        meters = [self._meter(path, monitor, label) for path, monitor, label, kind in found if kind == "power"]
        self._of_acpi = {self.tree.path(meter.path) for meter in meters if meter.is_of_acpi}
        left_out = {meter.path for meter in meters} - {meter.path for meter in outermost(meters)}
        return [one for one in found if one[0] not in left_out]

    def _meter(self, path: str, monitor: str, label: str) -> Meter:
        directory = f"sys/class/hwmon/{monitor}"
        device = os.path.realpath(self.tree.path(f"{directory}/device"))
        measures = measured_devices(self.tree, f"{directory}/device") or measured_devices(self.tree, directory)
        return Meter(path, monitor, self._text(f"{directory}/name") or self._text(f"{directory}/device/name"), label, device, measures)

    def _named(self, found: list[tuple[str, str, str, str]]) -> list[tuple[str, str, str]]:
        """Return path, instance and kind. Where the device alone is not unique (three radios of one card), the chip's name is added."""
        names = {monitor: self._device(f"sys/class/hwmon/{monitor}") for _, monitor, _, _ in found}
        chips = {monitor: self._text(f"sys/class/hwmon/{monitor}/name") or monitor for monitor in names}
        shared = {monitor for monitor, name in names.items() if list(names.values()).count(name) > 1}
        shown = {monitor: f"{name}.{chips[monitor]}" if monitor in shared else name for monitor, name in names.items()}
        return [(path, f"{shown[monitor]}/{label}", kind) for path, monitor, label, kind in found]

    def _of_thermal(self) -> list[tuple[str, str, str]]:
        zones = (name for name in self.tree.names("sys/class/thermal") if name.startswith("thermal_zone"))
        paths = ((zone, f"sys/class/thermal/{zone}") for zone in zones)
        return [
            (f"{path}/temp", f"{zone}/{self._text(f'{path}/type')}", "temp") for zone, path in paths if self.tree.exists(f"{path}/temp")
        ]

    def _device(self, directory: str) -> str:
        """Return the name that the device keeps: its address on the bus, else the name of its driver."""
        link = self.tree.path(f"{directory}/device")
        if os.path.islink(link):
            return clean(os.path.basename(os.path.realpath(link)))
        return self._text(f"{directory}/name") or "unknown"

    def _text(self, path: str) -> str:
        try:
            return clean(self.tree.read(path).strip())
        except OSError:
            return ""
