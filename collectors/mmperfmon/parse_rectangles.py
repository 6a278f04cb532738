"""Parse an output whose tables have lines of one length, as nearly all have: all numbers at once.

Numbers are right-aligned below the names of their columns. So a table is a rectangle of bytes: with commas between its columns and without
the units of its numbers it is JSON, which is decoded many times as fast as words are. Tables with the same header and length form one
rectangle.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from collectors.mmperfmon.parse_legend import CACHE_BYTES, STAMP, UNITS, Table, ends, read_legend
from tokiod.toolkit.bytes_cache import cached_for_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

BLANK, NEWLINE, COMMA, BRACKET = b" \n,]"

json_to_floats = msgspec.json.Decoder(list[float | None]).decode
STAMPS = re.compile(rb"(?:\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d)+")

_ENDS_COLUMN = np.isin(np.arange(256), [BLANK, NEWLINE])
_ENDS_NUMBER = np.isin(np.arange(256), list(b"0123456789l"))
"""By byte: may a column end with it; may a number without a unit end with it; l is the last letter of null."""
_SCALES = np.full(256, np.nan)
for _unit, _scale in UNITS.items():
    _SCALES[_unit.rjust(2)[0]] = _scale


MAX_SECTION_BYTES = 16 << 20
"""Larger outputs are parsed row by row: the numbers of a text, as objects of Python, take up to sixteen times its memory."""


class _Header(NamedTuple):
    names: tuple[bytes, ...]
    edges: tuple[int, ...]
    """The ends of the names, that of "Timestamp" first."""


def rectangles(data: bytes) -> list[Table] | None:
    """Parse outputs that begin with a newline and consist of legends and regular tables; return None for other outputs."""
    before, *sections = data.split(b"\nLegend:")
    if before.strip():
        return None
    found = []
    for section in sections:
        table = _section(section)
        if table is None:
            return None
        found.append(table)
    return found


def _section(section: bytes) -> Table | None:
    if len(section) > MAX_SECTION_BYTES:
        return None
    text, *tables = section.split(b"\nRow ")
    legend = read_legend(text)
    parted = [table.partition(b"\n") for table in tables]
    headers = [_header(header) for header, _, _ in parted]
    names = [name for header in headers for name in header.names]
    if (
        legend.unknown_lines
        or not all(header.names for header in headers)
        or legend.width != len(names)
        or names != legend.counters
        or not names
    ):
        return None
    values, stamps = [], set()
    for (header, _), alike in groupby(zip(headers, (body.rstrip() for _, _, body in parted), strict=True), _shape):
        block = _block(header, [body for _, body in alike])
        if block is None:
            return None
        stamps.add(block[0])
        values.append(block[1])
    if len(stamps) > 1:
        return None
    return Table(legend, 0, stamps.pop(), values[0] if len(values) == 1 else np.concatenate(values, axis=1))


def _shape(table: tuple[_Header, bytes]) -> tuple[_Header, int]:
    return table[0], len(table[1])


@cached_for_bytes(CACHE_BYTES)
def _header(behind_row: bytes) -> _Header:
    """Parse the line of names after "Row "; without names if it is not a header."""
    header = b"Row " + behind_row
    first, *names = header.split()[1:] or [b""]
    return _Header(tuple(names) if first == b"Timestamp" else (), tuple(ends(header)[1:]))


def _block(header: _Header, bodies: list[bytes]) -> tuple[bytes, NDArray[np.float64]] | None:
    """Return the time stamps and f8[rows, columns] of tables with one header and length, side by side."""
    start, *edges = header.edges
    lines = _lines(bodies, edges[-1])
    if lines is None or (lines[:, :, start] != BLANK).any() or not _ENDS_COLUMN[lines[:, :, edges]].all():
        return None
    tables, rows, _ = lines.shape
    stamps = _stamps(lines[0, :, :start].tobytes(), rows)
    scale = _without_units(lines, np.array(edges) - 1)
    if not stamps or scale is None or (tables > 1 and (lines[1:, :, :start] != lines[0, :, :start]).any()):
        return None
    lines[:, :, :start] = BLANK
    lines[:, :, edges] = COMMA
    lines[-1, -1, edges[-1]] = BRACKET
    numbers = _numbers(b"[" + lines.tobytes())
    if len(numbers) != tables * rows * len(edges):
        return None  # the text contained a comma
    value = np.fromiter(numbers, np.float64, len(numbers)).reshape(tables, rows, len(edges)) * scale
    if ((value < 0) | (value == np.inf)).any():
        return None  # no sensor measures that
    return stamps, value.transpose(1, 0, 2).reshape(rows, tables * len(edges))


def _numbers(text: bytes) -> list[float | None]:
    if b"e" in text or b"E" in text:
        return []  # only the slow parser limits exponents
    try:
        return json_to_floats(text)
    except msgspec.DecodeError:
        return []


def _lines(bodies: list[bytes], width: int) -> NDArray[np.uint8] | None:
    """Return u1[tables, rows, length] of tables without trailing blanks, if all lines have one length of at least `width`."""
    length = bodies[0].find(b"\n") + 1 or len(bodies[0]) + 1
    before_last, rest = divmod(len(bodies[0]), length)
    if length <= width or not rest:
        return None
    rows = before_last + 1
    size = rows * length
    found = np.frombuffer(bytearray().join(_filled(bodies, size)), np.uint8).reshape(len(bodies), rows, length)
    is_newline = found == NEWLINE
    return found if is_newline[:, :, -1].all() and np.count_nonzero(is_newline) == len(bodies) * rows else None


def _filled(bodies: Iterable[bytes], size: int) -> Iterable[bytes]:
    for body in bodies:
        yield body.ljust(size - 1)
        yield b"\n"


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


def _without_units(lines: NDArray[np.uint8], last: NDArray[np.int64]) -> NDArray[np.float64] | float | None:
    """Replace units by blanks; return the factor of each number, None if something else is at the end of a number."""
    ending = lines[:, :, last]
    if _ENDS_NUMBER[ending].all():
        return 1.0
    has_unit = ending == ord("B")
    prefix, before = lines[:, :, last - 1], lines[:, :, last - 2]
    scale = np.where(has_unit, _SCALES[prefix], 1.0)
    is_apart = (prefix == BLANK) | (before == BLANK)
    if np.isnan(scale).any() or not (is_apart | ~has_unit).all() or not (_ENDS_NUMBER[ending] | has_unit).all():
        return None
    lines[:, :, last] = np.where(has_unit, BLANK, ending)
    lines[:, :, last - 1] = np.where(has_unit, BLANK, prefix)
    return scale
