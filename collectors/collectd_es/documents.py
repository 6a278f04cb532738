"""Pages of documents to samples."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.collectd_es.codes import Codes, Crowded
from collectors.collectd_es.fields import Fields, Source
from collectors.collectd_es.hits import Body, Page, Reader, Shards, Total
from collectors.collectd_es.stamps import BAD, milliseconds
from collectors.collectd_es.tail import last_sort

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from numpy.typing import NDArray

    from collectors.collectd_es.series import Series

__all__ = ["Answer", "Decoder", "Samples", "last_sort"]

_Found = tuple["NDArray[np.int64]", "NDArray[Any]", "NDArray[np.float64]"]
"""Time, series and value of samples, see Samples."""

FEW = 2000
"""Documents that are looked at at a time where there are too many different ones among all of them."""


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
        self._codes = Codes(series)
        self._reader = Reader(fields or Fields())

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
        sources = page.sources
        try:
            parts = [self._found(sources, page.dropped)]
        except Crowded:
            parts = [self._found(sources[place : place + FEW], page.dropped) for place in range(0, len(sources), FEW)]
        time, series, value = (np.concatenate(some) if len(some) > 1 else some[0] for some in zip(*parts, strict=True))
        return Samples(time, series, value, page.documents, page.dropped)

    def _found(self, sources: list[Source], dropped: Counter[str]) -> _Found:
        """Return the samples of documents; count those that give none."""
        sources, codes, time = self._usable(sources, dropped)
        found: dict[str, _Found] = {}
        for field, table in self._codes.tables.items():
            number = table[codes]
            where = np.flatnonzero(number >= 0)
            if 2 * len(where) > len(sources):
                found[field] = time[where], number[where], _floats(_VALUES[field](sources))[where]
            elif len(where):
                found[field] = time[where], number[where], _floats(_VALUES[field]([sources[i] for i in where.tolist()]))
        _count_without_value(found, dropped)
        time, number, value = (np.concatenate([part[i] for part in found.values()]) if found else np.array([]) for i in range(3))
        there = ~np.isnan(value)
        if not there.all():
            time, number, value = time[there], number[there], value[there]
        return time.astype(np.int64, copy=False), number.astype(np.uint32), value

    def _usable(self, sources: list[Source], dropped: Counter[str]) -> tuple[list[Source], NDArray[np.int64], NDArray[np.int64]]:
        """Return the documents that have a series and a time, their codes and times; count the others."""
        codes = self._codes.of(sources)
        time = milliseconds([s.time for s in sources])
        useless = (codes < 0) | (time == BAD)
        if not useless.any():
            return sources, codes, time
        for code, count in zip(*np.unique(codes[codes < 0], return_counts=True), strict=True):
            dropped[self._codes.reasons[-1 - code]] += int(count)
        timeless = np.flatnonzero((codes >= 0) & (time == BAD)).tolist()
        dropped.update("unreadable time stamp" if sources[i].time else "no time stamp" for i in timeless)
        useful = np.flatnonzero(~useless)
        return [sources[i] for i in useful.tolist()], codes[useful], time[useful]


def _floats(numbers: list[float | None]) -> NDArray[np.float64]:
    """Return f8[n], NaN for None, which struct refuses; it takes a third of numpy's time to read a list."""
    try:
        return np.frombuffer(struct.pack(f"{len(numbers)}d", *numbers), np.float64)
    except struct.error:
        return np.array(numbers, np.float64)


def _count_without_value(found: dict[str, _Found], dropped: Counter[str]) -> None:
    """Count the documents without any value; a disk's with one of read and write has one."""
    lacking = {field: np.isnan(value) for field, (*_, value) in found.items()}
    none = np.count_nonzero(lacking.get("value", False))
    if "read" in lacking:
        none += np.count_nonzero(lacking["read"] & lacking["write"])
    if none:
        dropped["no value"] += int(none)
