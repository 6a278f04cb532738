"""Series: numbers for names, and the column of each number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collectors.collectd_es.datasets import COMPLEMENTS, DATASETS, MEANS, METRICS
from tokiod.tts.schema import natural_key

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from numpy.typing import NDArray


MAX_NAME_LENGTH = 200
"""Characters of a host's or a device's name: any client may write documents, and a name must not break a file or a message."""


class Name(NamedTuple):
    """The name of a series: a dataset, its column, and the core, "" where a column has one series only."""

    dataset: str
    column: str
    core: str = ""


class Key(NamedTuple):
    """The texts of a document that name its series."""

    host: str
    plugin: str
    type: str
    type_instance: str
    plugin_instance: str


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The column of each series, at one time.

    columns: of each dataset, in order; places: of each dataset, pairs of series u4[k] and their columns u4[k]. A mean has one pair per
    core, in natural order; other datasets have one pair with all their columns.
    mean, complement: bool[series].
    """

    columns: dict[str, tuple[str, ...]]
    places: dict[str, list[tuple[NDArray[np.uint32], NDArray[np.uint32]]]]
    mean: NDArray[np.bool_]
    complement: NDArray[np.bool_]


# Numbers follow the order of arrival, which parse workers and retries change, so no output may depend on them. Columns are assigned when
# batches are made: new names follow the older ones in natural order.
class Series:
    """The names of one source, numbered in order of arrival; shared by all its readers in one process."""

    def __init__(self, hosts: re.Pattern[str] | None = None, devices: re.Pattern[str] | None = None) -> None:
        self._hosts = hosts
        self._devices = devices
        self._numbers: dict[tuple[str, str, str], int] = {}
        self._names: list[Name] = []
        self._columns: dict[str, dict[str, int]] = {dataset: {} for dataset in DATASETS}
        self._layout: Layout | None = None

    def __len__(self) -> int:
        return len(self._names)

    def number(self, name: tuple[str, str, str]) -> int:
        """Return a name's number, the next one for a new name."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._names)
            self._names.append(Name(*name))
        return number

    def names(self, first: int = 0) -> list[Name]:
        """Return the names from number `first` on, for another process's merge()."""
        return self._names[first:]

    def merge(self, names: Sequence[tuple[str, str, str]]) -> NDArray[np.uint32]:
        """Return the numbers u4[n] of another table's names in this table."""
        return np.array([self.number(name) for name in names], np.uint32)

    def resolve(self, key: Key) -> dict[str, int] | str:
        """Return the number of each field of a document that holds a value, or the reason why it has no series."""
        types = METRICS.get(key.plugin)
        if types is None:
            return "unknown plugin"
        kinds = types.get(key.type)
        if kinds is None:
            return "unknown type"
        fields = kinds.get(key.type_instance)
        if fields is None:
            return "unknown type instance"
        return self._fault(key) or {field: self.number(self._name(dataset, key)) for field, dataset in fields.items()}

    def _fault(self, key: Key) -> str:
        """Return why a host or its part is not collected, or ""."""
        if not key.host:
            return "no host"
        if not "".join(key).isprintable() or max(map(len, key)) > MAX_NAME_LENGTH:
            return "unusable name"
        if self._hosts is not None and not self._hosts.fullmatch(key.host):
            return "unknown host"
        if key.plugin == "memory":
            return "unknown plugin instance" if key.plugin_instance else ""
        return self._device_fault(key.plugin_instance) if key.plugin == "disk" else ""

    def _device_fault(self, device: str) -> str:
        if not device:
            return "no device"
        return "unknown device" if self._devices is not None and not self._devices.fullmatch(device) else ""

    def _name(self, dataset: str, key: Key) -> tuple[str, str, str]:
        if key.plugin == "disk":
            return dataset, f"{key.host}:{key.plugin_instance}", ""
        return dataset, key.host, key.plugin_instance

    def layout(self) -> Layout:
        """Return the layout of all series, and assign columns to new names."""
        if self._layout is None or len(self._layout.mean) != len(self._names):
            self._layout = self._arranged()
        return self._layout

    def _arranged(self) -> Layout:
        numbers: dict[str, list[int]] = {dataset: [] for dataset in DATASETS}
        for number, name in enumerate(self._names):
            numbers[name.dataset].append(number)
        return Layout(
            {dataset: self._in_order(dataset, some) for dataset, some in numbers.items()},
            {dataset: self._places(dataset, some) for dataset, some in numbers.items()},
            np.array([name.dataset in MEANS for name in self._names], np.bool_),
            np.array([name.dataset in COMPLEMENTS for name in self._names], np.bool_),
        )

    def _in_order(self, dataset: str, numbers: list[int]) -> tuple[str, ...]:
        known = self._columns[dataset]
        for column in sorted({self._names[n].column for n in numbers} - known.keys(), key=natural_key):
            known[column] = len(known)
        return tuple(known)

    def _places(self, dataset: str, numbers: list[int]) -> list[tuple[NDArray[np.uint32], NDArray[np.uint32]]]:
        known = self._columns[dataset]
        layers: dict[tuple[object, str], dict[int, int]] = {}
        for number in numbers:
            name = self._names[number]
            layers.setdefault(natural_key(name.core), {})[known[name.column]] = number
        return [
            (np.array([layer[c] for c in sorted(layer)], np.uint32), np.array(sorted(layer), np.uint32))
            for _, layer in sorted(layers.items())
        ]
