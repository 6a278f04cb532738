"""Pages of documents to samples.

Each document has a key of five texts. A small number, its code, stands for them:

kind    plugin, type, type instance and plugin instance    what is measured: a few dozen
host    hostname                                           where: a few hundred or thousand

Kind and host together give the code. One table of all keys would have tens of thousands of entries in no order, most of them outside of
the processor's caches; these two tables and their numbers fit.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from collectors.collectd_es.datasets import NUMBERS, Fields
from collectors.collectd_es.documents import Source, described, other_time
from collectors.collectd_es.parse_hits import Body, Page, Reader, Shards
from collectors.collectd_es.parse_timestamps import INVALID, milliseconds
from collectors.collectd_es.series import REMEDIES, Kind, Texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from collectors.collectd_es.series import Series
    from tokiod.dropped import Dropped

MAX_KEYS = 1_000_000
"""Different keys in the table; with more, all are forgotten and resolved again."""
MAX_TEXTS = 100_000
"""Kinds and hosts in the tables; with more, all are forgotten."""
MAX_PAIRS = 1 << 23
"""Pairs of a kind and a host in the table: each takes four bytes, whether such a key exists or not."""

UNRESOLVED = np.iinfo(np.int32).min


class TooManyPairs(Exception):  # noqa: N818 - not an error: fewer documents are tried
    """Too many kinds and hosts at once for a table of their pairs; fewer documents have fewer."""


class Codes:
    """Codes of all keys seen.

    tables: {field: i4[codes]}, the number of the series that a field holds values of, -1 for none; reasons: why keys have no series,
    at -1 - code where the code is below zero.
    """

    def __init__(self, series: Series) -> None:
        self._series = series
        self._forget()

    def of(self, sources: list[Source]) -> NDArray[np.int64]:
        """Return i8[n], the code of each document. The codes of earlier calls may be invalid afterwards. Raises TooManyPairs."""
        kinds, hosts = self._kind_numbers, self._host_numbers
        try:
            # Loops over documents are comprehensions with the attribute's name in them, see Decoder.
            kind = _integers([kinds[s.plugin][s.type][s.type_instance][s.plugin_instance] for s in sources])
            host = _integers([hosts[s.host] for s in sources])
        except KeyError:
            self._add(sources)
            return self.of(sources)
        codes = self._pairs[kind, host].astype(np.int64)
        new = codes == UNRESOLVED
        if new.any():
            self._resolve(kind[new], host[new])
            return self.of(sources)
        return codes

    def _forget(self) -> None:
        self._kind_numbers: dict[str, dict[str, dict[str, dict[str, int]]]] = {}
        self._kinds: list[Kind] = []
        self._host_numbers: dict[str, int] = {}
        self._hosts: list[tuple[str, str]] = []  # with the reason why it has no series
        self._pairs = np.empty((0, 0), np.int32)
        self.reasons: list[str] = []
        self.tables = {field: np.array([], np.int32) for field in NUMBERS}

    def _add(self, sources: list[Source]) -> None:
        """Assign numbers to new kinds and hosts; forget all others when they become too many."""
        for is_last in (False, True):
            for s in sources:
                kinds = self._kind_numbers.setdefault(s.plugin, {}).setdefault(s.type, {}).setdefault(s.type_instance, {})
                if s.plugin_instance not in kinds:
                    kinds[s.plugin_instance] = len(self._kinds)
                    self._kinds.append(self._series.kind(Texts(s.plugin, s.type, s.type_instance, s.plugin_instance)))
                if s.host not in self._host_numbers:
                    self._host_numbers[s.host] = len(self._hosts)
                    self._hosts.append((s.host, self._series.host_fault(s.host)))
            if len(self._kinds) * len(self._hosts) <= MAX_PAIRS and len(self._kinds) + len(self._hosts) <= MAX_TEXTS:
                break
            self._forget()
            if is_last:
                raise TooManyPairs
        known, self._pairs = self._pairs, np.full((len(self._kinds), len(self._hosts)), UNRESOLVED, np.int32)
        self._pairs[: known.shape[0], : known.shape[1]] = known

    def _resolve(self, kind: NDArray[np.int64], host: NDArray[np.int64]) -> None:
        """Resolve the series of pairs of a kind and a host."""
        if len(self.tables["value"]) > MAX_KEYS:
            self._forget()
            return
        # In the first seconds of a large site, each document is the first of its series: they are resolved kind by kind.
        kind, host = np.divmod(np.unique(kind * len(self._hosts) + host), len(self._hosts))
        numbers: dict[str, list[int]] = {field: [] for field in self.tables}
        edges = np.flatnonzero(np.diff(kind)) + 1
        for number, hosts in zip(kind[np.append(0, edges)].tolist(), np.split(host, edges), strict=True):
            self._pairs[number, hosts] = self._codes_of(self._kinds[number], [self._hosts[n] for n in hosts.tolist()], numbers)
        self.tables = {field: np.append(table, np.array(numbers[field], np.int32)) for field, table in self.tables.items()}

    def _codes_of(self, kind: Kind, hosts: list[tuple[str, str]], numbers: dict[str, list[int]]) -> list[int]:
        """Return the codes of a kind with each host; add the numbers of their series, of each field."""
        faults = [kind.fault(fault) for _, fault in hosts]
        known = [host for (host, _), fault in zip(hosts, faults, strict=True) if not fault]
        following = itertools.count(len(self.tables["value"]) + len(numbers["value"]))
        for field, some in numbers.items():
            some.extend(self._series.numbers(kind.names(field, known)) if field in kind.datasets else [-1] * len(known))
        return [-1 - self._reason(fault) if fault else next(following) for fault in faults]

    def _reason(self, fault: str) -> int:
        if fault not in self.reasons:
            self.reasons.append(fault)
        return self.reasons.index(fault)


def _integers(numbers: list[int]) -> NDArray[np.int64]:
    """Return i8[n]; struct takes a third of numpy's time to read a list."""
    return np.frombuffer(struct.pack(f"{len(numbers)}q", *numbers), np.int64)


