"""Series: numbers for metrics, and the column of each number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from collectors.mmperfmon.datasets import OF_SERVER, OF_TARGET, PERCENT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from collectors.mmperfmon.datasets import Maps
    from collectors.mmperfmon.parse_legend import Legend, Metric

_NETWORK = ("net_r", "net_s")
_LOOPBACK = "lo"

UNKNOWN, NO_LEGEND, LOOPBACK, NO_TYPE, NO_SUM = -1, -2, -3, -4, -5
REASONS = {
    UNKNOWN: "unknown metric",
    NO_LEGEND: "no such column in the legend",
    LOOPBACK: "loopback",
    NO_TYPE: "NSD that lun_map does not match",
    NO_SUM: "adapter of a server that may have more, in a damaged legend",
}
"""Why a column of an output gives no cells, by the code that replaces its number."""
REMEDIES = {NO_TYPE: "name what it holds in lun_map, --lun-map of saved outputs"}


class Place(NamedTuple):
    """The column of a metric. part: an interface; a server may have several, whose sum is the cell."""

    dataset: str
    column: str
    part: str = ""


class Series:
    """Numbers for all columns seen, in order of appearance."""

    def __init__(self, maps: Maps) -> None:
        self._maps = maps
        self._numbers: dict[Place, int] = {}
        self._limits: list[float] = []
        # Legends change with the components that have data; those that read_legend() has dropped don't come again.
        self._of_legend: WeakKeyDictionary[Legend, NDArray[np.int64]] = WeakKeyDictionary()
        self._columns: dict[str, dict[str, list[int]]] = {}
        self._columns_of = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers(self, legend: Legend) -> NDArray[np.int64]:
        """Return i8[columns], the series of each column of a legend, or a key of REASONS."""
        if (known := self._of_legend.get(legend)) is None:
            known = np.array([self._number(metric) for metric in legend.metrics], np.int64)
            if legend.unknown_lines or None in legend.metrics:
                known[[metric is not None and metric.counter in _NETWORK for metric in legend.metrics]] = NO_SUM
            self._of_legend[legend] = known
        return known

    def limits(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the largest possible value of series: 100 for percent."""
        return np.array([self._limits[number] for number in numbers.tolist()])

    def columns(self) -> dict[str, dict[str, list[int]]]:
        """Return {dataset: {column: [series]}} of everything seen."""
        if self._columns_of != len(self):
            self._columns, self._columns_of = {}, len(self)
            for place, number in self._numbers.items():
                self._columns.setdefault(place.dataset, {}).setdefault(place.column, []).append(number)
        return self._columns

    def _number(self, metric: Metric | None) -> int:
        place = NO_LEGEND if metric is None else _place(metric, self._maps)
        if isinstance(place, int):
            return place
        if place not in self._numbers:
            self._limits.append(100.0 if place.dataset.endswith(PERCENT) else math.inf)
        return self._numbers.setdefault(place, len(self._numbers))


def _place(metric: Metric, maps: Maps) -> Place | int:
    if dataset := OF_TARGET.get(metric.counter):
        if not metric.ids:
            return UNKNOWN
        kind = maps.nsd(metric.ids[-1])
        # Of a file system the cluster is a part of its name, as in pytokio: two clusters may have file systems of one name.
        return NO_TYPE if kind is None else Place(f"{kind}targets/{dataset}", f"{metric.host}:{'|'.join(metric.ids)}")
    if not (dataset := OF_SERVER.get(metric.counter)) or bool(metric.ids) != (metric.counter in _NETWORK):
        return UNKNOWN
    if metric.ids == (_LOOPBACK,):
        return LOOPBACK
    return Place(f"{maps.server(metric.host)}servers/{dataset}", metric.host, "|".join(metric.ids))
