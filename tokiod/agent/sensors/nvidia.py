"""GPUs of NVIDIA and their MIG devices, by the official bindings nvidia-ml-py."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tokiod.agent.metric import counter, gauge
from tokiod.agent.sensor import Absent, Readings, Sensor, clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokiod.agent.metric import Metric, Value
    from tokiod.agent.tree import Tree

    Reads = tuple[tuple[Metric, Callable[[Any, Any], Value]], ...]

_BUSY = gauge("gpu_busy", "%", "share of time with a kernel on the busiest GPU", "max")
_USED, _TOTAL = gauge("gpu_mem_used", "B", "memory of the GPUs in use"), gauge("gpu_mem_total", "B", "memory of the GPUs")
_POWER, _ENERGY = gauge("gpu_power", "W", "power of the GPUs"), counter("gpu_energy", "J", "energy of the GPUs (Volta and newer)")
_TEMPERATURE = gauge("gpu_temperature", "degC", "temperature of the hottest GPU", "max")
_CLOCK = gauge("gpu_clock", "MHz", "clock of the fastest GPU", "max")
_MIG_DEVICES = gauge("gpu_mig_devices", "1", "MIG devices of the GPUs in MIG mode")

_MEMORY: Reads = (
    (_USED, lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used),
    (_TOTAL, lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total),
)
_BOARD: Reads = (
    (_POWER, lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3),
    (_TEMPERATURE, lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
    (_CLOCK, lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
    (_ENERGY, lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3),
)
_GPU: Reads = ((_BUSY, lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu), *_MEMORY, *_BOARD)


class Nvidia(Sensor):
    """An instance is the UUID of a GPU, or of a MIG device. What a model does not support is asked once and is no value.

    The driver reports no utilisation of a GPU in MIG mode, nor of its MIG devices, which come and go. Their memory is read, not that of the
    GPU, which would count it twice. Power, temperature, clock and energy are those of the GPU.
    """

    name = "nvidia"
    metrics = (*(metric for metric, _ in _GPU), _MIG_DEVICES)

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._nvml: Any = None
        self._gpus: dict[str, Any] = {}
        self._parts: dict[str, dict[str, Any]] = {}
        self._unsupported: set[tuple[str, str]] = set()
        self._faults: list[tuple[str, Any]] = []

    def find(self) -> None:
        if not self.tree.exists("dev/nvidiactl"):
            raise Absent("no /dev/nvidiactl")
        if self._nvml is None:
            self._begin()
        found = {uuid: self._mig_devices(uuid, gpu) for uuid, gpu in self._gpus.items()}
        self._parts = {uuid: parts for uuid, parts in found.items() if parts is not None}

    def sample(self, readings: Readings, now: float) -> None:
        while self._faults:
            self._drop(readings, *self._faults.pop())
        for uuid, gpu in self._gpus.items():
            parts = self._parts.get(uuid)
            self._read(readings, uuid, gpu, _GPU if parts is None else _BOARD)
            if parts is not None:
                readings.add(_MIG_DEVICES, len(parts), uuid)
                for part, device in parts.items():
                    self._read(readings, part, device, _MEMORY)

    def close(self) -> None:
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._nvml = None

    def _begin(self) -> None:
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

    def _mig_devices(self, uuid: str, gpu: Any) -> dict[str, Any] | None:
        """Return the MIG devices of a GPU by UUID; None if it is not in MIG mode, or this driver or model has no such mode."""
        nvml = self._nvml
        try:
            current, _pending = nvml.nvmlDeviceGetMigMode(gpu)
            if current != nvml.NVML_DEVICE_MIG_ENABLE:
                return None
            most = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
        except nvml.NVMLError:
            return None
        return dict(self._each_mig_device(uuid, gpu, most))

    def _each_mig_device(self, uuid: str, gpu: Any, most: int) -> Iterator[tuple[str, Any]]:
        """Yield UUID and handle. `most` can exist, any number may be free, and a handle is invalid once its device is destroyed."""
        for index in range(most):
            if (found := self._mig_device(uuid, gpu, index)) is not None:
                yield found

    def _mig_device(self, uuid: str, gpu: Any, index: int) -> tuple[str, Any] | None:
        try:
            device = self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
            return clean(self._nvml.nvmlDeviceGetUUID(device)), device
        except self._nvml.NVMLError as error:
            if error.value != self._nvml.NVML_ERROR_NOT_FOUND:
                self._faults.append((f"{uuid}, MIG device {index}", error))
            return None

    def _read(self, readings: Readings, uuid: str, device: Any, reads: Reads) -> None:
        for metric, read in reads:
            if (uuid, metric.name) not in self._unsupported:
                with readings:
                    self._add(readings, uuid, device, metric, read)

    def _add(self, readings: Readings, uuid: str, device: Any, metric: Metric, read: Callable[[Any, Any], Value]) -> None:
        try:
            readings.add(metric, read(self._nvml, device), uuid)
        except self._nvml.NVMLError as error:
            if error.value == self._nvml.NVML_ERROR_NOT_SUPPORTED:
                self._unsupported.add((uuid, metric.name))
            else:
                # A GPU that fell off the bus, a MIG device that was destroyed, or a driver being replaced.
                self._drop(readings, uuid, error)

    def _drop(self, readings: Readings, what: str, error: Any) -> None:
        is_forbidden = error.value == self._nvml.NVML_ERROR_NO_PERMISSION
        readings.drop("no permission" if is_forbidden else "unreadable", f"{what}: {error}")
