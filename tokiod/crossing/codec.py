"""A window's data as bytes: the one encoding in which it crosses from a process to another.

    length  u4 of the header
    header  MessagePack, see _Header
    names   of columns, each list once, joined by newlines, UTF-8
    arrays  times i8[n] and columns u4[n] of samples that are not whole rows; once where batches share them
            of each batch: values, f8[n] or i8[n]
            of each table: column by column, i8[n] or S[n] of ASCII

All is little-endian. The names are filled up with zeros to a multiple of 8 bytes. The bytes may come in frames cut anywhere: an array is a
view of the frame that it lies in, and copied where it lies in two or is not aligned. decode() makes nothing before the lengths of all that
the header claims add up to the bytes that are there, and to no more in memory than a window may have.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from tokiod.batch import Batch, Count, Form, Rows, even_rows
from tokiod.crossing import names
from tokiod.crossing.names import ColumnName, Name, Printable, Reason  # noqa: TC001 - msgspec reads annotations
from tokiod.dropped import Why  # noqa: TC001 - as above
from tokiod.errors import Malformed
from tokiod.window import LATEST, MAX_WINDOW_BYTES
from tokiod.window_data import TableRows, WindowData

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

Frame = bytes | memoryview

MAX_REASONS = 1000
"""For dropped records, each of at most 200 characters."""
MAX_DATASETS = 1000
MAX_HEADER_BYTES = 4 << 20
MAX_NAMES, MAX_NAMES_BYTES = 4 << 20, 64 << 20
"""Of all lists of columns. Headers and names are many small objects once they are decoded, of some 100 bytes each."""
Width = Annotated[int, msgspec.Meta(ge=0, le=4096)]
"""Of a table's column: 0 for numbers, else the bytes of its text."""
Step = Annotated[int, msgspec.Meta(ge=1, lt=2**53)]
MAX_TEXT = 4000
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]

_LENGTH = struct.Struct("<I")
_ALIGNMENT = 8
_TIME: np.dtype[Any] = np.dtype("<i8")
_COLUMN: np.dtype[Any] = np.dtype("<u4")
_VALUE: dict[Form, np.dtype[Any]] = {"gauge": np.dtype("<f8"), "counter": np.dtype("<i8")}
_CELL_BYTES = 20
"""In memory: of its time, column and value."""


class _Batch(msgspec.Struct, frozen=True, array_like=True):
    """names: the number of the list of its columns; where: its whole rows, or the number of its times and columns."""

    dataset: Name
    form: Form
    step: Step
    names: Count
    where: Rows | Count


class _Table(msgspec.Struct, frozen=True, array_like=True):
    """columns: with their widths, in their order."""

    table: Name
    columns: dict[ColumnName, Width]
    rows: Count
    polled: tuple[Printable, ...]


class _Header(msgspec.Struct, frozen=True, array_like=True):
    """names: the bytes of each list of columns; samples: how many times and columns there are of each number."""

    names: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MAX_DATASETS)]
    samples: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MAX_DATASETS)]
    batches: Annotated[tuple[_Batch, ...], msgspec.Meta(max_length=MAX_DATASETS)]
    tables: Annotated[tuple[_Table, ...], msgspec.Meta(max_length=MAX_DATASETS)]
    records: Count | None
    dropped: Annotated[dict[Reason, Count], msgspec.Meta(max_length=MAX_REASONS)]
    trouble: Text
    why: Annotated[dict[Reason, Why], msgspec.Meta(max_length=MAX_REASONS)]


_to_header = msgspec.msgpack.Decoder(_Header).decode


def encode(data: WindowData) -> list[Frame]:
    """Return the bytes of a window's data in pieces, without a copy of the arrays. Raises Malformed for what decode() would not take."""
    if len(data.dropped) > MAX_REASONS:
        raise Malformed("dropped", f"{len(data.dropped)} reasons for dropped records, the limit is {MAX_REASONS}")
    lists: dict[tuple[str, ...], int] = {}
    shared: dict[tuple[int, int, int, int], Rows | int] = {}
    samples: list[int] = []
    batches, tables, arrays, values = [], [], [], []
    for batch in data.batches:
        names.check_dataset(batch.dataset)
        names.check_columns(batch.columns)
        number = lists.setdefault(batch.columns, len(lists))
        key = id(batch.time), id(batch.column), batch.step, len(batch.columns)
        if key not in shared:
            shared[key] = even_rows(batch) or len(samples)
            if isinstance(shared[key], int):
                samples.append(len(batch))
                arrays += [batch.time.astype(_TIME, copy=False), batch.column.astype(_COLUMN, copy=False)]
        batches.append(_Batch(batch.dataset, batch.form, batch.step, number, shared[key]))
        values.append(batch.value.astype(_VALUE[batch.form], copy=False))
    for rows in data.tables:
        names.check_dataset(rows.table)
        widths = {name: one.dtype.itemsize if one.dtype.kind == "S" else 0 for name, one in zip(rows.columns, rows.values, strict=True)}
        tables.append(_Table(rows.table, widths, len(rows), tuple(map(bytes.decode, rows.polled))))
        values += [one if one.dtype.kind == "S" else one.astype(_TIME, copy=False) for one in rows.values]
    joined = [names.joined(columns) for columns in lists]
    _check_names(joined)
    header = _encoded(
        _Header(
            tuple(map(len, joined)), tuple(samples), tuple(batches), tuple(tables),
            None if data.records is None else int(data.records), {reason: int(count) for reason, count in data.dropped.items()},
            data.trouble[:MAX_TEXT], dict(data.why),
        )
    )  # fmt: skip
    head = [_LENGTH.pack(len(header)), header, *joined]
    return [b"".join([*head, bytes(-sum(map(len, head)) % _ALIGNMENT)]), *(_bytes(array) for array in (*arrays, *values) if array.nbytes)]


