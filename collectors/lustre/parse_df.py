r"""Parse what `lfs df` and `lfs df -i` print, of one file system or several.

    UUID                   1K-blocks        Used   Available Use% Mounted on
    snx11035-MDT0000_UUID  2255453580   115237564  2106016404   5% /scratch2[MDT:0]
    snx11035-OST0015_UUID 90767651352 65387344040 24423870832  73% /scratch2[OST:21] DR
    lustre-OST0003_UUID : inactive device

    filesystem_summary:  2178423632448 1560557556800 594839593984  72% /scratch2

`lfs df -i` prints the same with "Inodes IUsed IFree IUse%" in the header. A name is any file system's, with "-" and "_" in it; its last
four digits are hexadecimal, the index in brackets is decimal. Flags may follow. A row counts only between a header, which gives the unit of
its numbers, and the summary: a name whose beginning was lost could be taken for another name.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

# Possessive quantifiers: no row is scanned twice. Truncated digits never make another number, because a row counts only with the index
# in its brackets.
_ROW = re.compile(
    r"^([!-~]{1,100}+)[ \t]++(\d{1,18})[ \t]++(\d{1,18})[ \t]++\d{1,18}[ \t]++(?:\d{1,3}%|-)"
    r"[ \t]++/[^\[\n]*+(\[(?:OST|MDT):\d{1,9}\])[ \t]*+[A-Za-z?()0-9]*+[ \t\r]*+$",
    re.MULTILINE | re.ASCII,
)
_HEADER = re.compile(r"\nUUID[ \t]+(1K-blocks|Inodes)[ \t]+\S+[ \t]+\S+[ \t]+\S+[ \t]+Mounted on[ \t\r]*$", re.MULTILINE | re.ASCII)
_SUMMARY = re.compile(r"\nfilesystem[ _]summary:[^\n]*")
_ERROR = re.compile(r"^(?!filesystem)[!-9;-~]++[ \t]*+:[ \t]++([^\n]*\S)[ \t\r]*$", re.MULTILINE | re.ASCII)
_BLANK = re.compile(r"\n[^\S\n]*+(?=\n|\Z)")

BYTES = "1K-blocks"
INACTIVE = "target that is inactive"
ERROR = "target that answered with an error"
NO_HEADER = "row without a header"
CONTRADICTION = "row that contradicts itself"
REPEATED = "row of a target that was listed before"
UNRECOGNISED = "unrecognised line in lfs df"


@dataclass(slots=True)
class Listing:
    """Size and use of each target, by name without _UUID: targets in KiB, inodes of `lfs df -i`. dropped: other lines, by reason.

    The first row of a target counts: a file system may be mounted twice, and a row with other figures belongs to another output whose
    beginning was lost.
    """

    targets: dict[str, tuple[int, int]] = field(default_factory=dict)
    inodes: dict[str, tuple[int, int]] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)


def is_df(text: bytes) -> bool:
    """Return whether a text looks like an output of lfs df."""
    shown = "\n" + text[: 1 << 16].decode("ascii", "replace")
    return any(pattern.search(shown) for pattern in (_HEADER, _ROW))


def parse(text: bytes) -> Listing:
    """Parse an output, also a truncated or damaged one."""
    listing, shown = Listing(), (b"\n" + text).decode("ascii", "replace")
    headers = list(_HEADER.finditer(shown))
    ends = [*(header.start() for header in headers), len(shown)]
    known = len(headers) + _count_without_header(shown[: ends[0]], listing)
    for header, end in zip(headers, ends[1:], strict=True):
        known += _block(header[1], shown[header.end() : end], listing)
    # Blank lines are few: no list of all lines is made.
    unrecognised = shown.count("\n") - sum(1 for _ in _BLANK.finditer(shown)) - known
    if unrecognised:
        listing.dropped[UNRECOGNISED] += unrecognised - _count_errors(shown, listing.dropped)
    listing.dropped = +listing.dropped
    return listing


def _block(unit: str, rows: str, listing: Listing) -> int:
    """Read the rows after a header; return how many lines were recognised."""
    summary = _SUMMARY.search(rows)
    found = _ROW.findall(rows[: summary.start()] if summary else rows)
    _add_rows(found, listing.targets if unit == BYTES else listing.inodes, listing.dropped)
    return len(found) + (1 + _count_without_header(rows[summary.end() :], listing) if summary else 0)


def _add_rows(rows: list[tuple[str, str, str, str]], targets: dict[str, tuple[int, int]], dropped: Counter[str]) -> None:
    """Add a file system's rows: a few thousand at most, for which arrays would cost more than this loop."""
    for name, total, used, place in rows:
        figures = int(total), int(used)
        if not name.endswith(_suffix(place)) or figures[1] > figures[0]:
            dropped[CONTRADICTION] += 1
        elif targets.setdefault(name[:-5], figures) != figures:
            dropped[REPEATED] += 1


@lru_cache(maxsize=1 << 16)
def _suffix(place: str) -> str:
    """Return the end of the name of the target at a place such as [OST:21]."""
    return f"-{place[1:4]}{int(place[5:-1]):04x}_UUID"


def _count_without_header(lines: str, listing: Listing) -> int:
    """Count rows without a header; return how many lines were recognised."""
    found = len(_ROW.findall(lines))
    listing.dropped[NO_HEADER] += found
    return found + len(_SUMMARY.findall(lines))


def _count_errors(text: str, dropped: Counter[str]) -> int:
    """Count targets that answered with an error; return how many there are."""
    errors = _ERROR.findall(text)
    inactive = errors.count("inactive device")
    dropped[INACTIVE] += inactive
    dropped[ERROR] += len(errors) - inactive
    return len(errors)
