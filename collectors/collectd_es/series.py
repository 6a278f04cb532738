"""Series: numbers for names, and the column of each number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collectors.collectd_es.datasets import COMPLEMENTS, COUNTED, DATASETS, JIFFIES_TYPE, MEANS, METRICS
from tokiod.tts.schema import natural_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray


MAX_NAME_LENGTH = 200
"""Characters of a host's or a device's name: any client may write documents, and a name must not break a file or a message."""


Name = tuple[str, str, str]
"""The name of a series: a dataset, its column, and the core, "" where a column has one series only, or for the mean of all cores."""

JIFFIES = " in jiffies"
"""Ends the core of a series whose values are jiffies per second."""


class Texts(NamedTuple):
    """The texts of a document that tell what is measured."""

    plugin: str
    type: str
    type_instance: str
    plugin_instance: str


@dataclass(frozen=True, slots=True)
class Kind:
    """What documents with the same Texts measure, on any host.

    datasets: the dataset of each field that holds a value; part: the disk or core, "" without one.
    unknown, unusable, unknown_part: reasons why they have no series, "" where that does not apply; fault() returns the first that does.
    """

    datasets: dict[str, str]
    part: str
    is_disk: bool = False
    unknown: str = ""
    unusable: str = ""
    unknown_part: str = ""

    def fault(self, host_fault: str) -> str:
        """Return why a document has no series, or "". host_fault: what Series.host_fault() returned for its host."""
        if self.unknown or host_fault == NO_HOST:
            return self.unknown or host_fault
        return self.unusable or host_fault or self.unknown_part

    def names(self, field: str, hosts: list[str]) -> list[Name]:
        """Return the names of the series that a field of some hosts' documents holds values of."""
        dataset = self.datasets[field]
        if self.is_disk:
            return [(dataset, f"{host}:{self.part}", "") for host in hosts]
        return [(dataset, host, self.part) for host in hosts]


NO_HOST = "no host"
UNUSABLE = "unusable name"
UNKNOWN_HOST, UNKNOWN_DEVICE = "unknown host", "unknown device"
PART_OF_DISKS = "partition, dm or md device"
NOT_PER_CORE = "CPU figure that is not per core"
JIFFIES_COUNTED = "CPU in jiffies"
PERCENTAGE = "set ValuesPercentage true in collectd's plugin cpu"
REMEDIES = {
    "unknown plugin": "disk, memory and cpu are stored; set fields.plugin if another field has it (--plugin-field)",
    "unknown type": "of disks disk_octets and disk_ops are stored, and ValuesAbsolute of memory; or set fields.type (--type-field)",
    "unknown type instance": "set fields.type_instance (--type-instance-field) if another field has it",
    "no type": "set fields.type (--type-field)",
    NO_HOST: "set fields.host (--host-field)",
    UNKNOWN_HOST: "hosts (--hosts) does not match it",
    UNKNOWN_DEVICE: "devices (--devices) does not match it",
    "no device": "set fields.plugin_instance (--plugin-instance-field)",
    PART_OF_DISKS: "its bytes are those of a disk again; set devices to count it",
    NOT_PER_CORE: "set ReportByCpu true, or CalculateAverage true for each host in collectd's aggregation",
    JIFFIES_COUNTED: PERCENTAGE,
}
"""What helps, by reason."""

# The kernel counts what goes through them on the disk below too, and only collectd's host knows which one that is.
_PARTS_OF_DISKS = re.compile(
    r"(?:(?:s|h|v|xv)d[a-z]+|ubd[a-z]+|emcpower[a-z]+)\d+"
    r"|(?:nvme\d+(?:c\d+)?n|mmcblk|nbd|rbd|bcache|md|md_d|loop|zd|pmem|drbd|(?:cciss|ida).c\d+d)\d+p\d+"
    r"|(?:dm-|md|md_d|loop|zd|bcache|drbd|zram|ram)\d+|emcpower[a-z]+|nvme\d+c\d+n\d+"
)

BYTES_RATE, OPS_RATE, IN_JIFFIES, PERCENT, SIZE = range(5)
"""What the samples of a series measure."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The column of each series, at one time.

    columns: of each dataset, in order; places: of each dataset, pairs of series u4[k] and their columns u4[k]. A mean has one pair per
    core, in natural order; other datasets have one pair with all their columns. averages: of means, such pairs of collectd's own means.
    mean, complement: bool[series]; measure: u1[series]; host: u4[series], a number for each host.
    """

    columns: dict[str, tuple[str, ...]]
    places: dict[str, list[tuple[NDArray[np.uint32], NDArray[np.uint32]]]]
    averages: dict[str, list[tuple[NDArray[np.uint32], NDArray[np.uint32]]]]
    mean: NDArray[np.bool_]
    complement: NDArray[np.bool_]
    measure: NDArray[np.uint8]
    host: NDArray[np.uint32]


