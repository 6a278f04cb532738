"""The messages of the feed: batches for other programs.

A message is a ZeroMQ multipart (all arrays little-endian, C order):

    topic    system/dataset, e.g. cscratch/datatargets/readbytes
    header   JSON, see Header
    columns  names joined by newlines, UTF-8
    time     i8[n]  UTC epoch seconds
    column   u4[n]  index into columns
    value    f8[n]  or i8[n] where header.form is "counter"

Values for brokers (tokiod.bus.keyed_messages) may leave out time and column where whole rows are one step apart: the header contains
`rows`, and value is the last of four frames. A heartbeat is the first two frames, and repeats the last `stored` of its topic. Names are
letters, digits, "_", "." and "-"; a dataset is two of them. Names of columns are 1 to 400 printable characters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tokiod.batch import Batch
from tokiod.bus.header import VERSION, Header, decode_header, topic
from tokiod.crossing import names
from tokiod.errors import Malformed
from tokiod.window import LATEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokiod.batch import Form, Rows
    from tokiod.bus.header import Stored
    from tokiod.crossing.codec import Frame

_TIME: np.dtype[Any] = np.dtype("<i8")
_COLUMN: np.dtype[Any] = np.dtype("<u4")
_VALUE: dict[Form, np.dtype[Any]] = {"gauge": np.dtype("<f8"), "counter": np.dtype("<i8")}


def encode(system: str, batch: Batch, stored: Stored | None = None, *, whole_rows: bool = False) -> list[Frame]:
    """Return a message's frames, without a copy of the arrays.

    whole_rows: leave out the times and columns of a batch that is known to be whole rows; clients of the feed can rely on six frames.
    """
    rows = batch.rows if whole_rows else None
    header = Header(VERSION, system, batch.dataset, batch.form, batch.step, len(batch), rows, stored)
    arrays = [] if rows is not None else [batch.time.astype("<i8", copy=False), batch.column.astype("<u4", copy=False)]
    arrays.append(batch.value.astype("<i8" if batch.form == "counter" else "<f8", copy=False))
    return [
        topic(system, batch.dataset),
        msgspec.json.encode(header),
        names.joined(batch.columns),
        *(np.ascontiguousarray(a).data for a in arrays),
    ]


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
    columns = names.split(bytes(frames[2]))
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
