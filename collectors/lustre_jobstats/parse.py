"""Parse what `lctl get_param obdfilter.*.job_stats mdt.*.job_stats` prints on a server.

    obdfilter.fs-OST0001.job_stats=
    job_stats:
    - job_id:          "4711:1000:nid00012"
      snapshot_time:   1723114647.887515895 secs.nsecs
      start_time:      1723102025.057286226 secs.nsecs
      write_bytes:     { samples:         861, unit: bytes, min:    24576, max: 16777216, sum:      11025514496, sumsq: ... }
      punch:           { samples:          85, unit:  reqs }

Versions differ in the operations, their units (reqs or usecs), the form of times, start_time (2.14 and later) and quotes around job ids
(2.15). Up to 2.6 the bytes were named `read` and `write`; they are read_bytes and write_bytes here, told by their unit.

A job id is whatever a user's environment held, so nothing but the whole form of a block makes a job. What is counted is dropped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, MutableMapping, Sequence

    from numpy.typing import NDArray

MAX_ID_BYTES = 128
"""Of a job id, escaped; Lustre's have at most 31 bytes."""
MAX_OPERATIONS = 64
"""Different operations of one target."""
MAX_COUNT = 2**62
"""A count from here on was below zero on its server, or is damaged. A row has no such count, so sums don't overflow soon."""
EXAMPLE_BYTES = 100
"""Of a block that is shown."""
FIRST_SECOND = 10**9
"""A time before 2001 lost its last digits."""
FIELDS = ("samples", "min", "max", "sum")
SAMPLES, SUM = FIELDS.index("samples"), FIELDS.index("sum")

TOO_LONG = "job id that is too long"
MALFORMED = "malformed block of a job"
IMPLAUSIBLE = "implausible count or time of a job"
TOO_MANY_OPERATIONS = "operation beyond the first 64"
NO_TARGET = "text that belongs to no target"

TARGET_LINE = rb"(?:obdfilter|mdt)\.([!-~]{1,90}-(?:OST|MDT)[0-9a-f]{4})\.job_stats=(?=[ \r]*+\n?job_stats:)"
"""A line that begins a target. It is followed by `job_stats:`: both together don't fit into a job id, which may contain newlines."""
_TARGET = re.compile(rb"^" + TARGET_LINE, re.MULTILINE)
_PREFIXED = re.compile(rb"^([A-Za-z0-9._-]{1,255}): (?:obdfilter|mdt)\.[!-~]{1,90}-(?:OST|MDT)[0-9a-f]{4}\.job_stats=\r?$", re.MULTILINE)
TARGET_NAME = re.compile(r"(?<![\w-])[\w-]{1,8}-(?:OST|MDT)[0-9a-f]{4}(?![\w-])", re.ASCII)
_SAMPLES_OF = re.compile(rb"\{ samples:")
_LAST_LINES = re.compile(rb"^  [a-z_]{1,32}: *+\{ *+samples:[^\n]*(?:\n(?!  )[^\n]{0,200})?\Z", re.MULTILINE)
"""The end of a block, and what is left of the line that names the next target. A job id has no room for that and a line of an operation."""
_LINE_END = re.compile(rb"\}(?=[ \r]*+(?:\n|\Z))")
_JOB_ID = b"\n- job_id:"
_JOB = re.compile(_JOB_ID)
_SNAPSHOT = b"\n  snapshot_time:"
_HEAD = re.compile(
    rb"""\n\ \ snapshot_time:\ *+(\d{1,11})(?:\.(\d{9}))?(?:\ secs\.nsecs)?\r?\n
        (?:\ \ start_time:\ *+(\d{1,11})(?:\.(\d{9}))?(?:\ secs\.nsecs)?\r?\n)?""",
    re.VERBOSE,
)
_OPERATION = re.compile(
    rb"""^\ \ ([a-z_]{1,32}):\ *+\{\ *+samples:\ *+(\d{1,20}),\ *+unit:\ *+([a-z]{1,8})
        (?:,\ *+min:\ *+(\d{1,20}),\ *+max:\ *+(\d{1,20}),\ *+sum:\ *+(\d{1,20})
        |(?!.*\ (?:min|max|sum):))(?=[,\ }])[^\n{}]*+(?:\{[^\n{}]*+\}\ *+)?\}""",
    re.VERBOSE | re.MULTILINE,
)
_ESCAPE = re.compile(rb"\\x([0-9A-Fa-f]{2})")
_LIMIT = 2**63 - 1
_BILLION = 10**9


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """The counts of n jobs of a target.

    places: i8[n], which of the given blocks; operations: names, as the target has them; values: i8[n, operations, 4], for FIELDS, in
    bytes, operations or microseconds, 0 where a version does not print them; snapshot, start: i8[n] UTC epoch nanoseconds of a job's last
    operation and of its first one (-1 before Lustre 2.14). examples: of blocks that gave no counts, by the reason.
    """

    places: NDArray[np.int64]
    operations: tuple[str, ...]
    values: NDArray[np.int64]
    snapshot: NDArray[np.int64]
    start: NDArray[np.int64]
    examples: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Operations:
    """The operations of a target in the order in which they were first seen."""

    places: dict[tuple[tuple[bytes, ...], tuple[bytes, ...]], tuple[int, ...]] = field(default_factory=dict)
    """The columns of a block's lines, by their names and units."""
    names: dict[str, int] = field(default_factory=dict)

    def columns(self, names: tuple[bytes, ...], units: tuple[bytes, ...]) -> tuple[int, ...]:
        """Return the column of each line of a block, -1 where there are too many operations. Nearly all blocks have the same lines."""
        columns = self.places.get((names, units))
        if columns is None:
            columns = tuple(map(self._column, names, units))
            if len(self.places) < MAX_OPERATIONS:
                self.places[names, units] = columns
        return columns

    def _column(self, name: bytes, unit: bytes) -> int:
        text = name.decode() + ("_bytes" if unit == b"bytes" and not name.endswith(b"_bytes") else "")
        if text not in self.names and len(self.names) == MAX_OPERATIONS:
            return -1
        return self.names.setdefault(text, len(self.names))