# Numbers follow the order of arrival, which parse workers and retries change, so no output may depend on them. Columns are assigned when
# batches are made: new names follow the older ones in natural order.
class Series:
    """The names of one source, numbered in order of arrival; shared by all its readers in one process.

    devices: of disks; None for whole disks. counters: documents have counters in the place of rates.
    """

    def __init__(self, hosts: re.Pattern[str] | None = None, devices: re.Pattern[str] | None = None, *, counters: bool = False) -> None:
        self._hosts = hosts
        self._devices = devices
        self._counters = counters
        self._numbers: dict[Name, int] = {}
        self._names: list[Name] = []
        self._columns: dict[str, dict[str, int]] = {dataset: {} for dataset in DATASETS}
        self._layout: Layout | None = None

    def __len__(self) -> int:
        return len(self._names)

    def numbers(self, names: Iterable[Name]) -> list[int]:
        """Return the number of each name, the next one for a new name."""
        known, all_names, found = self._numbers, self._names, list[int]()
        for name in names:
            number = known.get(name)
            if number is None:
                number = known[name] = len(all_names)
                all_names.append(name)
            found.append(number)
        return found

    def names(self, first: int = 0) -> list[Name]:
        """Return the names from number `first` on, for another process's numbers()."""
        return self._names[first:]

    def kind(self, texts: Texts) -> Kind:
        """Return what documents with some texts measure."""
        disk = texts.plugin == "disk"
        fields, unknown = _fields_of(texts)
        unusable = "" if _is_usable(texts) else UNUSABLE
        return Kind(fields, _part(texts), disk, unknown, unusable, self._part_fault(texts))

    def host_fault(self, host: str) -> str:
        """Return why the documents of a host have no series, or ""."""
        if not host:
            return NO_HOST
        if not _is_usable((host,)):
            return UNUSABLE
        return "" if self._hosts is None or self._hosts.fullmatch(host) else UNKNOWN_HOST

    def _part_fault(self, texts: Texts) -> str:
        if texts.plugin == "memory":
            return "unknown plugin instance" if texts.plugin_instance else ""
        if texts.plugin == "disk":
            return self._device_fault(texts.plugin_instance)
        if texts.type == JIFFIES_TYPE and self._counters:
            return JIFFIES_COUNTED
        if texts.plugin == "aggregation":
            return "" if texts.plugin_instance == _AVERAGE else NOT_PER_CORE
        return NOT_PER_CORE if texts.type == JIFFIES_TYPE and not texts.plugin_instance else ""

    def _device_fault(self, device: str) -> str:
        if not device:
            return "no device"
        if self._devices is None:
            return PART_OF_DISKS if _PARTS_OF_DISKS.fullmatch(device) else ""
        return "" if self._devices.fullmatch(device) else UNKNOWN_DEVICE

    def layout(self) -> Layout:
        """Return the layout of all series, and assign columns to new names."""
        if self._layout is None or len(self._layout.mean) != len(self._names):
            self._layout = self._arranged()
        return self._layout

    def _arranged(self) -> Layout:
        self._assign_columns()
        layers: dict[str, dict[str, list[tuple[int, int]]]] = {dataset: {} for dataset in DATASETS}
        averages: dict[str, dict[str, list[tuple[int, int]]]] = {dataset: {} for dataset in DATASETS}
        hosts: dict[str, int] = {}
        host = np.empty(len(self._names), np.uint32)
        for number, (dataset, column, core) in enumerate(self._names):
            is_average = dataset in MEANS and core in {"", JIFFIES}
            (averages if is_average else layers)[dataset].setdefault(core, []).append((self._columns[dataset][column], number))
            host[number] = hosts.setdefault(column if dataset.startswith("dataservers/") else column.rpartition(":")[0], len(hosts))
        places, own = (
            {name: [_place(some[core]) for core in sorted(some, key=natural_key)] for name, some in of.items()} for of in (layers, averages)
        )
        return Layout(
            {dataset: tuple(columns) for dataset, columns in self._columns.items()},
            places,
            own,
            np.array([dataset in MEANS for dataset, *_ in self._names], np.bool_),
            np.array([dataset in COMPLEMENTS for dataset, *_ in self._names], np.bool_),
            np.array([_measure(dataset, core) for dataset, _, core in self._names], np.uint8),
            host,
        )

    def _assign_columns(self) -> None:
        new: dict[str, list[str]] = {}
        for dataset, column, _ in self._names:
            if column not in self._columns[dataset]:
                new.setdefault(column, []).append(dataset)
        for column in sorted(new, key=natural_key):
            for dataset in new[column]:
                self._columns[dataset].setdefault(column, len(self._columns[dataset]))


_AVERAGE = "cpu-average"
"""What collectd's aggregation calls the mean over the cores of a host."""


def _part(texts: Texts) -> str:
    part = "" if texts.plugin == "aggregation" else texts.plugin_instance
    return part + JIFFIES if texts.plugin != "disk" and texts.type == JIFFIES_TYPE else part


def _measure(dataset: str, core: str) -> int:
    if dataset in COUNTED:
        return OPS_RATE if "op" in dataset else BYTES_RATE
    if dataset in MEANS:
        return IN_JIFFIES if core.endswith(JIFFIES) else PERCENT
    return SIZE


def _fields_of(texts: Texts) -> tuple[dict[str, str], str]:
    """Return the dataset of each field, or why they have none."""
    types = METRICS.get(texts.plugin)
    if types is None:
        return {}, "unknown plugin"
    kinds = types.get(texts.type)
    if kinds is None:
        return {}, "unknown type" if texts.type else "no type"
    fields = kinds.get(texts.type_instance)
    return ({}, "unknown type instance") if fields is None else (fields, "")


def _is_usable(texts: Iterable[str]) -> bool:
    return all(text.isprintable() and len(text) <= MAX_NAME_LENGTH for text in texts)


def _place(pairs: list[tuple[int, int]]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the series and their columns, of pairs of column and series, in order of columns."""
    columns, series = np.array(sorted(pairs), np.uint32).T
    return np.ascontiguousarray(series), np.ascontiguousarray(columns)
