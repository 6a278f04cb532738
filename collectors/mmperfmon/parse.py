"""The output of `mmperfmon query`, bytes in, numbers out.

    output   (blank | "Legend:" entry* | table)*
    entry    number ":" key                             of the column
    table    "Row" "Timestamp" name* newline row*       the next columns of the legend, in its order
    row      number stamp (value [unit] | "null")*      right-aligned below the names

The legend comes once. What does not fit the terminal's width goes into more tables with the same rows. A row counts only if it is whole,
with all of its columns and a newline: half a number is a number too.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from collectors.mmperfmon.parse_legend import NO_LEGEND, NULL, ROW, STAMP, UNITS, Output, Table, ends, read_legend
from collectors.mmperfmon.parse_rectangles import STAMPS, json_to_floats, rectangles

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from collectors.mmperfmon.parse_legend import Legend

BLANK = b" \t\n"
CUT, STRANGE, NO_TABLE = "cut short", "not a row", "no table for a column"
NO_COLUMN, TOO_MANY = "no such column in the legend", "more columns than the legend has"
UNWHOLE = (CUT, NO_TABLE, NO_COLUMN, TOO_MANY)
"""What is dropped where a part of an output is missing or stands there twice."""

_TABLE = re.compile(rb"\n(?=[ \t]*Row[ \t]+Timestamp)")
_LEGEND = re.compile(rb"\n[ \t]*(?=Legend:)")
_OF_ROWS = b"0123456789.:- \t\nkKMGTPB"


class _Block(NamedTuple):
    """One table as it stands there; value: f8[columns, rows]; is_last: a broken one follows, so that no other can be told."""

    numbers: tuple[int, ...]
    stamps: bytes
    value: NDArray[np.float64]
    is_last: bool = False


def parse(data: bytes) -> Output:
    """Read an output, or several behind one another."""
    output = Output()
    data = _whole(data, output.dropped)
    if (tables := rectangles(data)) is not None:
        return Output(tables, [table.legend for table in tables], +output.dropped)
    before, *rest = _sections(data, b"\nLegend:", b"Legend:", _LEGEND)
    _read(before, output, NO_LEGEND)
    for section in rest:
        _read(section.removeprefix(b"Legend:"), output)
    output.dropped = +output.dropped
    return output


def _whole(data: bytes, dropped: Counter[str]) -> bytes:
    """Leave out a last line without its end, and begin with a newline so that one stands before every line."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    end = data.rfind(b"\n") + 1
    dropped[CUT] += bool(data[end:].strip())
    return b"\n" + data[:end]


def _sections(data: bytes, plain: bytes, word: bytes, odd: re.Pattern[bytes]) -> list[bytes]:
    """Cut where lines begin in one way; the plain way is many times as fast, and right where the word stands nowhere else."""
    found = data.split(plain)
    return found if len(found) - 1 == data.count(word) else odd.split(data)


def _read(section: bytes, output: Output, legend: Legend | None = None) -> None:
    """Read a legend and its tables."""
    text, *tables = _sections(section, b"\nRow ", b"Timestamp", _TABLE)
    if legend is None:
        legend = read_legend(text)
        output.legends.append(legend)
        output.dropped["legend not understood"] += legend.strange
    else:
        output.dropped[STRANGE] += _lines(text)
    blocks: list[_Block] = []
    column, is_known, width = 0, legend.is_whole, 0
    for table in tables:
        header, _, body = table.partition(b"\n")
        if not header.lstrip().startswith(b"Row"):
            header = b"Row " + header
        words, names = header.split()[:2], header.split()[2:]
        if words != [b"Row", b"Timestamp"] or not names:
            output.dropped[STRANGE] += 1 + _lines(body)
            is_known = False
            continue
        width += len(names)
        block = _block(header, len(names), body, output.dropped)
        # All names of a legend may be the same, so behind a table that is not the next one no other can be told either. Nor is it one if
        # its rows don't begin with the first: then a header stands there twice, and what is behind it may belong to the table before.
        is_next = block.numbers[:1] == (1,) or (block.numbers and not column)
        is_known = bool(is_known and is_next and names == legend.counters[column : column + len(names)])
        if is_known:
            blocks.append(block)
            column += len(names)
            is_known = not block.is_last
        else:
            output.dropped[NO_COLUMN] += int(np.count_nonzero(~np.isnan(block.value)))
    if width > legend.width and blocks:  # one of the tables stands there twice, and which one it is can't be told
        output.dropped[TOO_MANY] += sum(int(np.count_nonzero(~np.isnan(block.value))) for block in blocks)
        blocks.clear()
    output.dropped[NO_TABLE] += len(legend.metrics) - column if is_known else 0
    output.tables += _joined(blocks, legend, output.dropped)


def _lines(text: bytes) -> int:
    return sum(1 for line in text.split(b"\n") if line.strip())


def _block(header: bytes, width: int, body: bytes, dropped: Counter[str]) -> _Block:
    if not _is_cut(header, body) and (block := _regular(width, body)) is not None:
        return block
    return _irregular(header, body, dropped)


def _possible(value: NDArray[np.float64], dropped: Counter[str]) -> NDArray[np.float64]:
    """Leave out what no sensor measures."""
    if value.min(initial=0) >= 0 and value.max(initial=0) < np.inf:  # false also where there is a NaN
        return value
    impossible = (value < 0) | (value == np.inf)
    if impossible.any():
        dropped["no possible amount"] += int(np.count_nonzero(impossible))
        value[impossible] = np.nan
    return value