def has_target(text: bytes) -> bool:
    """Return whether an output has a line that begins a target."""
    return _TARGET.search(text) is not None


def targets(text: bytes, dropped: Counter[str], examples: MutableMapping[str, bytes] | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield each target of an output with its text; text of no target is counted in dropped."""
    found = list(_TARGET.finditer(text))
    starts = [*(one.start() for one in found), len(text)]
    parts = [(one.end(), _own_end(text, one.end(), end)) for one, end in zip(found, starts[1:], strict=True)]
    for start, end in zip([0, *(end for _, end in parts)], starts, strict=True):
        if lost := text[start : min(end, start + EXAMPLE_BYTES)].strip():
            dropped[NO_TARGET] += 1
            if examples is not None:
                examples.setdefault(NO_TARGET, lost)
    yield from ((one[1].decode(), text[start:end]) for one, (start, end) in zip(found, parts, strict=True))


def _own_end(text: bytes, start: int, end: int) -> int:
    """Return where the text of a target ends: before the job_stats of another one, which lost one of the lines that begin it."""
    place = text.find(b"job_stats:", start, end)
    while (place := text.find(b"job_stats", place + 1, end)) >= 0:
        line = text.rfind(b"\n", start, place)
        last = _LAST_LINES.search(text[max(start, line - 2000) : line])
        if last and not text.startswith((b"\n  ", b"\n- job_id:"), line):
            return line - (len(last[0]) - len(last[0].partition(b"\n")[0]))
    return end


def without_prefix(text: bytes) -> bytes:
    """Return an output without the host's name before each line, as pdsh and clush print it, with the lines of each host together.

    Other lines come after them; a line BEGIN TIME stays before the lines that follow it.
    """
    hosts = {found[1] for found in _PREFIXED.finditer(text)}
    if not hosts:
        return text
    found: list[bytes] = []
    lines: dict[bytes, list[bytes]] = {host: [] for host in (*sorted(hosts), b"")}

    def flush() -> None:
        for of_host in lines.values():
            found.extend(of_host)
            of_host.clear()

    for line in text.split(b"\n"):
        host, separator, rest = line.partition(b":")
        if separator and host in hosts:
            lines[host].append(rest.removeprefix(b" "))
        elif line.startswith(b"BEGIN"):
            flush()
            found.append(line)
        else:
            lines[b""].append(line)
    flush()
    return b"\n".join(found)


def blocks(text: bytes) -> list[tuple[int, int]]:
    """Return where the block of each job in a target's text begins, after `job_id:`, and ends. They are not copied: a text has 20 MB."""
    starts = [found.end() for found in _JOB.finditer(text)]
    return list(zip(starts, [start - len(_JOB_ID) for start in starts[1:]] + [len(text)], strict=True)) if starts else []


def raw_id(text: bytes, start: int, end: int) -> bytes:
    """Return the id as it stands at a block's begin, also one with newlines; of a block without the line after it, all of it."""
    head = text.find(_SNAPSHOT, start, end)
    return text[start : end if head < 0 else head]


def job_id(raw: bytes) -> bytes:
    r"""Return a job's id: without the padding before it, and without the quotes and \xHH of Lustre 2.15."""
    bare = raw.strip(b" \r")
    if len(bare) > 1 and bare[:1] == bare[-1:] == b'"':
        bare = bare[1:-1]
        return _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), bare) if b"\\" in bare else bare
    return bare


