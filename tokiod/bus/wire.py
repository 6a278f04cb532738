"""The wire form of batches.

A message is a ZeroMQ multipart, the same on the inner bus and on the feed (all arrays little-endian, C order):

    topic    system/dataset, e.g. cscratch/datatargets/readbytes
    header   JSON, see Header
    columns  names joined by newlines, UTF-8
    time     i8[n]  UTC epoch seconds
    column   u4[n]  index into columns
    value    f8[n]  or i8[n] where header.form is "counter"

On the inner bus the usual case, whole rows one step apart, needs no time and column: the header contains `rows`, and value is the last of
four frames. Rows of a table (inner bus) are three frames: the header's `table` names the columns with their widths, its `polled` the
targets that answered, and the last frame is one array after the other, i8[n] or S[n] of ASCII.
Two messages consist of the first two frames: a window without data (inner bus; its topic ends in "/"), and a heartbeat (feed; it repeats
the last `stored` of its topic). Names are letters, digits, "_", "." and "-"; a dataset is two of them. Names of columns are 1 to 400
printable characters.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tokiod.batch import Batch
from tokiod.bus.header import VERSION, Header, checked_topic, decode_header, topic
from tokiod.errors import Malformed
from tokiod.window import LATEST
from tokiod.window_data import TableRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokiod.batch import Form, Rows
    from tokiod.bus.header import Frame, Piece, Stored

MAX_NAME_LENGTH = 400
"""Characters of a column's name."""
MAX_FEW_COLUMNS, MAX_FEW_BYTES = 1_000, 16 << 10
"""Up to which the names of a dataset are kept for 256 datasets; longer ones only for 8."""

_TIME: np.dtype[Any] = np.dtype("<i8")
_COLUMN: np.dtype[Any] = np.dtype("<u4")
_VALUE: dict[Form, np.dtype[Any]] = {"gauge": np.dtype("<f8"), "counter": np.dtype("<i8")}


def encode(
    system: str, batch: Batch | None, piece: Piece | None = None, stored: Stored | None = None, *, whole_rows: bool = False
) -> list[Frame]:
    """Return a message's frames, without a copy of the arrays. A batch that is known to be whole rows has two frames fewer.

    whole_rows: also without a piece; clients of the feed can rely on six frames.
    """
    if batch is None:
        header = Header(VERSION, system, piece=piece, stored=stored)
        return [topic(system), msgspec.json.encode(header)]
    rows = batch.rows if whole_rows or piece is not None else None
    header = Header(VERSION, system, batch.dataset, batch.form, batch.step, len(batch), rows, piece, stored)
    arrays = [] if rows is not None else [batch.time.astype("<i8", copy=False), batch.column.astype("<u4", copy=False)]
    arrays.append(batch.value.astype("<i8" if batch.form == "counter" else "<f8", copy=False))
    return [
        topic(system, batch.dataset),
        msgspec.json.encode(header),
        _joined(batch.columns),
        *(np.ascontiguousarray(a).data for a in arrays),
    ]


def encode_rows(system: str, rows: TableRows, piece: Piece) -> list[Frame]:
    """Return a message's frames for rows of a table."""
    widths = {name: array.dtype.itemsize if array.dtype.kind == "S" else 0 for name, array in zip(rows.columns, rows.values, strict=True)}
    polled = tuple(map(bytes.decode, rows.polled))
    header = Header(VERSION, system, rows.table, cells=len(rows), table=widths, piece=piece, polled=polled)
    arrays = (array if array.dtype.kind == "S" else array.astype("<i8", copy=False) for array in rows.values)
    return [topic(system, rows.table), msgspec.json.encode(header), b"".join(array.tobytes() for array in arrays)]


def decode_rows(header: Header, frames: Sequence[Frame]) -> TableRows:
    """Decode the rows of a table. Raises Malformed for columns or a length that the header does not describe, and for text beyond ASCII."""
    types = [np.dtype(f"S{width}") if width else _TIME for width in (header.table or {}).values()]
    size, expected = memoryview(frames[2]).nbytes, header.cells * sum(one.itemsize for one in types)
    if size != expected:
        raise Malformed("shape", f"{size} bytes for {header.cells} rows of {header.dataset}, expected {expected}")
    data, values, offset = bytes(frames[2]), [], 0
    for one in types:
        end = offset + header.cells * one.itemsize
        if one.kind == "S" and not data[offset:end].isascii():
            raise Malformed("columns", f"text in {header.dataset} that is not ASCII")
        values.append(np.frombuffer(data, one, header.cells, offset).copy())
        offset = end
    try:
        return TableRows(header.dataset, tuple(header.table or ()), tuple(values), tuple(map(str.encode, header.polled)))
    except ValueError as error:
        raise Malformed("columns", str(error)) from None


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
    checked_topic(system, dataset)
    _check_columns(columns)


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
