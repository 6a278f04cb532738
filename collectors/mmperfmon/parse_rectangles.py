"""Parse outputs whose tables have lines of one length, as nearly all have: the numbers of many tables at once.

Numbers are right-aligned below the names of their columns, so a table is a rectangle of bytes. Tables with the same header, length of
lines and number of rows form one rectangle, those of several outputs, too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from collectors.mmperfmon.parse_legend import CACHE_BYTES, STAMP, Table, ends, read_legend
from collectors.mmperfmon.parse_numbers import PADDING, right_aligned
from tokiod.toolkit.bytes_cache import cached_for_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from collectors.mmperfmon.parse_legend import Legend

BLANK, NEWLINE = b" \n"
LEGEND, TABLE = b"Legend:", b"Row "

json_to_floats = msgspec.json.Decoder(list[float | None]).decode
STAMPS = re.compile(rb"(?:\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d)+")
_BLANKS = re.compile(rb"[ \t\n]*")

MAX_SECTION_BYTES = 16 << 20
"""Larger outputs are parsed row by row: the numbers of a text, as objects of Python, take up to sixteen times its memory."""
NUMBERS_AT_ONCE = 1 << 13
"""So many stay in the processor's caches."""


class _Header(NamedTuple):
    names: tuple[bytes, ...]
    edges: tuple[int, ...]
    """The ends of the names, that of "Timestamp" first."""


class _Shape(NamedTuple):
    """header: the line of names, behind "Row "; length: of a line, with its newline."""

    header: bytes
    length: int
    rows: int


class _Run(NamedTuple):
    """Tables of one shape, one after the other in an output: those of the shape from `first` to `end`."""

    shape: _Shape
    first: int
    end: int

    @property
    def names(self) -> tuple[bytes, ...]:
        """The names of all columns."""
        return _header(self.shape.header).names * (self.end - self.first)


class _Section(NamedTuple):
    legend: Legend
    runs: list[_Run]


class _Rectangle(NamedTuple):
    """All tables of a shape. beginnings: of their lines, up to the values, u1[tables, bytes]; value: f8[tables, columns, rows].

    is_valid: of each table, whether it is regular; one that is not means nothing.
    """

    beginnings: NDArray[np.uint8]
    value: NDArray[np.float64]
    is_valid: NDArray[np.bool_]


Bodies = dict[_Shape, list[memoryview]]


def rectangles(outputs: Sequence[bytes]) -> list[list[Table] | None]:
    """Parse outputs that consist of whole lines, legends and regular tables; None for each other output."""
    bodies: Bodies = {}
    found = [_sections(data, bodies) for data in outputs]
    parsed = {shape: _rectangle(shape, some) for shape, some in bodies.items()}
    return [None if sections is None else _tables(sections, parsed) for sections in found]


def _sections(data: bytes, bodies: Bodies) -> list[_Section] | None:
    """Find legends and tables, and add the tables to those of their shape."""
    found, place = [], _behind_blanks(data, 0)
    while place < len(data):
        end = data.find(b"\n" + TABLE, place)
        if not _is_line(data, place, LEGEND) or end < 0:
            return None
        legend, begin = read_legend(data[place + len(LEGEND) : end]), place
        following = data.find(LEGEND[:1], end)
        runs, place = [], end + 1
        while _is_line(data, place, TABLE):
            if 0 <= following < place:
                following = data.find(LEGEND[:1], place)
            run = _run(data, place, following, bodies)
            if run is None or run[1] - begin > MAX_SECTION_BYTES:
                return None
            runs.append(run[0])
            place = run[1]
        found.append(_Section(legend, runs))
    return found


def _is_line(data: bytes, place: int, beginning: bytes) -> bool:
    return data.startswith(beginning, place) and (not place or data[place - 1] == NEWLINE)


def _behind_blanks(data: bytes, place: int) -> int:
    found = _BLANKS.match(data, place)
    return found.end() if found else place


