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
from array import array
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from collectors.mmperfmon.parse_legend import CACHE_BYTES, NO_LEGEND, NULL, ROW, STAMP, UNITS, Output, Table, ends, lines, read_legend
from collectors.mmperfmon.parse_rectangles import MAX_SECTION_BYTES, STAMPS, json_to_floats, rectangles
from tokiod.dropped import Dropped
from tokiod.toolkit.bytes_cache import cached_for_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from collectors.mmperfmon.parse_legend import Legend

BLANK = b" \t\n"
TRUNCATED, NOT_A_ROW, NO_TABLE = "truncated", "not a row", "no table for a column"
NO_COLUMN, TOO_MANY = "no such column in the legend", "more columns than the legend has"
MALFORMED, COMMA, OTHER_UNIT, IMPOSSIBLE = "malformed row", "row with decimal commas", "row with an unknown unit", "impossible value"
WHOLE = "save the whole output, with its blanks"
REMEDIES = {TRUNCATED: WHOLE, COMMA: "query with LC_ALL=C"}
MAX_VALUE = 2.0**63
"""No sensor counts so far: larger values come from negative ones."""
INCOMPLETE = (TRUNCATED, NO_TABLE, NO_COLUMN, TOO_MANY)
"""Reasons that mean: a part of the output is missing or repeated."""

_TABLE = re.compile(rb"\n(?=[ \t]*Row[ \t]+Timestamp)")
_LEGEND = re.compile(rb"\n[ \t]*(?=Legend:)")
_OF_ROWS = b"0123456789.:- \t\nkKMGTPB"


class _Block(NamedTuple):
    """One table as printed; value: f8[columns, rows]; is_last: a broken table follows, so the next ones cannot be assigned."""

    numbers: tuple[int, ...]
    stamps: bytes
    value: NDArray[np.float64]
    is_last: bool = False


def parse(data: bytes) -> Output:
    """Parse one output or several in a row."""
    return parse_all([data])[0]


def parse_all(texts: Sequence[bytes]) -> list[Output]:
    """Parse texts, each of one output or several in a row. Many together take less time."""
    dropped = [Dropped() for _ in texts]
    whole = [_whole_lines(data, count) for data, count in zip(texts, dropped, strict=True)]
    found = []
    for data, count, tables in zip(whole, dropped, rectangles(whole), strict=True):
        if tables is not None:
            found.append(Output(tables, [table.legend for table in tables], count))
        else:
            found.append(_parse_irregular(data, count))
    return found


def _parse_irregular(data: bytes, dropped: Dropped) -> Output:
    output = Output(dropped=dropped)
    before, *rest = _sections(data, b"\nLegend:", b"Legend:", _LEGEND)
    _read(before, output, NO_LEGEND)
    for section in rest:
        _read(section.removeprefix(b"Legend:"), output)
    return output


