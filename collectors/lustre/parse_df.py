r"""Parse what `lfs df` and `lfs df -i` print, of one file system or several.

    UUID                   1K-blocks        Used   Available Use% Mounted on
    snx11035-MDT0000_UUID  2255453580   115237564  2106016404   5% /scratch2[MDT:0]
    snx11035-OST0015_UUID 90767651352 65387344040 24423870832  73% /scratch2[OST:21] DR
    lustre-OST0003_UUID : inactive device

    filesystem_summary:  2178423632448 1560557556800 594839593984  72% /scratch2

`lfs df -i` prints the same with "Inodes IUsed IFree IUse%" in the header; `--output` any of these columns in any order, and Free; -h and -H
"bytes" instead of 1K-blocks, and figures such as 28.9T. A name is any file system's, with "-" and "_" in it; its last four digits are
hexadecimal, the index in brackets is decimal. Flags may follow. A row counts only between a header, which names its columns, and the
summary: a name whose beginning was lost could be taken for another name.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokiod.dropped import Dropped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Possessive quantifiers: no row is scanned twice. Truncated digits never make another number, because a row counts only with the index
# in its brackets.
_FIGURE = r"(-?\d{1,20}+(?:\.\d{1,6}+)?+[A-Za-z]?+)"
_CELLS = {
    "UUID": r"([!-~]{1,100}+)",
    **dict.fromkeys(("1K-blocks", "bytes", "Used", "Free", "Available", "Avail", "Inodes", "IUsed", "IFree"), _FIGURE),
    **dict.fromkeys(("Use%", "IUse%"), r"(-?\d{1,20}+%|-)"),
    "Mounted on": r"(/[^\[\n]*+\[(?:OST|MDT):\d{1,9}\])",
}
_NAMES = "|".join(re.escape(name) for name in sorted(_CELLS, key=len, reverse=True))
_HEADER = re.compile(rf"\n[ \t]*+(UUID(?=[ \t])[^\n]*+|(?:(?:{_NAMES})[ \t\r]*+)++(?=\n|\Z))", re.ASCII)
_NAME = re.compile(rf"{_NAMES}|\S+", re.ASCII)
_ANY_ROW = re.compile(r"\S*(?:OST|MDT)[0-9a-f]{4}_UUID[ \t]+[^\s:]", re.ASCII)
_SUMMARY = re.compile(r"\n[^\n]*filesystem[ _]summary:[^\n]*")
_ERROR = re.compile(r"(?:[!-9;-~]+-)?(?:OST|MDT)[0-9a-f]{4}(?:_UUID)?[ \t]*+:[ \t]++(\S[^\n]*?)[ \t\r]*", re.ASCII)
_IS_SUMMARY = re.compile(r"filesystem[ _]summary:")
_FLAGS = r"[ \t]*+[A-Za-z?()0-9]*+[ \t\r]*+"
_PLAIN_HEADERS = {
    ("UUID", "1K-blocks", "Used", "Available", "Use%", "Mounted on"),
    ("UUID", "Inodes", "IUsed", "IFree", "IUse%", "Mounted on"),
}
_PLAIN_ROW = re.compile(
    rf"^{_CELLS['UUID']}[ \t]++(\d{{1,17}}+[ \t]++\d{{1,17}}+[ \t]++\d{{1,17}}+[ \t]++\d{{1,3}}+)%[ \t]++{_CELLS['Mounted on']}{_FLAGS}$",
    re.MULTILINE | re.ASCII,
)
_NOT_BLANK = re.compile(r"^[^\S\n]*+(\S[^\n]*)", re.MULTILINE)
_ROUNDED = re.compile(r"(?<=[ \t])(\d{1,4}\.\d)([KkMGTPEZY])(?=\s)", re.ASCII)

SUFFIXES = "KMGTPEZY"
BINARY, DECIMAL = 1024, 1000
LIMIT = 2**53
"""KiB and inodes are fewer: so many KiB are 2**63 bytes, which servers print for a negative size."""

RESERVE = 0.1
"""How much of a size may be neither used nor available: ldiskfs keeps 5 % for root and servers grant some to clients, of inodes nothing."""

INACTIVE = "target that is inactive"
ERROR = "target that answered with an error"
NO_HEADER = "row without a header"
NO_COLUMNS = "row below a header without the columns that are needed"
NO_ROWS = "header without rows"
SUMMARY_ONLY = "summary without targets"
CONTRADICTION = "row that contradicts itself"
OUT_OF_RANGE = "row with a size that no target has"
REPEATED = "row of a target that was listed before"
ROUNDED = "digits that lfs df -h rounds away"
EITHER_UNIT = "row of lfs df -h or -H, whose unit is unclear"
UNRECOGNISED = "unrecognised line in lfs df"
STATES = (INACTIVE, ERROR)
"""Reasons that are a state of the file system, not a fault of the output."""
REMEDIES = {
    NO_HEADER: "save plain `lfs df`, whole",
    NO_COLUMNS: "save plain `lfs df`, or -u source,size,used,avail,target",
    NO_ROWS: "save plain `lfs df`, whole",
    SUMMARY_ONLY: "save `lfs df` without -s",
    REPEATED: "write a line `BEGIN <epoch seconds>` before each output",
    ROUNDED: "save `lfs df` without -h for exact sizes",
    EITHER_UNIT: "save `lfs df` without -h and -H",
}


class Figures(NamedTuple):
    """The size of a target and its use, and how far they may be from what was printed rounded."""

    size: float
    used: float
    size_within: float = 0.0
    used_within: float = 0.0

    def agree(self, other: Figures) -> bool:
        """Return whether both may be of one moment."""
        return (
            abs(self.size - other.size) <= self.size_within + other.size_within
            and abs(self.used - other.used) <= self.used_within + other.used_within
        )


Read = dict[str, tuple[float, float] | Figures]
"""What was read of targets; of plain rows only the size and the use."""


class _Unusable(Exception):  # noqa: N818 - it has the reason, and leaves no caller
    """A row that gives no cell."""


@dataclass(slots=True)
class Listing:
    """Size and use of each target, by name without _UUID: targets in KiB, inodes of `lfs df -i`. dropped: other lines, by reason.

    The first row of a target counts: a file system may be mounted twice, and a row with other figures belongs to another output whose
    beginning was lost. Of an exact row and a rounded one that agree, the exact one counts.
    """

    targets: dict[str, tuple[float, float]] = field(default_factory=dict)
    inodes: dict[str, tuple[float, float]] = field(default_factory=dict)
    dropped: Dropped = field(default_factory=Dropped)
    headers: int = 0


class _Kind(NamedTuple):
    """Where a row has the figures of one kind, -1 for none, and what they may look like. reserve: see RESERVE."""

    size: int
    used: int
    free: int
    available: int
    share: int
    reserve: float
    can_have_unit: bool = False
    is_bytes: bool = False


class _Columns(NamedTuple):
    """Where a row has its cells, by the header. blocks, inodes: None without the columns; is_plain: whether these are lfs df's own."""

    pattern: re.Pattern[str]
    name: int
    place: int
    blocks: _Kind | None
    inodes: _Kind | None
    is_plain: bool