# Nearly every table is regular: as many words in each row, of the same meaning. Then all words at once are read at several times the
# speed of a row at a time. What makes sure of it: rows are numbered 1, 2, ... and all have a time stamp behind that, so each begins where
# it should; there are no letters but of null and of units; and units stand where the first row has them.
def _regular(width: int, body: bytes) -> _Block | None:
    """Read the rows of a table, if it is such a one."""
    words, rows = body.split(), body.strip(BLANK).count(b"\n") + 1
    length, rest = divmod(len(words), rows)
    if not words or rest or length < 2 + width or body.translate(None, _OF_ROWS).replace(NULL, b""):
        return None
    stamps = b"".join(words[1::length])
    if words[::length] != _numbers(rows) or len(stamps) != STAMP * rows or not _are_stamps(stamps):
        return None
    places = _places(words[2:length])
    if len(places) != width:
        return None
    try:
        # As JSON they are read three times as fast as by float(); what JSON doesn't know is a row at a time's business.
        texts = b",".join(chain.from_iterable([words[place::length] for place, _ in places]))
        value = np.fromiter(json_to_floats(b"[%b]" % texts), np.float64, width * rows).reshape(width, rows)
        for column, (place, has_unit) in enumerate(places):
            if has_unit:
                value[column] *= _scale(words[place + 1 :: length])
    except (msgspec.DecodeError, KeyError):
        return None
    return _Block(_counted(rows), stamps, value)


def _places(words: list[bytes]) -> list[tuple[int, bool]]:
    """Return which words of a row are values, and whether a unit follows."""
    units = [word in UNITS for word in [*words, b""]]
    return [(2 + place, units[place + 1]) for place in range(len(words)) if not units[place]]


def _scale(units: list[bytes]) -> float | NDArray[np.float64]:
    if units.count(units[0]) == len(units):
        return UNITS[units[0]]
    return np.array([UNITS[unit] for unit in units])


@lru_cache(maxsize=256)
def _counted(rows: int) -> tuple[int, ...]:
    return tuple(range(1, rows + 1))


_longest = [b"%d" % number for number in range(1, 1441)]


def _numbers(rows: int) -> list[bytes]:
    """Return the numbers of so many rows, as they stand there."""
    return _longest[:rows] if rows <= len(_longest) else [b"%d" % number for number in range(1, rows + 1)]


@lru_cache(maxsize=256)
def _are_stamps(joined: bytes) -> bool:
    return STAMPS.fullmatch(joined) is not None


def _irregular(header: bytes, body: bytes, dropped: Counter[str]) -> _Block:
    """Read the rows of a table one by one."""
    edges = ends(header)
    lines = [line for line in body.split(b"\n") if line.strip()]
    if _is_cut(header, body):
        lines.pop()
        dropped[CUT] += 1
    whole: list[Row] = []
    for place, line in enumerate(lines):
        found = row(line, edges)
        # What a disk has lost reads as zeros, and may have been the end of this table and the beginning of another.
        if _is_of_another(found, whole) or b"\0" in line:
            dropped[STRANGE] += len(lines) - place
            return _made(whole, len(edges) - 2, is_last=True)
        if isinstance(found, str):
            dropped[found] += 1
        else:
            whole.append(found)
    return _made(whole, len(edges) - 2, is_last=False)


def _is_of_another(found: Row | str, before: list[Row]) -> bool:
    """Tell whether a table begins whose header is not one: its rows are numbered from 1 again, or its header stands instead of rows."""
    return not before if found == STRANGE else not isinstance(found, str) and bool(before) and found[0] <= before[-1][0]


def _made(rows: list[Row], width: int, *, is_last: bool) -> _Block:
    value = np.array([values for _, _, values in rows], np.float64).reshape(len(rows), width)
    return _Block(tuple(number for number, _, _ in rows), b"".join(stamp for _, stamp, _ in rows), value.T.copy(), is_last)


def _is_cut(header: bytes, body: bytes) -> bool:
    """Tell whether a table's last row ends before its last column does, and is so one of an output that another follows."""
    *_, before, last = [header, *body.strip(b"\n").rstrip(BLANK).rsplit(b"\n", 2)[-2:]]
    return bool(last) and len(last) < len(header.rstrip()) and len(last) < len(before.rstrip())


def _joined(blocks: list[_Block], legend: Legend, dropped: Counter[str]) -> Iterator[Table]:
    """Put tables that have the same rows beside one another, and what agrees of the others behind them."""
    if not blocks:
        return
    first = blocks[0]
    if all(block.stamps == first.stamps and block.numbers == first.numbers for block in blocks):
        yield Table(legend, 0, first.stamps, _possible(np.concatenate([block.value for block in blocks]), dropped).T)
        return
    known: dict[int, bytes] = {}
    column = 0
    for block in blocks:
        yield _agreeing(block, known, legend, column, dropped)
        column += len(block.value)


def _agreeing(block: _Block, known: dict[int, bytes], legend: Legend, column: int, dropped: Counter[str]) -> Table:
    stamps = [block.stamps[place : place + STAMP] for place in range(0, len(block.stamps), STAMP)]
    agrees = np.array([known.setdefault(*one) == one[1] for one in zip(block.numbers, stamps, strict=True)], bool)
    dropped["stamps disagree"] += int(np.count_nonzero(~np.isnan(block.value[:, ~agrees])))
    kept = b"".join(stamp for stamp, agree in zip(stamps, agrees.tolist(), strict=True) if agree)
    return Table(legend, column, kept, _possible(block.value[:, agrees], dropped).T)


Row = tuple[int, bytes, list[float]]
"""Its number, time stamp and values (NaN: null)."""

_NUMBER = re.compile(rb"-?\d{1,40}(\.\d{0,40})?([eE][-+]?\d{1,3})?")
_UNIT = re.compile(rb"[A-Za-z%/]{1,16}")


def row(line: bytes, edges: list[int]) -> Row | str:
    """Read a line of a table whose header has these ends; or return what is wrong with it."""
    found = ROW.match(line)
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
