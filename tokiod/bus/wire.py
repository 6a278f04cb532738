"""The wire form of batches.

A message is a ZeroMQ multipart, the same on the inner bus and on the feed (all arrays little-endian, C order):

    topic    system/dataset, e.g. cscratch/datatargets/readbytes
    header   JSON, see Header
    columns  names joined by newlines, UTF-8
    time     i8[n]  UTC epoch seconds
    column   u4[n]  index into columns
    value    f8[n]  or i8[n] where header.form is "counter"

On the inner bus the usual case, whole rows one step apart, needs no time and column: the header contains `rows`, and value is the last of
four frames. Two messages consist of the first two frames: a window without data (inner bus; its topic ends in "/"), and a heartbeat
(feed; it repeats the last `stored` of its topic). Names are letters, digits, "_", "." and "-"; a dataset is two of them. Names of columns
are 1 to 400 printable characters.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Self

import msgspec
import numpy as np

from tokiod.batch import Batch, Count, Extent, Form, Rows, Second
from tokiod.errors import Malformed
from tokiod.window import LATEST, Window
from tokiod.window_data import WindowMeta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

VERSION = 1
FRAMES = 6
ROWS_FRAMES = 4

Frame = bytes | memoryview

_NAME = "[A-Za-z0-9][A-Za-z0-9_.-]*"
_is_name = re.compile(_NAME).fullmatch
_is_dataset = re.compile(rf"({_NAME}/{_NAME})?").fullmatch
Name = Annotated[str, msgspec.Meta(max_length=200)]
"""What _is_name matches; of a dataset, _is_dataset. Checked once, not per message."""
Epoch = Annotated[str, msgspec.Meta(pattern=r"\A[!-~]+\Z", max_length=200)]
Reason = Annotated[str, msgspec.Meta(max_length=200)]
MAX_NAME_LENGTH = 400
"""Characters of a column's name."""
MAX_FEW_COLUMNS, MAX_FEW_BYTES = 1_000, 16 << 10
"""Up to which the names of a dataset are kept for 256 datasets; longer ones only for 8."""
"""These types bound an external client's header: valid file names, printable words, numbers that fit both a float and an int64, times
before the end of the year 9999."""


class Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of an attempt at a window of a source that a message on the inner bus contains.

    Apart from attempt, part and parts it is a tokiod.window_data.WindowMeta.
    """

    source: Name
    kind: Name
    start: Second
    end: Second
    attempt: Count
    part: Count
    parts: Count
    records: Count | None = None
    dropped: dict[Reason, Count] = {}
    extent: Extent = "whole"

    @classmethod
    def of(cls, meta: WindowMeta, attempt: int, part: int, parts: int) -> Self:
        """Return the header's form of a window's metadata; the system is the header's own."""
        start, end = meta.window.start, meta.window.end
        return cls(meta.source, meta.kind, start, end, attempt, part, parts, meta.records, dict(meta.dropped), meta.extent)

    def meta(self, system: str) -> WindowMeta:
        """Return the metadata of the window that it is a part of; raises ValueError for an empty window."""
        return WindowMeta(self.source, self.kind, system, Window(self.start, self.end), self.records, self.dropped, self.extent)


class Stored(msgspec.Struct, frozen=True):
    """The state of a topic on the feed: the writer's run, a number without holes, the source's watermark."""

    epoch: Epoch
    sequence: Count
    watermark: Count


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """The JSON frame of a message."""

    version: int
    system: Name
    dataset: Name = ""
    form: Form = "gauge"
    step: Count = 0
    cells: Count = 0
    rows: Rows | None = None
    piece: Piece | None = None
    stored: Stored | None = None


_TIME: np.dtype[Any] = np.dtype("<i8")
_COLUMN: np.dtype[Any] = np.dtype("<u4")
_VALUE: dict[Form, np.dtype[Any]] = {"gauge": np.dtype("<f8"), "counter": np.dtype("<i8")}
_json_to_header = msgspec.json.Decoder(Header).decode


def topic(system: str, dataset: str = "") -> bytes:
    """Return the first frame of a message."""
    return f"{system}/{dataset}".encode()


def encode(system: str, batch: Batch | None, piece: Piece | None = None, stored: Stored | None = None) -> list[Frame]:
    """Return a message's frames, without a copy of the arrays. A piece that is known to be whole rows has two frames fewer."""
    if batch is None:
        header = Header(VERSION, system, piece=piece, stored=stored)
        return [topic(system), msgspec.json.encode(header)]
    rows = None if piece is None else batch.rows
    header = Header(VERSION, system, batch.dataset, batch.form, batch.step, len(batch), rows, piece, stored)
    arrays = [] if rows is not None else [batch.time.astype("<i8", copy=False), batch.column.astype("<u4", copy=False)]
    arrays.append(batch.value.astype("<i8" if batch.form == "counter" else "<f8", copy=False))
    return [
        topic(system, batch.dataset),
        msgspec.json.encode(header),
        _joined(batch.columns),
        *(np.ascontiguousarray(a).data for a in arrays),
    ]


def encode_heartbeat(system: str, dataset: str, stored: Stored) -> list[Frame]:
    """Return the frames of a heartbeat, which repeats the last state of a dataset."""
    return [topic(system, dataset), msgspec.json.encode(Header(VERSION, system, dataset, stored=stored))]


