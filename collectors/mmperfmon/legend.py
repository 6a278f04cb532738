"""The legend of an output: what each of its columns measures."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from collectors.mmperfmon.rows import looks_like_one

if TYPE_CHECKING:
    from collections.abc import Callable

ENTRY = re.compile(rb"(\d{1,9}):[ \t]+(\S.*)")
LONGEST = 400
"""Bytes of a key."""


class Metric(NamedTuple):
    """`host|sensor|id|...|counter`: none, one (an interface, an NSD) or more ids (a cluster and its file system)."""

    host: str
    sensor: str
    ids: tuple[str, ...]
    counter: str


class Legend:
    """What columns 1, 2, ... measure, None where that can't be told; counters: the names that the tables' headers must have.

    width: how many columns the tables have, as far as the legend tells, its lost lines included.

    A class with an identity, because legends repeat: read() gives the same one for the same bytes, and what is made of it is kept; so
    does what takes it over from another process.
    """

    def __init__(
        self, metrics: tuple[Metric | None, ...], width: int = 0, strange: int = 0, text: bytes = b"", *, is_whole: bool = True
    ) -> None:
        self.metrics = metrics
        self.width = width
        self.counters = [b"" if metric is None else metric.counter.encode() for metric in metrics]
        self.strange = strange
        self.is_whole = is_whole
        self._text = text

    def __reduce__(self) -> tuple[Callable[[bytes], Legend], tuple[bytes]]:
        return read, (self._text,)


NONE = Legend(())


@lru_cache(maxsize=512)
def read(text: bytes) -> Legend:
    """Read the lines below "Legend:"; `strange` counts those that are none of it, and entries that name nothing.

    Rows among them are those of a table without its header: then the legend is not whole, and no table behind them can be told.
    """
    found: dict[int, Metric | None] = {}
    strange, is_whole = 0, True
    for line in text.split(b"\n"):
        entry = ENTRY.fullmatch(line.strip())
        if entry is None:
            strange += bool(line.strip())
            is_whole = is_whole and not looks_like_one(line)
            continue
        metric = _metric(entry[2])
        strange += metric is None
        found[int(entry[1])] = metric
    # Numbers are those of columns; there can't be more columns than lines, whatever a broken number says.
    width = max(found, default=0)
    metrics = tuple(found.get(number) for number in range(1, 1 + min(len(found), width)))
    return Legend(metrics, width, strange, text, is_whole=is_whole)


def _metric(key: bytes) -> Metric | None:
    parts = key.decode(errors="replace").split("|")
    if len(key) > LONGEST or len(parts) < 3 or not all(map(_is_name, parts)):  # noqa: PLR2004 - host, sensor, counter
        return None
    return Metric(parts[0], parts[1], tuple(parts[2:-1]), parts[-1])


def _is_name(part: str) -> bool:
    return part == part.strip() != "" and part.isprintable() and "\ufffd" not in part
