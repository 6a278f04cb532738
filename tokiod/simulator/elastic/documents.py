"""collectd's documents as an index holds them: which ones a search finds, in which order, and their text.

Nothing is kept but the blocks that were asked for last. A document's place in the order is its position: its step, and a rank in the step
that mixes hosts and series as an index does. Text is put together from pieces for thousands of documents at once, because a server that
is slower than the reader it is there for would only measure itself: some 1.3 us per document, where json.dumps takes 7.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokiod.simulator.drawn import draw
from tokiod.simulator.elastic.collectd import BLOCK, INTERVAL, JITTER, Collectd, Fate, Series
from tokiod.simulator.elastic.query import DAY, Names, Selection, index_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.simulator.site import Site

    Ints = NDArray[np.int64]

_STEP = 1 << 24
"""Positions of a step."""

_PIECES = 12
"""Of which a document's text is put together."""


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """What is looked for: a selection, as it stood at the time `seen` (epoch milliseconds), one slice of it: (which, of how many)."""

    selection: Selection
    seen: int
    slice: tuple[int, int] = (0, 1)


class Documents:
    """The documents of a site's nodes."""

    def __init__(self, site: Site) -> None:
        self._load = Collectd(site)
        self._per_host = len(self._load.series)
        count = site.hosts * self._per_host
        self._order = draw(site, "bb order", 0, count).argsort()
        series = list(self._load.series) * site.hosts
        hosts = np.repeat(site.host_names, self._per_host).tolist()
        self.names = Names(
            {
                "hostname": hosts,
                "plugin": [s.plugin for s in series],
                "collectd_type": [s.type for s in series],
                "plugin_instance": [s.instance for s in series],
                "type_instance": [s.kind for s in series],
            }
        )
        self._disk = np.array([s.disk for s in series])
        # Few texts, and each of them one object: what thousands of documents share stays in the processor's cache.
        self._starts = [_shared(f'","_score":null,"_source":{{"plugin":"{s.plugin}"') for s in series]
        self._hosts = [_shared(f',"hostname":"{host}"') for host in hosts]
        self._ends = [_shared(_end(s)) for s in series]

    def index_days(self, now: int) -> range:
        """Return the UTC days since 1970 that have an index at a time in epoch milliseconds."""
        return range((self._load.origin * 1000 - JITTER) // DAY, now // DAY + 1)

    def count(self, search: Search, most: int | None = 2**62) -> int:
        """Return how many documents a search finds; more than `most` need not be counted, and none for None."""
        count = 0
        for step in self._steps(search):
            if most is None or count > most:
                break
            count += len(self._ranks(search, step))
        return count

    def positions(self, search: Search, after: int, size: int) -> Ints:
        """Return the positions of the next `size` documents behind a position, in order; -1 is before the first."""
        found, missing = [np.empty(0, np.int64)], size
        for step in self._steps(search):
            if missing <= 0 or (step + 1) * _STEP <= after:
                continue
            positions = step * _STEP + self._ranks(search, step)
            found.append(positions[np.searchsorted(positions, after, side="right") :][:missing])
            missing -= len(found[-1])
        return np.concatenate(found)

    def text(self, positions: Ints, *, ordered: bool) -> bytes:
        """Return the hits as JSON, without the brackets around them; `ordered`: with the positions as sort values."""
        if not len(positions):
            return b""
        steps, series = positions // _STEP, self._order[positions % _STEP % len(self._order)]
        numbers, fates, times = self._gather(steps, series)
        disk, which, ids = self._disk[series], series.tolist(), _texts(positions)
        first = np.full(len(which), b"", object)
        first[disk] = _texts(numbers[0][disk])
        pieces = [b""] * (_PIECES * len(which))
        pieces[1::_PIECES] = ids
        pieces[2::_PIECES] = [self._starts[i] for i in which]
        pieces[3::_PIECES] = np.where(disk, b',"read":', b"").tolist()
        pieces[4::_PIECES] = first.tolist()
        pieces[5::_PIECES] = _stamps(times)
        pieces[6::_PIECES] = [self._hosts[i] for i in which]
        pieces[7::_PIECES] = np.where(disk, b',"write":', b',"value":').tolist()
        pieces[8::_PIECES] = _texts(numbers[1])
        pieces[9::_PIECES] = [self._ends[i] for i in which]
        if ordered:
            pieces[10::_PIECES] = [b',"sort":['] * len(which)
            pieces[11::_PIECES] = ids
        _spoil(pieces, fates, series, disk)
        closing = b"]}" if ordered else b"}"
        pieces[0::_PIECES] = _prefixes(times, closing)
        pieces[0] = pieces[0].removeprefix(closing + b",")
        pieces.append(closing)
        return b"".join(pieces)

    def _steps(self, search: Search) -> range:
        """Return the steps that may have documents of the span, as far as a search can see."""
        start, end = max(search.selection.start, 0), min(search.selection.end, search.seen + 1)
        origin, interval = self._load.origin * 1000, INTERVAL * 1000
        return range(max(0, (start - JITTER - origin) // interval - 1), max(0, (end + JITTER - origin) // interval + 1))

    def _ranks(self, search: Search, step: int) -> Ints:
        told, row = self._load.told(step // BLOCK), step % BLOCK
        time, fate = told.time[row], told.fate[row].ravel()
        inside = (search.selection.start <= time) & (time < search.selection.end)
        there = search.selection.series & inside.repeat(self._per_host) & (told.found[row].ravel() <= search.seen) & (fate != Fate.ABSENT)
        once, again = there[self._order], (there & (fate == Fate.TWICE))[self._order]
        ranks = np.concatenate([once, again]).nonzero()[0]
        this, of = search.slice
        return ranks if of == 1 else ranks[(ranks + step) % of == this]

    def _gather(self, steps: Ints, series: Ints) -> tuple[NDArray[np.float64], NDArray[np.uint8], Ints]:
        """Return numbers f8[2, n], fates u1[n] and times i8[n] of the documents of these steps and series."""
        numbers, fates, times = np.empty((2, len(steps))), np.empty(len(steps), np.uint8), np.empty(len(steps), np.int64)
        blocks = steps // BLOCK
        for block in np.unique(blocks).tolist():
            these = blocks == block
            row, told = steps[these] % BLOCK, self._load.told(block)
            host, one = np.divmod(series[these], self._per_host)
            numbers[:, these] = self._load.numbers(block)[:, row, host, one]
            fates[these], times[these] = told.fate[row, host, one], told.time[row, host]
        return numbers, fates, times


def _texts(numbers: NDArray[np.int64 | np.float64]) -> list[bytes]:
    """Return each number as JSON, a double with the fewest digits that read back as the same double."""
    return msgspec.json.encode(numbers.tolist())[1:-1].split(b",") if len(numbers) else []


def _prefixes(times: Ints, closing: bytes) -> list[bytes]:
    """Return the end of the document before, and the beginning of each."""
    days, which = np.unique(times // DAY, return_inverse=True)
    known = [closing + f',{{"_index":"{index_name(day)}","_id":"AW'.encode() for day in days.tolist()]
    return [known[i] for i in which.tolist()]


def _stamps(times: Ints) -> list[bytes]:
    moments, which = np.unique(times, return_inverse=True)
    known = [f',"@timestamp":"{moment}Z"'.encode() for moment in np.datetime_as_string(moments.view("M8[ms]"), unit="ms").tolist()]
    return [known[i] for i in which.tolist()]


@lru_cache(maxsize=1024)
def _shared(text: str) -> bytes:
    return text.encode()


def _end(series: Series) -> str:
    instance = f',"plugin_instance":"{series.instance}"' if series.instance else ""
    kind = f',"type_instance":"{series.kind}"' if series.kind else ""
    return f',"collectd_type":"{series.type}"{instance}{kind}}}'


def _spoil(pieces: list[bytes], fates: NDArray[np.uint8], series: Ints, disk: NDArray[np.bool_]) -> None:
    """Put what is no number where a document's fate says so: a disk keeps one of its two numbers, the others have none left."""
    for i in (fates >= Fate.NULL).nonzero()[0].tolist():
        fate, at = int(fates[i]), i * _PIECES
        if fate == Fate.NULL:
            pieces[at + (4 if disk[i] else 8)] = b"null"
        elif fate == Fate.TEXT:
            pieces[at + 8] = b'"NaN"' if series[i] % 2 else b'"n/a"'
        elif disk[i] and fate == Fate.SECOND_ONLY:
            pieces[at + 3 : at + 5] = b"", b""
        else:
            pieces[at + 7 : at + 9] = b"", b""