def decode(frames: Sequence[Frame]) -> WindowData:
    """Return a window's data from its bytes. Raises Malformed for bytes that encode() does not return."""
    data = _Bytes(frames)
    (length,) = _LENGTH.unpack(data.next(_LENGTH.size))
    header = _decoded(data.next(length))
    joined = [bytes(data.next(size)) for size in header.names]
    _check_names(joined)
    lists = [names.split(one) for one in joined]
    data.next(-(_LENGTH.size + length + sum(header.names)) % _ALIGNMENT)
    cells = [_cells(one, lists, header.samples) for one in header.batches]
    expected = sum(header.samples) * (_CELL_BYTES - 8) + sum(cells) * 8 + sum(map(_table_bytes, header.tables))
    if expected != data.left:
        raise Malformed("shape", f"{data.left} bytes of arrays, and a header that describes {expected}")
    if (nbytes := sum(cells) * _CELL_BYTES + sum(map(_table_bytes, header.tables))) > MAX_WINDOW_BYTES:
        raise Malformed("size", f"a window of {nbytes} bytes, the limit is {MAX_WINDOW_BYTES}")
    places = [(data.array(_TIME, count), data.array(_COLUMN, count)) for count in header.samples]
    where: dict[tuple[Rows, int, int], tuple[NDArray[np.int64], NDArray[np.uint32]]] = {}
    batches = []
    for one, count in zip(header.batches, cells, strict=True):
        columns, rows = lists[one.names], None
        if isinstance(one.where, Rows):
            rows, key = one.where, (one.where, one.step, len(columns))
            time, column = where.get(key) or where.setdefault(key, rows.arrays(one.step, len(columns)))
        else:
            time, column = places[one.where]
            if count and int(column.max()) >= len(columns):
                raise Malformed("column", f"column {int(column.max())} of {len(columns)} in {one.dataset}")
        batches.append(Batch(one.dataset, one.form, one.step, columns, time, column, data.array(_VALUE[one.form], count), rows))
    tables = [_table(one, data) for one in header.tables]
    return WindowData(batches, header.records, header.dropped, tables, header.trouble, header.why)


def _cells(one: _Batch, lists: Sequence[tuple[str, ...]], samples: Sequence[int]) -> int:
    """Return how many cells a batch has. Raises Malformed for names, columns and samples that are not there."""
    names.check_dataset(one.dataset)
    if one.names >= len(lists):
        raise Malformed("columns", f"list {one.names} of {len(lists)} for {one.dataset}")
    if isinstance(one.where, Rows):
        cells = one.where.count * len(lists[one.names])
        if not cells or one.where.end(one.step) > LATEST:
            raise Malformed("rows", f"{one.where.count} rows of {len(lists[one.names])} columns from {one.where.start} on in {one.dataset}")
        return cells
    if one.where >= len(samples):
        raise Malformed("samples", f"samples {one.where} of {len(samples)} for {one.dataset}")
    return samples[one.where]


class _Bytes:
    """The bytes of frames, from their beginning to their end."""

    def __init__(self, frames: Iterable[Frame]) -> None:
        self._frames = deque(memoryview(frame) for frame in frames if len(frame))
        self._start = 0
        self.left = sum(map(len, self._frames))

    def next(self, nbytes: int) -> Frame:
        """Return the next bytes: a view where they lie in one frame. Raises Malformed where fewer are left."""
        if nbytes > self.left:
            raise Malformed("header", f"{nbytes} bytes expected, {self.left} are left")
        self.left -= nbytes
        found = []
        while nbytes:
            frame, start = self._frames[0], self._start
            found.append(frame[start : start + nbytes])
            nbytes -= len(found[-1])
            self._start += len(found[-1])
            if self._start == len(frame):
                self._frames.popleft()
                self._start = 0
        return found[0] if len(found) == 1 else b"".join(found)

    def array(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """Return the next array."""
        array = np.frombuffer(self.next(count * dtype.itemsize), dtype)
        return array if array.flags.aligned else array.copy()


def _table(one: _Table, data: _Bytes) -> TableRows:
    names.check_dataset(one.table)
    values = [data.array(np.dtype(f"S{width}") if width else _TIME, one.rows) for width in one.columns.values()]
    for array in values:
        if array.dtype.kind == "S" and len(array) and not bytes(array.data).isascii():
            raise Malformed("columns", f"text in {one.table} that is not ASCII")
    try:
        return TableRows(one.table, tuple(one.columns), tuple(values), tuple(map(str.encode, one.polled)))
    except ValueError as error:
        raise Malformed("columns", str(error)) from None


def _encoded(header: _Header) -> bytes:
    try:
        encoded = msgspec.msgpack.encode(header)
    except UnicodeEncodeError as error:
        raise Malformed("header", str(error)) from None
    _decoded(encoded)
    return encoded


def _decoded(header: Frame) -> _Header:
    if len(header) > MAX_HEADER_BYTES:
        raise Malformed("header", f"{len(header)} bytes, the limit is {MAX_HEADER_BYTES}")
    try:
        return _to_header(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed("header", str(error)) from None


def _check_names(joined: Sequence[bytes]) -> None:
    nbytes, count = sum(map(len, joined)), sum(one.count(b"\n") + 1 for one in joined)
    if nbytes > MAX_NAMES_BYTES or count > MAX_NAMES:
        raise Malformed("columns", f"{count} names of {nbytes} bytes, the limits are {MAX_NAMES} and {MAX_NAMES_BYTES}")


def _table_bytes(one: _Table) -> int:
    return one.rows * sum(width or _TIME.itemsize for width in one.columns.values())


def _bytes(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).view(np.uint8).data
