"""Which dataset and column each metric fills."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tokiod.errors import TokiodError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from collectors.mmperfmon.legend import Legend, Metric

Kind = Literal["data", "md"]

_OF_SERVER = {
    "cpu_user": "cpuuser",
    "cpu_sys": "cpusys",
    "mem_free": "memfree",
    "mem_total": "memtotal",
    "net_r": "netinbytes",
    "net_s": "netoutbytes",
}
_OF_TARGET = {
    f"gpfs_{sensor}_{counter}": dataset
    for sensor in ("nsdds", "fs")
    for counter, dataset in {
        "bytes_read": "readbytes",
        "bytes_written": "writebytes",
        "read_ops": "readops",
        "write_ops": "writeops",
    }.items()
}
_NETWORK = ("net_r", "net_s")
_LOOPBACK = "lo"
LOAD = "cpuload"
OF_LOAD = ("cpuuser", "cpusys")
KINDS: tuple[Kind, ...] = ("data", "md")

UNKNOWN, NO_LEGEND, LOOPBACK, NO_TYPE = -1, -2, -3, -4
REASONS = {
    UNKNOWN: "metric not known",
    NO_LEGEND: "no such column in the legend",
    LOOPBACK: "loopback",
    NO_TYPE: "NSD of no type",
}
"""Why a column of an output gives no cells, by what stands for it instead of a number."""


class Maps(NamedTuple):
    """What is metadata, by patterns that the name of an NSD or server begins with; the first that matches counts."""

    nsds: tuple[tuple[re.Pattern[str], Kind], ...] = ()
    servers: tuple[tuple[re.Pattern[str], Kind], ...] = ()

    def nsd(self, name: str) -> Kind | None:
        """Tell what an NSD holds: what the first pattern says, data where there are no patterns, None where none matches."""
        return _first(self.nsds, name) if self.nsds else "data"

    def server(self, name: str) -> Kind:
        """Tell what a server serves; data where no pattern matches."""
        return _first(self.servers, name) or "data"


def _first(patterns: tuple[tuple[re.Pattern[str], Kind], ...], name: str) -> Kind | None:
    return next((kind for pattern, kind in patterns if pattern.match(name)), None)


def maps(nsds: Sequence[str], servers: Sequence[str]) -> Maps:
    """Read REGEX=datatarget|mdtarget and REGEX=dataserver|mdserver. Raises TokiodError that begins with "lun_map: " or "server_map: "."""
    return Maps(
        tuple(_pattern(text, "lun_map", "target") for text in nsds), tuple(_pattern(text, "server_map", "server") for text in servers)
    )


def _pattern(text: str, option: str, what: str) -> tuple[re.Pattern[str], Kind]:
    expression, _, name = text.rpartition("=")
    kind = next((kind for kind in KINDS if name == f"{kind}{what}"), None)
    if kind is None or not expression:
        raise TokiodError(f"{option}: {text!r} does not read REGEX=data{what} or REGEX=md{what}")
    try:
        return re.compile(expression), kind
    except (re.error, OverflowError, RecursionError) as error:
        raise TokiodError(f"{option}: {expression!r} is no regular expression: {error}") from None


def datasets_of(counters: Sequence[str], maps: Maps) -> frozenset[str]:
    """Return the datasets that counters can fill; of names that are no counters, the whole of what mmperfmon can."""
    known = {**_OF_SERVER, **_OF_TARGET}
    wanted = set(counters) if all(name in known for name in counters) else set(known)
    server = {_OF_SERVER[name] for name in wanted & set(_OF_SERVER)}
    if server.issuperset(OF_LOAD):
        server.add(LOAD)
    target = {_OF_TARGET[name] for name in wanted & set(_OF_TARGET)}
    servers = {"data", *(kind for _, kind in maps.servers)}
    targets = {kind for _, kind in maps.nsds} or {"data"}
    return frozenset(
        [f"{kind}servers/{name}" for kind in servers for name in server] + [f"{kind}targets/{name}" for kind in targets for name in target]
    )


class Place(NamedTuple):
    """Where the values of a metric go; part: the interface, of which a server may have several, whose sum the cell is."""

    dataset: str
    column: str
    part: str = ""


class Series:
    """Numbers for all places that were seen, in the order in which they were."""

    def __init__(self, maps: Maps) -> None:
        self._maps = maps
        self._numbers: dict[Place, int] = {}
        self._of_legend: dict[Legend, NDArray[np.int64]] = {}
        self._columns: dict[str, dict[str, list[int]]] = {}
        self._columns_of = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers(self, legend: Legend) -> NDArray[np.int64]:
        """Return i8[columns], the series of each column of a legend, or one of REASONS."""
        if (known := self._of_legend.get(legend)) is None:
            known = self._of_legend[legend] = np.array([self._number(metric) for metric in legend.metrics], np.int64)
        return known

    def columns(self) -> dict[str, dict[str, list[int]]]:
        """Return {dataset: {column: [series]}} of all that was seen."""
        if self._columns_of != len(self):
            self._columns, self._columns_of = {}, len(self)
            for place, number in self._numbers.items():
                self._columns.setdefault(place.dataset, {}).setdefault(place.column, []).append(number)
        return self._columns

    def _number(self, metric: Metric | None) -> int:
        place = NO_LEGEND if metric is None else _place(metric, self._maps)
        return place if isinstance(place, int) else self._numbers.setdefault(place, len(self._numbers))


def _place(metric: Metric, maps: Maps) -> Place | int:
    if dataset := _OF_TARGET.get(metric.counter):
        if not metric.ids:
            return UNKNOWN
        kind = maps.nsd(metric.ids[-1])
        return NO_TYPE if kind is None else Place(f"{kind}targets/{dataset}", f"{metric.host}:{metric.ids[-1]}")
    if not (dataset := _OF_SERVER.get(metric.counter)) or bool(metric.ids) != (metric.counter in _NETWORK):
        return UNKNOWN
    if metric.ids == (_LOOPBACK,):
        return LOOPBACK
    return Place(f"{maps.server(metric.host)}servers/{dataset}", metric.host, "|".join(metric.ids))
