"""Rows of a dataset as messages with keys, for topics: the newest message of a key replaces the others, so a topic can be compacted.

    key       SYSTEM/DATASET/WINDOW_START, and /PART where a window is cut by columns; WINDOW_START: of the first row, epoch seconds
    headers   ASCII: version, epoch, revision, step, end, units, part, parts
    value     the wire form of tokiod.bus.feed_message, packed (tokiod.bus.packed); or JSON: the headers and the key as fields, and
              columns, times, and values as [[row], [row], ...] with null where a cell is missing

A message holds all cells of its rows in its columns, missing ones too. The windows lie on a fixed grid: a row is in the same window, and
each window is sent whole. So of a window, the message with the highest (epoch, revision) is all that counts; of a window in parts, the
`parts` messages that share them. Columns that these lack are missing in the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from tokiod.batch import Batch, Rows
from tokiod.bus import feed_message
from tokiod.bus.header import checked_topic
from tokiod.bus.packed import pack, unpack
from tokiod.crossing.names import check_columns
from tokiod.errors import Malformed
from tokiod.window import LATEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tokiod.change_sink import Block

VERSION = 1
MAX_PART_BYTES = 512 << 10
"""Of the cells and names of a message; brokers accept 1 MiB without further settings."""
JSON_CELL_BYTES = 20
"""A cell as JSON has at most 24 bytes, and mostly fewer than 16."""
WIRE_CELL_BYTES = 8
MAX_PARTS = 10_000
_WINDOW_DEPTH = 4
"""Components of a key without its part."""

ValueForm = Literal["wire", "json"]
Headers = list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class KeyedMessage:
    """What is sent. Messages with the same window_key() belong into the same partition, in order."""

    key: bytes
    headers: Headers
    value: bytes


@dataclass(frozen=True, slots=True, eq=False)
class WindowPart:
    """What is received: cells of the rows in [start, end), epoch seconds, of some columns. batch: gauges, NaN where missing."""

    system: str
    dataset: str
    start: int
    end: int
    epoch: int
    revision: int
    part: int
    parts: int
    units: str
    batch: Batch


def window_key(key: bytes) -> bytes:
    """Return a key without its part."""
    return b"/".join(key.split(b"/")[:_WINDOW_DEPTH])


def encode(block: Block, window: int, form: ValueForm = "wire") -> Iterator[KeyedMessage]:
    """Yield the messages of a block that consists of whole windows. window: seconds; its multiples are the edges of the windows.

    A window without a row has no message: rows that are longer than it are sent one by one.
    """
    numbers = block.times // window
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), block.rows]
    cell = WIRE_CELL_BYTES if form == "wire" else JSON_CELL_BYTES
    for first, end in pairwise(edges):
        groups = _column_groups(block.columns, (end - first) * cell)
        for part, (left, right) in enumerate(groups):
            rows = Rows(block.start + first * block.step, end - first)
            yield _message(block, rows, block.columns[left:right], block.values[first:end, left:right], (part, len(groups)), form)


# The columns and the rows of a window are mostly the same in all windows of a dataset.
@lru_cache(maxsize=256)
def _column_groups(columns: tuple[str, ...], column_bytes: int) -> list[tuple[int, int]]:
    """Return [first, end) of the columns of each part. column_bytes: of the cells of one column."""
    groups, first, size = [], 0, 0
    for index, name in enumerate(columns):
        nbytes = column_bytes + len(name.encode()) + 1
        if size and size + nbytes > MAX_PART_BYTES:
            groups.append((first, index))
            first, size = index, 0
        size += nbytes
    return [*groups, (first, len(columns))]


def _message(  # noqa: PLR0913, PLR0917 - what a message consists of
    block: Block, rows: Rows, columns: tuple[str, ...], values: NDArray[np.float64], part: tuple[int, int], form: ValueForm
) -> KeyedMessage:
    key = f"{block.system}/{block.dataset}/{rows.start}"
    number, parts = part
    fields: dict[str, Any] = {
        "version": VERSION,
        "epoch": block.epoch,
        "revision": block.revision,
        "step": block.step,
        "end": rows.end(block.step),
        "units": block.units,
        "part": number,
        "parts": parts,
    }
    headers = [(name, str(value).encode()) for name, value in fields.items()]
    value = _wire_value(block, rows, columns, values) if form == "wire" else _json_value(block, rows, columns, values, fields)
    return KeyedMessage((key if parts == 1 else f"{key}/{number}").encode(), headers, value)


def _wire_value(block: Block, rows: Rows, columns: tuple[str, ...], values: NDArray[np.float64]) -> bytes:
    time, column = rows.arrays(block.step, len(columns))
    batch = Batch(block.dataset, "gauge", block.step, columns, time, column, values.ravel(), rows if columns else None)
    return pack(feed_message.encode(block.system, batch, whole_rows=True))


def _json_value(block: Block, rows: Rows, columns: tuple[str, ...], values: NDArray[np.float64], fields: Mapping[str, Any]) -> bytes:
    times = list(range(rows.start, rows.end(block.step), block.step))
    cells = {"columns": columns, "times": times, "values": values.tolist()}
    return msgspec.json.encode({"system": block.system, "dataset": block.dataset, "start": rows.start, **fields, **cells})


class _JsonValue(msgspec.Struct, frozen=True):
    columns: tuple[str, ...]
    times: list[int]
    values: list[list[float | None]]


_json_to_value = msgspec.json.Decoder(_JsonValue).decode


def decode(key: bytes | None, headers: Sequence[tuple[str, bytes]], value: bytes | None) -> WindowPart:
    """Decode a message of a topic; a value that begins with "{" is JSON. Raises Malformed as tokiod.bus.feed_message.decode does."""
    if key is None or value is None:
        raise Malformed("key", "a message without a key or a value")
    named = {name: text.decode("utf-8", "replace") for name, text in headers}
    if named.get("version") != str(VERSION):
        raise Malformed("version", f"version {named.get('version')}, expected {VERSION}")
    system, dataset, start, part = _decoded_key(key)
    end, step, parts = (_number(named, name) for name in ("end", "step", "parts"))
    if not start < end <= LATEST or not 0 < step <= end - start or (end - start) % step or not part < parts <= MAX_PARTS:
        raise Malformed("rows", f"[{start}, {end}) by {step}, part {part} of {parts}")
    rows = Rows(start, (end - start) // step)
    batch = (_from_json if value[:1] == b"{" else _from_wire)(value, system, dataset, rows, step)
    return WindowPart(
        system, dataset, start, end, _number(named, "epoch"), _number(named, "revision"), part, parts, named.get("units", ""), batch
    )


def _number(named: Mapping[str, str], name: str) -> int:
    text = named.get(name, "")
    if not text.isascii() or not text.isdigit() or len(text) > 18:  # noqa: PLR2004 - digits of an int64
        raise Malformed("header", f"{name} is {text[:40]!r}, expected a number")
    return int(text)


def _decoded_key(key: bytes) -> tuple[str, str, int, int]:
    names = key.decode("utf-8", "replace").split("/")
    if len(names) not in (_WINDOW_DEPTH, _WINDOW_DEPTH + 1):
        raise Malformed("key", f"{key[:100]!r}, expected SYSTEM/DATASET/WINDOW_START and perhaps /PART")
    system, dataset, start, part = names[0], "/".join(names[1:3]), names[3], (names[4:] or ["0"])[0]
    checked_topic(system, dataset)
    return system, dataset, _number({"key": start}, "key"), _number({"key": part}, "key")


def _from_wire(value: bytes, system: str, dataset: str, rows: Rows, step: int) -> Batch:
    header, batch = feed_message.decode(unpack(value))
    if batch is None or (header.system, header.dataset, batch.step, batch.form) != (system, dataset, step, "gauge"):
        raise Malformed("topic", f"the value of {header.system}/{header.dataset} by {header.step} differs from its key and headers")
    if batch.rows != rows and batch.columns:
        raise Malformed("rows", f"the value holds {batch.rows}, its headers {rows}")
    return batch


def _from_json(value: bytes, _system: str, dataset: str, rows: Rows, step: int) -> Batch:
    try:
        found = _json_to_value(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed("value", str(error)) from None
    width = len(found.columns)
    # Before their times: headers may promise a billion rows.
    if not len(found.times) == len(found.values) == rows.count:
        raise Malformed("rows", f"{len(found.times)} times and {len(found.values)} values, expected {rows.count} rows")
    if found.times != list(range(rows.start, rows.end(step), step)) or {len(row) for row in found.values} != {width}:
        raise Malformed("rows", f"times or values differ from {rows} of {width} columns")
    checked_topic(_system, dataset)
    check_columns(found.columns)
    time, column = rows.arrays(step, width)
    # None becomes NaN.
    cells = np.array(found.values, np.float64).ravel()
    return Batch(dataset, "gauge", step, found.columns, time, column, cells, rows if width else None)