# No row has the first letter of a header or of a legend, so the next one is found as fast as memory is read. The tables behind it are
# expected where they are if they have the same shape; where one has another, its parts that are taken for rows are no rows.
def _run(data: bytes, place: int, following: int, bodies: Bodies) -> tuple[_Run, int] | None:
    """Return tables with the shape of the first one, which is at `place`, and what is behind them; following: the next legend, if any."""
    begin = data.find(b"\n", place) + 1
    length = data.find(b"\n", begin) + 1 - begin
    stop = min((there for there in (data.find(TABLE[:1], begin), following) if there > place), default=len(data))
    rows = max(0, stop - begin) // length if begin and length > 1 else 0
    end = begin + rows * length
    if not rows or data[end:stop].strip(b" \t\n"):
        return None
    shape, between = _Shape(data[place + len(TABLE) : begin], length, rows), data[end:stop] + data[place:begin]
    found, view = bodies.setdefault(shape, []), memoryview(data)
    first = len(found)
    found.append(view[begin:end])
    while data.startswith(between, end):
        begin = end + len(between)
        end = begin + rows * length
        found.append(view[begin:end])
    if end > len(data):
        found.pop()
        return None
    return _Run(shape, first, len(found)), _behind_blanks(data, end)


def _tables(sections: list[_Section], parsed: dict[_Shape, _Rectangle]) -> list[Table] | None:
    found = []
    for legend, runs in sections:
        names = [name for run in runs for name in run.names]
        if legend.unknown_lines or legend.width != len(names) or names != legend.counters or not names:
            return None
        stamps, values = set(), []
        for shape, first, end in runs:
            every = parsed[shape]
            beginnings = every.beginnings[first:end]
            if not every.is_valid[first:end].all() or (beginnings[1:] != beginnings[0]).any():
                return None
            stamps.add(_stamps(beginnings[0].tobytes(), shape.rows))
            values.append(every.value[first:end].transpose(2, 0, 1).reshape(shape.rows, -1))
        if len(stamps) > 1 or b"" in stamps:
            return None
        found.append(Table(legend, 0, stamps.pop(), values[0] if len(values) == 1 else np.concatenate(values, axis=1)))
    return found


@cached_for_bytes(CACHE_BYTES)
def _header(behind_row: bytes) -> _Header:
    """Parse the line of names after "Row "; without names if it is not a header."""
    header = TABLE + behind_row
    first, *names = header.split()[1:] or [b""]
    return _Header(tuple(names) if first == b"Timestamp" else (), tuple(ends(header)[1:]))


def _rectangle(shape: _Shape, bodies: list[memoryview]) -> _Rectangle:
    names, edges = _header(shape.header)
    tables, rows, length = len(bodies), shape.rows, shape.length
    if not names or edges[-1] >= length:
        return _Rectangle(np.empty((tables, 0), np.uint8), np.empty((tables, 0, 0)), np.zeros(tables, bool))
    padding = b" " * PADDING
    memory = np.frombuffer(b"".join([padding, *bodies, padding]), np.uint8)
    lines = memory[PADDING:-PADDING].reshape(tables, rows, length)
    is_valid = (lines[:, :, -1] == NEWLINE).all(axis=1)
    is_valid &= (lines.take([*edges[:-1], *range(edges[-1], length - 1)], axis=2) == BLANK).all(axis=(1, 2))
    value, of_lines = np.empty((len(names), tables * rows)), np.arange(PADDING, PADDING + tables * rows * length, length)
    for some in _parts(tables * rows, max(1, NUMBERS_AT_ONCE // len(names))):
        value[:, some], is_number = right_aligned(memory, of_lines[some], np.array(edges[:-1]) + 1, np.array(edges[1:]))
        if not is_number.all():
            is_valid[np.unique(np.arange(tables * rows)[some][~is_number.all(axis=0)] // rows)] = False
    of_tables = value.reshape(len(names), tables, rows).transpose(1, 0, 2)
    return _Rectangle(lines[:, :, : edges[0]].reshape(tables, -1), of_tables, is_valid)


def _parts(count: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


# Outputs of one hour have the same rows, so nearly all calls are answered from the cache.
@cached_for_bytes(CACHE_BYTES)
def _stamps(beginnings: bytes, rows: int) -> bytes:
    """Return the time stamps of rows with these beginnings, if they are numbered 1, 2, ...; else b""."""
    if beginnings.translate(None, b"0123456789:- \t"):
        return b""
    length = len(beginnings) // rows
    words = [beginnings[place : place + length].split() for place in range(0, len(beginnings), length)]
    if any(len(pair) != 2 or pair[0] != b"%d" % number for number, pair in enumerate(words, 1)):  # noqa: PLR2004 - number and stamp
        return b""
    stamps = b"".join(stamp for _, stamp in words)
    return stamps if all(len(stamp) == STAMP for _, stamp in words) and STAMPS.fullmatch(stamps) else b""
