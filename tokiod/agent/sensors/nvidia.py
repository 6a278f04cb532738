"""GPUs of NVIDIA, by the official bindings nvidia-ml-py."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tokiod.agent.metric import counter, gauge
from tokiod.agent.sensor import Absent, Readings, Sensor, clean

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokiod.agent.metric import Metric, Value
    from tokiod.agent.tree import Tree

_BUSY = gauge("gpu_busy", "%", "share of time with a kernel on the busiest GPU", "max")
_USED, _TOTAL = gauge("gpu_mem_used", "B", "memory of the GPUs in use"), gauge("gpu_mem_total", "B", "memory of the GPUs")
_POWER, _ENERGY = gauge("gpu_power", "W", "power of the GPUs"), counter("gpu_energy", "J", "energy of the GPUs (Volta and newer)")
_TEMPERATURE = gauge("gpu_temperature", "degC", "temperature of the hottest GPU", "max")
_CLOCK = gauge("gpu_clock", "MHz", "clock of the fastest GPU", "max")

_READS: tuple[tuple[Metric, Callable[[Any, Any], Value]], ...] = (
    (_BUSY, lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
    (_USED, lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used),
    (_TOTAL, lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total),
    (_POWER, lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3),
    (_TEMPERATURE, lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
    (_CLOCK, lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
    (_ENERGY, lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3),
)


class Nvidia(Sensor):
    """An instance is the UUID of a GPU. What a model does not support is asked once and is no value."""

    name = "nvidia"
    metrics = tuple(metric for metric, _ in _READS)

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._nvml: Any = None
        self._gpus: dict[str, Any] = {}
        self._unsupported: set[tuple[str, str]] = set()

    def find(self) -> None:
        if not self.tree.exists("dev/nvidiactl"):
            raise Absent("no /dev/nvidiactl")
        if self._nvml is not None:
            return
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            raise Absent("the package nvidia-ml-py is not installed") from None
        try:
            nvml.nvmlInit()
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
            self._gpus = {clean(nvml.nvmlDeviceGetUUID(handle)): handle for handle in handles}
        except nvml.NVMLError as error:
            raise Absent(f"the driver reports: {error}") from None
        self._nvml = nvml

    def sample(self, readings: Readings, now: float) -> None:
        for uuid, gpu in self._gpus.items():
            for metric, read in _READS:
                if (uuid, metric.name) not in self._unsupported:
                    with readings:
                        self._add(readings, uuid, gpu, metric, read)

    def close(self) -> None:
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._nvml = None

    def _add(self, readings: Readings, uuid: str, gpu: Any, metric: Metric, read: Callable[[Any, Any], Value]) -> None:
        try:
            readings.add(metric, read(self._nvml, gpu), uuid)
        except self._nvml.NVMLError as error:
            if error.value == self._nvml.NVML_ERROR_NOT_SUPPORTED:
                self._unsupported.add((uuid, metric.name))
            else:
                # A GPU that fell off the bus, or a driver being replaced.
                readings.drop("unreadable", f"{uuid}: {error}")