def decode_header(frames: Sequence[Frame]) -> Header:
    """Decode the header of a message, independently of its arrays.

    Raises Malformed for an invalid number of frames, header, version or topic.
    """
    if len(frames) not in (2, ROWS_FRAMES, FRAMES):
        raise Malformed("frames", f"{len(frames)} frames, expected 2, {ROWS_FRAMES} or {FRAMES}")
    try:
        header = _json_to_header(frames[1])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed("header", str(error)) from None
    if header.version != VERSION:
        raise Malformed("version", f"version {header.version}, expected {VERSION}")
    if (header.rows is None) == (len(frames) == ROWS_FRAMES):
        raise Malformed("frames", f"{len(frames)} frames, expected {ROWS_FRAMES} with whole rows in the header, and only then")
    if header.piece is not None:
        _check_names(header.piece.source, header.piece.kind)
    if bytes(frames[0]) != _checked_topic(header.system, header.dataset):
        raise Malformed("topic", f"topic {bytes(frames[0])[:100]!r} differs from the header")
    return header


def decode(frames: Sequence[Frame]) -> tuple[Header, Batch | None]:
    """Decode a message. Raises Malformed as decode_header and decode_batch do."""
    header = decode_header(frames)
    return header, decode_batch(header, frames)


def decode_batch(header: Header, frames: Sequence[Frame]) -> Batch | None:
    """Decode the arrays of a message, None if it has none; they are views of its frames, or copies where a view would not be aligned.

    Raises Malformed for an invalid step, array length, column name or column index.
    """
    if len(frames) == 2:  # noqa: PLR2004 - only the topic and the header
        if header.cells:
            raise Malformed("shape", f"no arrays for {header.cells} cells")
        return None
    if not (header.dataset and header.step):
        raise Malformed("step", f"dataset {header.dataset!r} with a step of {header.step}")
    columns = _names(bytes(frames[2]))
    if header.rows is not None:
        return _of_rows(header, header.rows, columns, frames[3])
    time = _array(frames[3], _TIME, header.cells)
    column = _array(frames[4], _COLUMN, header.cells)
    value = _array(frames[5], _VALUE[header.form], header.cells)
    if header.cells and int(column.max()) >= len(columns):
        raise Malformed("column", f"column {int(column.max())} of {len(columns)} in {header.dataset}")
    return Batch(header.dataset, header.form, header.step, columns, time, column, value)


def _of_rows(header: Header, rows: Rows, columns: tuple[str, ...], frame: Frame) -> Batch:
    # The length of the values comes first: no header may cause an allocation of a size that it only claims.
    value = _array(frame, _VALUE[header.form], header.cells)
    if not 0 < rows.count * len(columns) == header.cells or rows.end(header.step) > LATEST:
        raise Malformed("rows", f"{rows.count} rows of {len(columns)} columns from {rows.start} on for {header.cells} cells")
    time, column = rows.arrays(header.step, len(columns))
    return Batch(header.dataset, header.form, header.step, columns, time, column, value, rows)


def _array(frame: Frame, dtype: np.dtype[Any], cells: int) -> NDArray[Any]:
    size = memoryview(frame).nbytes
    if size != cells * dtype.itemsize:
        raise Malformed("shape", f"{size} bytes for {cells} cells of {dtype.str}")
    array = np.frombuffer(frame, dtype)
    return array if array.flags.aligned else array.copy()


def check_dataset(system: str, dataset: str, columns: tuple[str, ...]) -> None:
    """Raise Malformed if the names of a dataset and its columns could not be decoded."""
    _checked_topic(system, dataset)
    _check_columns(columns)


# A source's names are the same in every window: matching, joining and splitting them is done once, not per message. Each cache is small
# enough for frames from a peer that sends other names each time.
@lru_cache(maxsize=256)
def _check_names(*names: str) -> None:
    for name in names:
        if not _is_name(name):
            raise Malformed("header", f"{name!r} is not a name of a source, kind or system")


@lru_cache(maxsize=256)
def _checked_topic(system: str, dataset: str) -> bytes:
    _check_names(system)
    if not _is_dataset(dataset):
        raise Malformed("header", f"{dataset!r} is not a name of a dataset")
    return topic(system, dataset)


def _joined(columns: tuple[str, ...]) -> bytes:
    return (_joined_few if len(columns) <= MAX_FEW_COLUMNS else _joined_many)(columns)


def _names(frame: bytes) -> tuple[str, ...]:
    return (_names_few if len(frame) <= MAX_FEW_BYTES else _names_many)(frame)


@lru_cache(maxsize=64)
def _check_columns(columns: tuple[str, ...]) -> None:
    for number, name in enumerate(columns):
        if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
            shown = repr(name) if len(name) <= MAX_NAME_LENGTH else f"{name[:40]!r}... of {len(name)} characters"
            raise Malformed("columns", f"column {number}, {shown}: expected 1 to {MAX_NAME_LENGTH} printable characters")
    if len(set(columns)) != len(columns):
        raise Malformed("columns", "a column name is a duplicate")


def _join_names(columns: tuple[str, ...]) -> bytes:
    return "\n".join(columns).encode()


def _split_names(frame: bytes) -> tuple[str, ...]:
    try:
        columns = tuple(frame.decode().split("\n")) if frame else ()
    except UnicodeDecodeError as error:
        raise Malformed("columns", str(error)) from None
    _check_columns.__wrapped__(columns)
    return columns


_joined_few, _joined_many = lru_cache(maxsize=256)(_join_names), lru_cache(maxsize=8)(_join_names)
_names_few, _names_many = lru_cache(maxsize=256)(_split_names), lru_cache(maxsize=8)(_split_names)
