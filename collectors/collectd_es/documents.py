"""Pages of documents to samples."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.collectd_es.fields import NUMBERS, Fields, Source
from collectors.collectd_es.hits import Body, Page, Reader, Shards, Total
from collectors.collectd_es.series import Key, Series
from collectors.collectd_es.stamps import BAD, milliseconds
from collectors.collectd_es.tail import last_sort

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["Answer", "Decoder", "Samples", "last_sort"]

_Found = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.float64]"]

MOST_KEYS = 1_000_000
"""Different keys that are remembered; with more, all are forgotten and resolved again."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """n measurements.

    time: i8[n] UTC epoch milliseconds; series: u4[n] numbers of a Series; value: f8[n], finite.
    documents: how many were read, the dropped ones included; dropped: documents, or values of them, that gave no sample, by reason.
    """

    time: NDArray[np.int64]
    series: NDArray[np.uint32]
    value: NDArray[np.float64]
    documents: int
    dropped: Counter[str]

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A page of a search and what the server said of it; None for what it did not say.

    last_sort: the sort values of the last hit; hits: how many there are in this page.
    """

    samples: Samples
    scroll_id: str | None
    pit_id: str | None
    timed_out: bool | None
    terminated_early: bool | None
    shards: Shards | None
    total: Total | None
    last_sort: list[Any] | None
    hits: int


# Loops over documents are comprehensions with the attribute's name in them: attrgetter or getattr(document, name) take five times
# as long, and there is no other way from attributes to arrays. Everything behind them is numpy.
_VALUES: dict[str, Callable[[list[Source]], list[float | None]]] = {
    "value": lambda sources: [s.value for s in sources],
    "read": lambda sources: [s.read for s in sources],
    "write": lambda sources: [s.write for s in sources],
}


class Decoder:
    """Decodes the pages of one source; one per process, since it learns names."""

    def __init__(self, series: Series, fields: Fields | None = None) -> None:
        self._series = series
        self._reader = Reader(fields or Fields())
        self._forget()

    def _forget(self) -> None:
        """Codes stand for keys: of each, the number of the series of each field, -1 for none; below zero, the reason for no series."""
        self._codes: dict[str, dict[str, dict[str, dict[str, dict[str, int]]]]] = {}
        self._keys = 0
        self._reasons: list[str] = []
        self._numbers: dict[str, list[int]] = {field: [] for field in NUMBERS}
        self._tables = {field: np.array([], np.int64) for field in NUMBERS}

    def hits(self, body: Body) -> Samples:
        """Read a JSON list of hits; raises Malformed for what is none."""
        return self._samples(self._reader.read(body, whole=False))

    def answer(self, body: Body) -> Answer:
        """Read a whole answer to a search; raises Malformed for what is none."""
        page = self._reader.read(body, whole=True)
        said = page.response
        total = Total(said.hits.total) if isinstance(said.hits.total, int) else said.hits.total
        return Answer(
            self._samples(page), said.scroll_id, said.pit_id, said.timed_out, said.terminated_early, said.shards, total,
            last_sort(body) if page.documents else None, page.documents,
        )  # fmt: skip

    def _samples(self, page: Page) -> Samples:
        dropped = page.dropped
        sources, codes, time = self._usable(page.sources, dropped)
        found: dict[str, _Found] = {}
        for field, table in self._tables.items():
            number = table[codes]
            where = np.flatnonzero(number >= 0)
            if 2 * len(where) > len(sources):
                found[field] = number[where], time[where], _floats(_VALUES[field](sources))[where]
            elif len(where):
                found[field] = number[where], time[where], _floats(_VALUES[field]([sources[i] for i in where.tolist()]))
        _count_without_value(found, dropped)
        number, time, value = (np.concatenate([part[i] for part in found.values()]) if found else np.array([]) for i in range(3))
        there = ~np.isnan(value)
        if not there.all():
            number, time, value = number[there], time[there], value[there]
        return Samples(time.astype(np.int64, copy=False), number.astype(np.uint32), value, page.documents, dropped)

    def _usable(self, sources: list[Source], dropped: Counter[str]) -> tuple[list[Source], NDArray[np.int64], NDArray[np.int64]]:
        """Return the documents that have a series and a time, their codes and times; count the others."""
        codes = self._coded(sources)
        time = milliseconds([s.time for s in sources])
        useless = (codes < 0) | (time == BAD)
        if not useless.any():
            return sources, codes, time
        for code, count in zip(*np.unique(codes[codes < 0], return_counts=True), strict=True):
            dropped[self._reasons[-1 - code]] += int(count)
        timeless = np.flatnonzero((codes >= 0) & (time == BAD)).tolist()
        dropped.update("unreadable time stamp" if sources[i].time else "no time stamp" for i in timeless)
        useful = np.flatnonzero(~useless)
        return [sources[i] for i in useful.tolist()], codes[useful], time[useful]

    def _coded(self, sources: list[Source]) -> NDArray[np.int64]:
        # Five small dicts of strings that know their hashes take two thirds of the time of one big dict of tuples, which don't.
        codes = self._codes
        try:
            found = [codes[s.plugin][s.type][s.type_instance][s.plugin_instance][s.host] for s in sources]
        except KeyError:
            if self._keys > MOST_KEYS:
                self._forget()
            for s in sources:
                self._resolve(Key(s.host, s.plugin, s.type, s.type_instance, s.plugin_instance))
            self._tables = {field: np.array(numbers, np.int64) for field, numbers in self._numbers.items()}
            return self._coded(sources)
        return np.frombuffer(struct.pack(f"{len(found)}q", *found), np.int64)

    def _resolve(self, key: Key) -> None:
        kinds = self._codes.setdefault(key.plugin, {}).setdefault(key.type, {})
        hosts = kinds.setdefault(key.type_instance, {}).setdefault(key.plugin_instance, {})
        if key.host in hosts:
            return
        self._keys += 1
        numbers = self._series.resolve(key)
        if isinstance(numbers, str):
            if numbers not in self._reasons:
                self._reasons.append(numbers)
            hosts[key.host] = -1 - self._reasons.index(numbers)
            return
        hosts[key.host] = len(self._numbers["value"])
        for field, table in self._numbers.items():
            table.append(numbers.get(field, -1))


def _floats(numbers: list[float | None]) -> NDArray[np.float64]:
    """Return f8[n], NaN for None, which struct refuses; it takes a third of numpy's time to read a list."""
    try:
        return np.frombuffer(struct.pack(f"{len(numbers)}d", *numbers), np.float64)
    except struct.error:
        return np.array(numbers, np.float64)


def _count_without_value(found: dict[str, _Found], dropped: Counter[str]) -> None:
    """Count the documents without any value; a disk's with one of read and write has one."""
    lacking = {field: np.isnan(value) for field, (_, _, value) in found.items()}
    none = np.count_nonzero(lacking.get("value", False))
    if "read" in lacking:
        none += np.count_nonzero(lacking["read"] & lacking["write"])
    if none:
        dropped["no value"] += int(none)
