"""One row of a table, read with care: what is done where a table is not as regular as tables are."""

from __future__ import annotations

import math
import re
from itertools import pairwise

UNITS = {b"B": 1.0, b"kB": 1024.0, b"KB": 1024.0, b"MB": 1024.0**2, b"GB": 1024.0**3, b"TB": 1024.0**4, b"PB": 1024.0**5}
NULL = b"null"

Row = tuple[int, bytes, list[float]]
"""Its number, time stamp and values (NaN: null)."""

_ROW = re.compile(rb"[ \t]*([1-9]\d{0,8})[ \t]+(\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d)(?=[ \t]|$)")
_NUMBER = re.compile(rb"-?\d{1,40}(\.\d{0,40})?([eE][-+]?\d{1,3})?")
_UNIT = re.compile(rb"[A-Za-z%/]{1,16}")
_NAME = re.compile(rb"\S+")


def ends(header: bytes) -> list[int]:
    """Return where the names of a header end, those of "Row" and "Timestamp" first: numbers are right-aligned below them."""
    return [name.end() for name in _NAME.finditer(header)]


def looks_like_one(line: bytes) -> bool:
    """Tell whether a line begins as a row does."""
    return _ROW.match(line) is not None


def row(line: bytes, edges: list[int]) -> Row | str:
    """Read a line of a table whose header has these ends; or return what is wrong with it."""
    found = _ROW.match(line)
    if found is None:
        return "not a row"
    values = _values(line[found.end() :].split(), len(edges) - 2)
    if values is None:
        values = _aligned(line, found.end(), edges)
    return "row not understood" if values is None else (int(found[1]), found[2], values)


def _values(tokens: list[bytes], count: int) -> list[float] | None:
    """Read as many numbers as there are columns, each with a unit or none; None where there are more, fewer or other things."""
    values: list[float] = []
    before = b""
    for token in tokens:
        if token == NULL:
            values.append(math.nan)
        elif _NUMBER.fullmatch(token):
            values.append(float(token))
        elif _UNIT.fullmatch(token) and _NUMBER.fullmatch(before):
            # A unit that nobody knows makes no bytes: infinite, and so counted with what is no finite number.
            values[-1] *= UNITS.get(token, math.inf) if values[-1] else UNITS.get(token, 1.0)
        else:
            return None
        before = token
    return values if len(values) == count else None


# A cell that was left blank shows only by what stands below which name. Whatever does not stand exactly there may be anything.
def _aligned(line: bytes, start: int, edges: list[int]) -> list[float] | None:
    if start > edges[1] or len(line.rstrip()) > edges[-1] or len(line) < edges[-1]:
        return None
    values: list[float] = []
    for left, right in pairwise(edges[1:]):
        cell = line[left:right]
        if not cell.strip():
            values.append(math.nan)
            continue
        one = _values(cell.split(), 1) if cell[:1].isspace() and not cell[-1:].isspace() else None
        if one is None:
            return None
        values += one
    return values