def units(text: bytes) -> frozenset[int]:
    """Return what the figures of -h or -H in a text show of their units: BINARY, DECIMAL, both, or nothing.

    Only -H prints "k", only -h prints "K" and more than 1000 of a unit.
    """
    return _units(text.decode("ascii", "replace"))


def _units(shown: str) -> frozenset[int]:
    found = set()
    if "." not in shown:  # most outputs: the search takes longer than all else
        return frozenset()
    for number, suffix in _ROUNDED.findall(shown):
        if suffix in "Kk":
            found.add(BINARY if suffix == "K" else DECIMAL)
        elif float(number) > DECIMAL:
            found.add(BINARY)
    return frozenset(found)


def parse(text: bytes, of_file: frozenset[int] = frozenset(), unrecognised: str = UNRECOGNISED) -> Listing:
    """Parse an output, also a truncated or damaged one.

    of_file: units() of the file that it is a part of; unrecognised: the reason for lines that no output has.
    """
    reader = _Reader(of_file, unrecognised)
    shown = (b"\n" + text).decode("ascii", "replace")
    headers = list(_HEADER.finditer(shown))
    ends = [*(header.start() for header in headers), len(shown)]
    reader.rows_without_header(shown[: ends[0]])
    for header, end in zip(headers, ends[1:], strict=True):
        reader.block(header[1], shown[header.end() : end])
    return reader.listing(len(headers))


