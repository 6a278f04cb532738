"""The legend of an output of `mmperfmon query`, and the types and words that all parts of its parser share."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tokiod.dropped import Dropped
from tokiod.toolkit.bytes_cache import cached_for_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

STAMP = len("2019-05-15-12:01:00")

UNITS = {b"B": 1.0, b"kB": 1024.0, b"KB": 1024.0, b"MB": 1024.0**2, b"GB": 1024.0**3, b"TB": 1024.0**4, b"PB": 1024.0**5}
NULL = b"null"

ROW = re.compile(rb"[ \t]*([1-9]\d{0,8})[ \t]+(\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d)(?=[ \t]|$)")
_NAME = re.compile(rb"\S+")
_LINE = re.compile(rb"[^\n]+")

CACHE_BYTES = 16 << 20
"""Bytes of the texts for which a cache holds results."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Columns of a legend, from `first` on. stamps: the rows' time stamps, joined; value: f8[rows, columns], NaN for null."""

    legend: Legend
    first: int
    stamps: bytes
    value: NDArray[np.float64]


@dataclass(slots=True)
class Output:
    """A parsed output. dropped: values that cannot be assigned, or lines where the number of values is unknown, by reason."""

    tables: list[Table] = field(default_factory=list)
    legends: list[Legend] = field(default_factory=list)
    dropped: Dropped = field(default_factory=Dropped)


ENTRY = re.compile(rb"(\d{1,9}):[ \t]+(\S.*)")
MAX_KEY_BYTES = 400


class Metric(NamedTuple):
    """`host|sensor|id|...|counter` with no id, one (an interface, an NSD) or more (a cluster and its file system)."""

    host: str
    sensor: str
    ids: tuple[str, ...]
    counter: str

    def __str__(self) -> str:
        return "|".join([self.host, self.sensor, *self.ids, self.counter])


class Legend:
    """What columns 1, 2, ... measure, None where that is unknown; counters: the names that the tables' headers must have.

    width: the number of columns of the tables as far as the legend shows it, its lost lines included.

    A class with an identity, because legends repeat: read_legend() returns the same object for the same bytes, also after unpickling, so
    that what is computed from it can be cached.
    """

    def __init__(
        self, metrics: tuple[Metric | None, ...], width: int = 0, unknown_lines: int = 0, text: bytes = b"", *, is_whole: bool = True
    ) -> None:
        self.metrics = metrics
        self.width = width
        self.counters = [b"" if metric is None else metric.counter.encode() for metric in metrics]
        self.unknown_lines = unknown_lines
        self.is_whole = is_whole
        self._text = text

    def fits(self, first: int, names: list[bytes]) -> bool:
        """Return whether names are those of the columns from `first` on: their counters, or of one counter the hosts (compareNodes)."""
        if names == self.counters[first : first + len(names)]:
            return True
        hosts = ["" if metric is None else metric.host for metric in self.metrics[first : first + len(names)]]
        shown = [name.decode(errors="replace") for name in names]
        is_of_one = len(set(self.counters)) == 1 and len(set(hosts)) == len(hosts) == len(shown)
        return is_of_one and shown in (hosts, [host.partition(".")[0] for host in hosts])

    def knows(self, names: list[bytes]) -> bool:
        """Return whether all names are counters or hosts of the legend, in any order."""
        return {name.decode(errors="replace") for name in names} <= {
            name for metric in self.metrics if metric for name in (metric.counter, metric.host, metric.host.partition(".")[0])
        }

    def __reduce__(self) -> tuple[Callable[[bytes], Legend], tuple[bytes]]:
        return read_legend, (self._text,)


NO_LEGEND = Legend(())


# As objects, a legend takes nine times its text.
@cached_for_bytes(CACHE_BYTES // 4)
def read_legend(text: bytes) -> Legend:
    """Parse the lines below "Legend:"; `unknown_lines` counts other lines, and entries without a valid key.

    Rows among them belong to a table whose header is missing: then the legend is incomplete, and no table after it can be assigned.
    """
    found: dict[int, Metric | None] = {}
    unknown_lines, is_whole = 0, True
    for line in lines(text):
        entry = ENTRY.fullmatch(line.strip())
        if entry is None:
            unknown_lines += 1
            is_whole = is_whole and not looks_like_row(line)
            continue
        # A number that lost a digit is another column's.
        number = int(entry[1])
        metric = None if number in found else _metric(entry[2])
        unknown_lines += metric is None
        found[number] = metric
    # Entries are numbered like columns. There can't be more columns than lines, whatever a damaged number says.
    width = max(found, default=0)
    metrics = tuple(found.get(number) for number in range(1, 1 + min(len(found), width)))
    return Legend(metrics, width, unknown_lines, text, is_whole=is_whole)


def _metric(key: bytes) -> Metric | None:
    parts = key.decode(errors="replace").split("|")
    if len(key) > MAX_KEY_BYTES or len(parts) < 3 or not all(map(_is_name, parts)):  # noqa: PLR2004 - host, sensor, counter
        return None
    return Metric(parts[0], parts[1], tuple(parts[2:-1]), parts[-1])


def _is_name(part: str) -> bool:
    return part == part.strip() != "" and part.isprintable() and "\ufffd" not in part


def lines(text: bytes) -> Iterator[bytes]:
    """Yield the lines that are not blank, one at a time: a list of all takes many times the memory of a text of newlines."""
    return (found[0] for found in _LINE.finditer(text) if not found[0].isspace())


def ends(header: bytes) -> list[int]:
    """Return the ends of the names of a header, "Row" and "Timestamp" first: numbers are right-aligned below them."""
    return [name.end() for name in _NAME.finditer(header)]


def looks_like_row(line: bytes) -> bool:
    """Return whether a line begins like a row."""
    return ROW.match(line) is not None