def _whole_lines(data: bytes, dropped: Dropped) -> bytes:
    """Remove an incomplete last line, and put a newline in front where it is missing, so that every line follows one."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    end = data.rfind(b"\n") + 1
    if last := data[end:].strip():
        dropped.add(TRUNCATED, 1, last, WHOLE)
    return data[:end] if data.startswith(b"\n") else b"\n" + data[:end]


def _sections(data: bytes, plain: bytes, word: bytes, pattern: re.Pattern[bytes]) -> list[bytes]:
    """Split where lines begin in one way; the plain split is many times as fast, and right where the word occurs nowhere else."""
    found = data.split(plain)
    return found if len(found) - 1 == data.count(word) else pattern.split(data)


def _read(section: bytes, output: Output, legend: Legend | None = None) -> None:
    """Parse a legend and its tables."""
    text, *tables = _sections(section, b"\nRow ", b"Timestamp", _TABLE)
    if legend is None:
        legend = read_legend(text)
        output.legends.append(legend)
        output.dropped.add("unrecognised line in a legend", legend.unknown_lines, text.strip())
    else:
        output.dropped.add(NOT_A_ROW, _count_lines(text), text.strip())
    blocks: list[_Block] = []
    column, is_known, width = 0, legend.is_whole, 0
    for table in tables:
        header, _, body = table.partition(b"\n")
        if not header.lstrip().startswith(b"Row"):
            header = b"Row " + header
        words, names = header.split()[:2], header.split()[2:]
        if words != [b"Row", b"Timestamp"] or not names:
            output.dropped.add(NOT_A_ROW, 1 + _count_lines(body), header)
            is_known = False
            continue
        width += len(names)
        block = _block(header, len(names), body, output.dropped)
        # All names of a legend may be the same, so after a table that is not the expected one no other can be assigned. A table whose rows
        # do not begin with 1 is not the expected one: its header is repeated, and the rows may belong to the table before.
        is_next = block.numbers[:1] == (1,) or (block.numbers and not column)
        is_known = bool(is_known and is_next and legend.fits(column, names))
        if is_known:
            blocks.append(block)
            column += len(names)
            is_known = not block.is_last
        else:
            # A header without rows is of a time without data, or its only row was joined to it.
            values = int(np.count_nonzero(~np.isnan(block.value)))
            output.dropped.add(NO_COLUMN, max(not body.strip() and not legend.knows(names), values), b" ".join(names))
    if width > legend.width and blocks:  # a table is repeated, and which one is unknown
        output.dropped.add(TOO_MANY, sum(int(np.count_nonzero(~np.isnan(block.value))) for block in blocks), b" ".join(names))
        blocks.clear()
    output.dropped.add(NO_TABLE, len(legend.metrics) - column if is_known else 0, str((*legend.metrics[column:], "")[0] or ""))
    output.tables += _joined(blocks, legend, output.dropped)


def _count_lines(text: bytes) -> int:
    return sum(1 for _ in lines(text))


def _block(header: bytes, width: int, body: bytes, dropped: Dropped) -> _Block:
    if len(body) <= MAX_SECTION_BYTES and _are_whole(header, body) and (block := _regular(width, body)) is not None:
        return block
    return _irregular(header, body, dropped)


def _possible(value: NDArray[np.float64], dropped: Dropped) -> NDArray[np.float64]:
    """Drop values that no sensor measures."""
    if value.min(initial=0) >= 0 and value.max(initial=0) < MAX_VALUE:  # false also where there is a NaN
        return value
    impossible = (value < 0) | (value >= MAX_VALUE)
    if impossible.any():
        dropped.add(IMPOSSIBLE, int(np.count_nonzero(impossible)), f"{value[impossible][0]:g}")
        value[impossible] = np.nan
    return value


# Nearly all tables are regular: all rows have the same number of words with the same meaning. Then all words are read at once, several
# times as fast as row by row. The checks that ensure it: rows are numbered 1, 2, ... and each has a time stamp, so each begins where
# expected; the only letters are those of null and of units; and units are where the first row has them.
def _regular(width: int, body: bytes) -> _Block | None:
    """Parse the rows of a regular table; return None for others."""
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
        # JSON is decoded three times as fast as float() reads; numbers that JSON does not allow are left to the slow parser.
        texts = b",".join(chain.from_iterable([words[place::length] for place, _ in places]))
        value = np.fromiter(json_to_floats(b"[%b]" % texts), np.float64, width * rows).reshape(width, rows)
        for column, (place, has_unit) in enumerate(places):
            if has_unit:
                value[column] *= _scale(words[place + 1 :: length])
    except (msgspec.DecodeError, KeyError):
        return None
    return _Block(_row_numbers(rows), stamps, value)


def _places(words: list[bytes]) -> list[tuple[int, bool]]:
    """Return which words of a row are values, and whether a unit follows each."""
    units = [word in UNITS for word in [*words, b""]]
    return [(2 + place, units[place + 1]) for place in range(len(words)) if not units[place]]


def _scale(units: list[bytes]) -> float | NDArray[np.float64]:
    if units.count(units[0]) == len(units):
        return UNITS[units[0]]
    return np.array([UNITS[unit] for unit in units])


_FIRST_NUMBERS = tuple(range(1, 1441))


def _row_numbers(rows: int) -> tuple[int, ...]:
    return _FIRST_NUMBERS[:rows] if rows <= len(_FIRST_NUMBERS) else tuple(range(1, rows + 1))


_ROW_NUMBERS = [b"%d" % number for number in range(1, 1441)]


def _numbers(rows: int) -> list[bytes]:
    """Return the numbers of rows as printed."""
    return _ROW_NUMBERS[:rows] if rows <= len(_ROW_NUMBERS) else [b"%d" % number for number in range(1, rows + 1)]


@cached_for_bytes(CACHE_BYTES)
def _are_stamps(joined: bytes) -> bool:
    return STAMPS.fullmatch(joined) is not None


def _irregular(header: bytes, body: bytes, dropped: Dropped) -> _Block:
    """Parse the rows of a table one by one."""
    edges = ends(header)
    of_body = list(lines(body))
    whole: list[Row] = []
    last = 0
    for place, line in enumerate(of_body):
        found, begin = row(line, edges), ROW.match(line)
        # Another table begins without a readable header where rows are numbered from 1 again, or the first line is no row. Lost disk blocks
        # read as zeros, and may have been the end of this table and the beginning of another.
        if (not whole if begin is None else int(begin[1]) <= last) or b"\0" in line:
            dropped.add(NOT_A_ROW, len(of_body) - place, line.strip())
            return _block_of_rows(whole, len(edges) - 2, is_last=True)
        last = last if begin is None else int(begin[1])
        if isinstance(found, str):
            dropped.add(found, 1, line.strip(), REMEDIES.get(found, ""))
        else:
            whole.append((found[0], found[1], array("d", found[2])))
    return _block_of_rows(whole, len(edges) - 2, is_last=False)


def _block_of_rows(rows: list[Row], width: int, *, is_last: bool) -> _Block:
    value = np.array([values for _, _, values in rows], np.float64).reshape(len(rows), width)
    return _Block(tuple(number for number, _, _ in rows), b"".join(stamp for _, stamp, _ in rows), value.T.copy(), is_last)


# Numbers are right-aligned below the names, so a row that ends before its header has lost its end: its last number may be half of one.
def _are_whole(header: bytes, body: bytes) -> bool:
    """Return whether no row ends before the header does."""
    width = len(header.rstrip())
    return min((len(line) for line in body.strip(b"\n").rstrip(BLANK).split(b"\n")), default=width) >= width


# A cell may be the sum of columns in several tables, so what is lost of some is null there, as if mmperfmon had printed that: the sum is
# missing then, not too small.
def _joined(blocks: list[_Block], legend: Legend, dropped: Dropped) -> Iterator[Table]:
    """Join tables side by side, by the numbers of their rows; rows and columns that are lost are null."""
    if not blocks:
        return
    first = blocks[0]
    if all(block.stamps == first.stamps and block.numbers == first.numbers for block in blocks):
        stamps, value = first.stamps, np.concatenate([block.value for block in blocks])
    else:
        stamps, value = _by_row(blocks, dropped)
    if lost := len(legend.metrics) - len(value):
        value = np.concatenate([value, np.full((lost, value.shape[1]), np.nan)])
    yield Table(legend, 0, stamps, _possible(value, dropped).T)


def _by_row(blocks: list[_Block], dropped: Dropped) -> tuple[bytes, NDArray[np.float64]]:
    """Return the time stamps and f8[columns, rows] of tables whose rows differ; of rows that disagree on their time, the first counts."""
    known: dict[int, bytes] = {}
    for block in blocks:
        for number, stamp in zip(block.numbers, _stamps(block), strict=True):
            known.setdefault(number, stamp)
    place = {number: place for place, number in enumerate(sorted(known))}
    parts = []
    for block in blocks:
        stamps = _stamps(block)
        agrees = np.array([known[number] == stamp for number, stamp in zip(block.numbers, stamps, strict=True)], bool)
        lost = int(np.count_nonzero(~np.isnan(block.value[:, ~agrees])))
        if lost:
            first = int(np.argmin(agrees))
            row = block.numbers[first]
            dropped.add("contradicting time stamps", lost, b"row %d of %s and %s" % (row, known[row], stamps[first]))
        parts.append(np.full((len(block.value), len(known)), np.nan))
        parts[-1][:, [place[number] for number in block.numbers]] = np.where(agrees, block.value, np.nan)
    return b"".join(known[number] for number in sorted(known)), np.concatenate(parts)


def _stamps(block: _Block) -> list[bytes]:
    return [block.stamps[place : place + STAMP] for place in range(0, len(block.stamps), STAMP)]


Row = tuple[int, bytes, Sequence[float]]
"""Number, time stamp and values (NaN for null)."""

_NUMBER = re.compile(rb"-?\d{1,40}(\.\d{0,40})?([eE][-+]?\d{1,3})?")
_UNIT = re.compile(rb"[A-Za-z%/]{1,16}")
_COMMA = re.compile(rb"\d{1,40},\d{1,40}")


def row(line: bytes, edges: list[int]) -> Row | str:
    """Parse a line below a header with these ends; return the reason if that fails."""
    found = ROW.match(line)
    if found is None:
        return NOT_A_ROW
    if len(line) < edges[-1]:
        return TRUNCATED
    tokens = line[found.end() :].split()
    values = _values(tokens, len(edges) - 2)
    if values is None:
        values = _aligned(line, found.end(), edges)
    if values is not None:
        return int(found[1]), found[2], values
    if any(map(_COMMA.fullmatch, tokens)):
        return COMMA
    return OTHER_UNIT if any(_UNIT.fullmatch(token) and token not in {*UNITS, NULL} for token in tokens) else MALFORMED


def _values(tokens: list[bytes], count: int) -> list[float] | None:
    """Parse `count` numbers with or without units; return None for anything else."""
    values: list[float] = []
    before = b""
    for token in tokens:
        if token == NULL:
            values.append(math.nan)
        elif _NUMBER.fullmatch(token):
            values.append(float(token))
        elif token in UNITS and _NUMBER.fullmatch(before):
            values[-1] *= UNITS[token]
        else:
            return None
        before = token
    return values if len(values) == count else None


# Only its position below the names shows where a blank cell is. Values that are not exactly aligned are ambiguous.
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