class _Reader:
    """What was read of an output so far."""

    def __init__(self, of_file: frozenset[int], unrecognised: str) -> None:
        self._of_file = of_file
        self._unrecognised = unrecognised
        self._blocks: Read = {}
        self._inodes: Read = {}
        self._both = self._blocks, self._inodes
        self._dropped = Dropped()
        self._rounded, self._is_assumed = "", False

    def listing(self, headers: int) -> Listing:
        """Return the result."""
        targets, inodes = ({name: one[:2] for name, one in some.items()} for some in self._both)
        rounded = [one for some in self._both for one in some.values() if Figures(*one).size_within] if self._rounded else []
        assumed = "read in powers of 1024, as -h prints them and not -H; " if self._is_assumed else ""
        self._dropped.add(ROUNDED, len(rounded), self._rounded, assumed + REMEDIES[ROUNDED])
        return Listing(targets, inodes, self._dropped, headers)

    def rows_without_header(self, lines: str) -> None:
        """Count the lines that no header precedes."""
        summaries, before = [], self._dropped.counts[NO_HEADER]
        for line in self._others(lines):
            if _IS_SUMMARY.search(line):
                summaries.append(line)
            elif _ANY_ROW.match(line):
                self._drop(NO_HEADER, line)
            else:
                self._drop(self._unrecognised, line)
        if summaries and self._dropped.counts[NO_HEADER] == before:
            self._drop(SUMMARY_ONLY, summaries[0], len(summaries))

    def block(self, header: str, lines: str) -> None:
        """Read the rows below a header."""
        # A search from the first line on takes as long as a tenth of all else.
        at = lines.find("filesystem")
        summary = _SUMMARY.search(lines, max(0, lines.rfind("\n", 0, at))) if at >= 0 else None
        rows, behind = (lines[: summary.start()], lines[summary.end() :]) if summary else (lines, "")
        columns = _columns(header)
        if columns and columns.is_plain and (plain := _plain(rows)) and plain.keys().isdisjoint(self._of(columns)):
            self._of(columns).update(plain)
        elif columns is None:
            self._drop(NO_COLUMNS, header, max(1, sum(1 for _ in self._others(rows))))
        else:
            found = columns.pattern.findall(rows)
            if not rows.strip():
                self._drop(NO_ROWS, header)
            self._add_rows(columns, found, _units(rows) or self._of_file)
            if rows.rstrip().count("\n") != len(found):
                for line in self._others(columns.pattern.sub("", rows)):
                    self._drop(self._unrecognised, line)
        self.rows_without_header(behind)

    def _of(self, columns: _Columns) -> Read:
        """Return what was read of plain rows so far."""
        return self._blocks if columns.blocks else self._inodes

    def _others(self, lines: str) -> Iterator[str]:
        """Count the targets that answered with an error; yield all other lines that are not blank."""
        for found in _NOT_BLANK.finditer(lines):
            if (error := _ERROR.fullmatch(found[1])) is None:
                yield found[1]
            else:
                self._dropped.add(INACTIVE if error[1] == "inactive device" else ERROR)

    def _add_rows(self, columns: _Columns, rows: list[tuple[str, ...]], units: frozenset[int]) -> None:
        """Add a file system's rows: a few thousand at most, for which arrays would cost more than this loop."""
        unit = 0 if len(units) > 1 else next(iter(units), BINARY)
        kinds = [(kind, found) for kind, found in ((columns.blocks, self._blocks), (columns.inodes, self._inodes)) if kind]
        systems = Counter(row[columns.name][:-13] for row in rows)
        cut = {one for one in systems if any(other.endswith(one) for other in systems if other != one)}
        cut |= {one for one in systems if any(one.endswith(other) for other in cut) and 2 * systems[one] <= len(rows)}
        for row in rows:
            name, mounted = row[columns.name], row[columns.place]
            # A mount has one file system: a name that is the end of another's lost its beginning, or the other got one, if few have it.
            if not name.endswith(_suffix_at(mounted)) or name[:-13] in cut:
                self._drop(CONTRADICTION, " ".join(row))
                continue
            for kind, found in kinds:
                try:
                    read = _figures(kind, row, unit)
                except _Unusable as fault:
                    self._drop(str(fault), " ".join(row))
                    continue
                if read.size_within:
                    self._rounded = self._rounded or " ".join(row)
                    self._is_assumed = self._is_assumed or not units
                if (first := Figures(*found.setdefault(name[:-5], read))) != read:
                    self._add_again(found, name[:-5], first, read, row)

    def _add_again(self, found: Read, name: str, first: Figures, read: Figures, row: tuple[str, ...]) -> None:
        """Add the figures of a target that was listed before, or count them."""
        if not first.agree(read):
            self._drop(REPEATED, " ".join(row))
        elif read.size_within < first.size_within:
            found[name] = read

    def _drop(self, reason: str, example: str, count: int = 1) -> None:
        self._dropped.add(reason, count, example, REMEDIES.get(reason, ""))