__all__ = ["Answer", "Decoder", "Samples"]

_Found = tuple["NDArray[np.int64]", "NDArray[Any]", "NDArray[np.float64]"]
"""Time, series and value of samples, see Samples."""

BATCH_DOCUMENTS = 2000
"""Documents that are processed at once where all of a page have too many different keys."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """n measurements.

    time: i8[n] UTC epoch milliseconds; series: u4[n] numbers of a Series; value: f8[n], finite.
    documents: how many were read, dropped ones included; dropped: documents, or values of them, without a sample, by reason.
    """

    time: NDArray[np.int64]
    series: NDArray[np.uint32]
    value: NDArray[np.float64]
    documents: int
    dropped: Dropped

    def __len__(self) -> int:
        return len(self.time)


S = TypeVar("S")


@dataclass(frozen=True, slots=True, eq=False)
class Answer(Generic[S]):
    """A page of a search and its metadata; None for what the server did not report.

    samples: Samples, or what a caller keeps of the page in their place; hits: the number of hits in this page.
    """

    samples: S
    timed_out: bool | None
    terminated_early: bool | None
    shards: Shards | None
    hits: int


# Loops over documents are comprehensions with the attribute's name in them: attrgetter or getattr(document, name) take five times
# as long, and there is no other way from attributes to arrays. Everything after them is numpy.
_VALUES: dict[str, Callable[[list[Source]], list[float | None]]] = {
    "value": lambda sources: [s.value for s in sources],
    "read": lambda sources: [s.read for s in sources],
    "write": lambda sources: [s.write for s in sources],
}


class Decoder:
    """Decodes the pages of one source; one per process, because it collects names."""

    def __init__(self, series: Series, fields: Fields | None = None) -> None:
        self._codes = Codes(series)
        self._fields = fields or Fields()
        self._reader = Reader(self._fields)

    def hits(self, body: Body) -> Samples:
        """Parse a JSON list of hits. Raises Malformed for anything else."""
        return self._samples(self._reader.read(body, whole=False))

    def answer(self, body: Body) -> Answer[Samples]:
        """Parse a whole answer to a search. Raises Malformed for anything else."""
        page = self._reader.read(body, whole=True)
        response = page.response
        return Answer(self._samples(page), response.timed_out, response.terminated_early, response.shards, page.documents)

    def _samples(self, page: Page) -> Samples:
        sources = page.sources
        if not sources:
            return Samples(np.empty(0, np.int64), np.empty(0, np.uint32), np.empty(0), page.documents, page.dropped)
        try:
            parts = [self._samples_of(sources, page.dropped)]
        except TooManyPairs:
            parts = [
                self._samples_of(sources[place : place + BATCH_DOCUMENTS], page.dropped)
                for place in range(0, len(sources), BATCH_DOCUMENTS)
            ]
        time, series, value = (np.concatenate(some) if len(some) > 1 else some[0] for some in zip(*parts, strict=True))
        return Samples(time, series, value, page.documents, page.dropped)

    def _samples_of(self, sources: list[Source], dropped: Dropped) -> _Found:
        """Return the samples of documents; count documents without one."""
        sources, codes, time = self._usable(sources, dropped)
        found: dict[str, _Found] = {}
        for field, table in self._codes.tables.items():
            # take() needs two thirds of the time of an index.
            number = table.take(codes)
            where = np.flatnonzero(number >= 0)
            if 2 * len(where) > len(sources):
                found[field] = time.take(where), number.take(where), _floats(_VALUES[field](sources)).take(where)
            elif len(where):
                found[field] = time.take(where), number.take(where), _floats(_VALUES[field]([sources[i] for i in where.tolist()]))
        _count_without_value(found, sources, dropped)
        time, number, value = (np.concatenate([part[i] for part in found.values()]) if found else np.array([]) for i in range(3))
        there = ~np.isnan(value)
        if not there.all():
            time, number, value = time[there], number[there], value[there]
        return time.astype(np.int64, copy=False), number.astype(np.uint32), value

    def _usable(self, sources: list[Source], dropped: Dropped) -> tuple[list[Source], NDArray[np.int64], NDArray[np.int64]]:
        """Return the documents with a series and a time, their codes and times; count the others."""
        codes = self._codes.of(sources)
        time = milliseconds([s.time for s in sources])
        unusable = (codes < 0) | (time == INVALID)
        if not unusable.any():
            return sources, codes, time
        for code, first, count in zip(*np.unique(np.where(codes < 0, codes, 0), return_index=True, return_counts=True), strict=True):
            if code < 0:
                reason = self._codes.reasons[-1 - code]
                dropped.add(reason, int(count), described(sources[first]), REMEDIES.get(reason, ""))
        for i in np.flatnonzero((codes >= 0) & (time == INVALID)).tolist():
            time[i] = self._other_time(sources[i], dropped)
        usable = np.flatnonzero((codes >= 0) & (time != INVALID))
        return [sources[i] for i in usable.tolist()], codes[usable], time[usable]

    def _other_time(self, source: Source, dropped: Dropped) -> int:
        """Return the time of a stamp that is not ISO 8601; INVALID, and counted, if it has none."""
        time = int(milliseconds([other_time(source.time, self._fields.time)])[0])
        if time == INVALID:
            reason = "malformed time stamp" if source.time else "no time stamp"
            dropped.add(reason, 1, source.time or described(source), "set fields.time (--time-field); a time stamp needs its zone")
        return time


def _floats(numbers: list[float | None]) -> NDArray[np.float64]:
    """Return f8[n], NaN for None, which struct rejects; it takes a third of numpy's time to read a list."""
    try:
        return np.frombuffer(struct.pack(f"{len(numbers)}d", *numbers), np.float64)
    except struct.error:
        return np.array(numbers, np.float64)


def _count_without_value(found: dict[str, _Found], sources: list[Source], dropped: Dropped) -> None:
    """Count the documents without any value; a disk's document with one of read and write has one."""
    missing = {field: np.isnan(value) for field, (*_, value) in found.items()}
    valueless = int(np.count_nonzero(missing.get("value", False)))
    if "read" in missing:
        valueless += int(np.count_nonzero(missing["read"] & missing["write"]))
    if valueless:
        empty = (s for s in sources if all(v is None or v != v for v in (s.value, s.read, s.write)))  # noqa: PLR0124 - NaN is missing
        shown = next((described(s) for s in empty), "")
        dropped.add(
            "no value", valueless, shown, "set fields.value, fields.read and fields.write (--value-field, --read-field, --write-field)"
        )