def shown(identity: bytes) -> str:
    r"""Return a job id for people: printable ASCII as it is, any other byte and the backslash as \xHH. No two ids look the same."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02x}" for byte in identity)  # noqa: PLR2004 - ASCII


def line_count(text: bytes, start: int, end: int) -> int:
    """Return how many lines of operations a block has, also damaged ones. bytes.count() takes twice as long."""
    return len(_SAMPLES_OF.findall(text, start, end))


def parse(text: bytes, found: Sequence[tuple[int, int]], operations: Operations, dropped: Counter[str]) -> Counts:
    """Parse blocks of a target's text; count in dropped those that are malformed, and those with a count that can't be true."""
    examples: dict[str, bytes] = {}
    places: list[int] = []
    times: list[int] = []
    columns: list[int] = []
    lines: list[int] = []
    numbers: list[int] = []
    for place, (start, end) in enumerate(found):
        head = _HEAD.search(text, start, end)
        fields = _OPERATION.findall(text, head.end(), end) if head else []
        names, _, units, *_ = zip(*fields, strict=True) if fields else ((),) * 3
        if not head or not fields or not _is_whole(text, head, end, names):
            dropped[MALFORMED] += 1
            examples.setdefault(MALFORMED, text[start : min(end, start + EXAMPLE_BYTES)].strip())
            continue
        columns += operations.columns(names, units)
        numbers += [int(number or 0) for _, samples, _, *others in fields for number in (samples, *others)]
        lines.append(len(fields))
        places.append(place)
        times += (_nanoseconds(head[1], head[2]), -1 if head[3] is None else _nanoseconds(head[3], head[4]))
    row, column = np.arange(len(places)).repeat(lines), np.array(columns, np.int64)
    given, moments = _limited(numbers).reshape(-1, len(FIELDS)), _limited(times).reshape(-1, 2)
    values = np.zeros((len(places), len(operations.names), len(FIELDS)), np.int64)
    is_kept = column >= 0
    values[row[is_kept], column[is_kept]] = given[is_kept]
    if not is_kept.all():
        dropped[TOO_MANY_OPERATIONS] += int((~is_kept).sum())
        first = int(np.argmin(is_kept))
        others = _OPERATION.findall(text, *found[places[row[first]]])
        examples[TOO_MANY_OPERATIONS] = others[first - int(np.searchsorted(row, row[first]))][0]
    is_true: NDArray[np.bool_] = np.all((moments < _LIMIT) & ((moments >= FIRST_SECOND * _BILLION) | (moments == -1)), axis=1)
    is_true[row[(given[:, (SAMPLES, SUM)] >= MAX_COUNT).any(axis=1)]] = False
    if not is_true.all():
        false = np.flatnonzero(~is_true).tolist()
        dropped[IMPLAUSIBLE] += len(false)
        examples[IMPLAUSIBLE] = _largest(text, *found[places[false[0]]])
        values, moments = values[is_true], moments[is_true]
        places = np.array(places)[is_true].tolist()
    snapshot, start_time = moments.T
    return Counts(np.array(places, np.int64), tuple(operations.names), values, snapshot, start_time, examples)


def _is_whole(text: bytes, head: re.Match[bytes], end: int, names: Sequence[bytes]) -> bool:
    """Return whether nothing was cut out of a block: a number that was cut is another number, and two blocks without a line are one."""
    if head[3] and (head[2] is None) != (head[4] is None):
        return False
    start = head.end()
    return line_count(text, start, end) == len(_LINE_END.findall(text, start, end)) == len(set(names)) == len(names)


def _nanoseconds(seconds: bytes, fraction: bytes | None) -> int:
    return int(seconds) * _BILLION + int(fraction or 0)


def _limited(numbers: list[int]) -> NDArray[np.int64]:
    """Return numbers as int64; one above it becomes the largest that fits."""
    try:
        return np.array(numbers, np.int64)
    except OverflowError:
        return np.array([min(number, _LIMIT) for number in numbers], np.int64)


def _largest(text: bytes, start: int, end: int) -> bytes:
    """Return a block's job id and the operation with its largest count."""
    fields = [(int(one[SUM + 2] or 0), int(one[1]), one[0]) for one in _OPERATION.findall(text, start, end)]
    total, samples, name = max(fields, key=lambda one: max(one[:2]))
    return b"%s: %s, samples: %d, sum: %d" % (job_id(raw_id(text, start, end)), name, samples, total)