# The same rules as _figures(), for all rows at once.
def _plain(rows: str) -> Read | None:
    """Return the size and the use that rows show, if each is plain and of another target, and none contradicts itself; else None."""
    found = _PLAIN_ROW.findall(rows)
    if not found or rows.rstrip().count("\n") != len(found):
        return None
    names, figures, places = zip(*found, strict=True)
    system = names[0][:-13]
    targets = [name[:-5] for name in names]
    if len(set(targets)) < len(targets) or list(map(system.__add__, map(_suffix_at, places))) != list(names):
        return None
    size, used, available, percent = np.fromstring(" ".join(figures), np.int64, sep=" ").reshape(-1, 4).T
    whole, most = used + available, 100 * used + 100
    is_right = ((percent - 1) * (whole - 2) <= most) & ((percent + 1) * (whole + 2) >= most - 200)
    is_right &= (whole <= size) & (size < LIMIT) & (available < LIMIT) & (percent <= 100)  # noqa: PLR2004 - percent
    return dict(zip(targets, zip(size.tolist(), used.tolist(), strict=True), strict=True)) if is_right.all() else None


def _figures(kind: _Kind, row: tuple[str, ...], unit: int) -> Figures:
    """Return what a row shows of a target. Raises _Unusable."""
    size, size_within = _figure(row[kind.size], kind, unit)
    used, used_within = _figure(row[kind.used if kind.used >= 0 else kind.free], kind, unit)
    if kind.used < 0:
        if size_within:
            raise _Unusable(NO_COLUMNS)
        used = size - used
    # Under "bytes" a size has a unit: without, the figures are those of another header.
    if not 0 <= used <= size or (kind.is_bytes and size > 0 and not size_within):
        raise _Unusable(CONTRADICTION)
    if kind.available >= 0:
        available, within = _figure(row[kind.available], kind, unit)
        rounding = size_within + used_within + within
        rounding += 2 * bool(rounding)  # to whole KiB
        if used + available - size > rounding:
            raise _Unusable(CONTRADICTION)
    else:
        available, within = size - used - kind.reserve * size / 2, kind.reserve * size / 2 + size_within
    if kind.share >= 0 and (share := row[kind.share]) != "-":
        # The share is that of the use in what is used and available together; how it is rounded depends on the version.
        least, most = 100 * (used - used_within - 1), 100 * (used + used_within + 1)
        whole, within = used + available, used_within + within + 2
        percent = int(share[:-1])
        if not 0 <= percent <= 100 or (percent - 1) * (whole - within) > most or (percent + 1) * (whole + within) < least:  # noqa: PLR2004 - percent
            raise _Unusable(CONTRADICTION)
    return Figures(size, used, size_within, used_within)


def _figure(text: str, kind: _Kind, unit: int) -> tuple[float, float]:
    """Return a figure, of a size in KiB, and how exact it is. unit: of rounded ones, 0 if that is unclear. Raises _Unusable."""
    if text.isdigit():
        value = int(text) / BINARY if kind.is_bytes else int(text)
        if kind.is_bytes and value > 1:
            raise _Unusable(CONTRADICTION)
        if value >= LIMIT:
            raise _Unusable(OUT_OF_RANGE)
        return value, 0.0
    number, power = text[:-1], SUFFIXES.find(text[-1].upper())
    if text[0] == "-":
        raise _Unusable(OUT_OF_RANGE)
    if not kind.can_have_unit or power < 0:
        raise _Unusable(CONTRADICTION)
    if not unit:
        raise _Unusable(EITHER_UNIT)
    scale = float(unit) ** (1 + power) / (BINARY if kind.is_bytes else 1)
    if (value := round(float(number) * scale)) >= LIMIT:
        raise _Unusable(OUT_OF_RANGE)
    return value, 0.5 * scale / 10 ** len(number.partition(".")[2])


@lru_cache(maxsize=1 << 10)
def _columns(header: str) -> _Columns | None:
    """Return where the rows below a header have their cells; None if one of the needed columns is missing, or one is unknown."""
    names = ["Available" if name == "Avail" else name for name in _NAME.findall(header[:1000])]
    if len(set(names)) < len(names) or not {"UUID", "Mounted on"} <= set(names) <= _CELLS.keys():
        return None
    at = {name: names.index(name) for name in names}
    blocks = _kind(at, "bytes" if "bytes" in at else "1K-blocks", "Used", "Free", "Available", "Use%", RESERVE)
    inodes = _kind(at, "Inodes", "IUsed", "IFree", "IFree", "IUse%", 0.0)
    # Flags have no name. They come last, or where --output puts them: then the rows fit no header, and are counted.
    # A name whose beginning was replaced by blanks is another name.
    beginning = "^" if at["UUID"] == 0 else r"^[ \t]*+"
    pattern = re.compile(beginning + r"[ \t]++".join(_CELLS[name] for name in names) + _FLAGS + "$", re.MULTILINE | re.ASCII)
    is_plain = tuple(names) in _PLAIN_HEADERS
    return _Columns(pattern, at["UUID"], at["Mounted on"], blocks, inodes, is_plain) if blocks or inodes else None


def _kind(at: Mapping[str, int], size: str, used: str, free: str, available: str, share: str, reserve: float) -> _Kind | None:  # noqa: PLR0913, PLR0917 - names
    kind = _Kind(at.get(size, -1), at.get(used, -1), at.get(free, -1), at.get(available, -1), at.get(share, -1), reserve)
    is_enough = kind.size >= 0 and (kind.used >= 0 or (kind.free >= 0 and size != "bytes"))
    return kind._replace(can_have_unit=size != "1K-blocks", is_bytes=size == "bytes") if is_enough else None


@lru_cache(maxsize=1 << 16)
def _suffix_at(mounted: str) -> str:
    """Return the end of the name of the target at a place such as /scratch[OST:21]."""
    place = mounted[mounted.rindex("[") :]
    return f"-{place[1:4]}{int(place[5:-1]):04x}_UUID"
