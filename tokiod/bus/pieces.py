"""A window as messages of bounded frames: large batches are cut into pieces, and the writer joins them again.

A batch is cut by rows; one without whole rows by samples. One whose names or whose single row do not fit into a frame is cut by columns
first. So every window that passes check() crosses the bus, whatever its shape, and no frame is longer than MAX_FRAME_BYTES.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from tokiod.batch import Batch, Rows, even_rows
from tokiod.bus import wire
from tokiod.bus.header import Piece, decode_header
from tokiod.errors import Malformed, Refusal
from tokiod.window import MAX_WINDOW_BYTES
from tokiod.window_data import TableRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tokiod.bus.header import Frame
    from tokiod.window_data import Collected

MAX_FRAME_BYTES = (2 << 20) - 4096
"""Of a frame; encryption and framing add less than 4096 bytes, so that 2 MiB bound what a peer can make the other side allocate."""
MAX_PIECE_CELLS = MAX_FRAME_BYTES // 8
MAX_REASONS = 1000
"""For dropped records, each of at most 200 characters: they are in the header of each message."""


def pieces(collected: Collected, attempt: int) -> Iterator[list[Frame]]:
    """Yield the frames of each message; a window without data is one message, too."""
    meta, tables = collected.meta, [some for rows in collected.tables for some in cut_rows(rows)]
    parts: Sequence[Batch | TableRows | None] = [*_parts(collected.batches), *tables] or [None]
    for part, content in enumerate(parts):
        piece = Piece.of(meta, attempt, part, len(parts))
        yield wire.encode_rows(meta.system, content, piece) if isinstance(content, TableRows) else wire.encode(meta.system, content, piece)


def refusal(collected: Collected) -> Refusal | None:
    """Return why a window can never cross the bus, None if it can: it is too large, or the writer would not decode its messages."""
    meta = collected.meta
    if collected.nbytes > MAX_WINDOW_BYTES:
        return too_large(meta.source, collected.nbytes, MAX_WINDOW_BYTES)
    if len(meta.dropped) > MAX_REASONS:
        return Refusal(f"source {meta.source}: {len(meta.dropped)} reasons for dropped records, the limit is {MAX_REASONS}", "never")
    try:
        decode_header(wire.encode(meta.system, None, Piece.of(meta, 1, 0, 1)))
        for batch in collected.batches:
            wire.check_dataset(meta.system, batch.dataset, batch.columns)
        for rows in collected.tables:
            _check_rows(meta.system, rows)
    except Malformed as error:
        return Refusal(f"source {meta.source}: {error}", "never")
    return None


def too_large(source: str, nbytes: int, limit: int) -> Refusal:
    """Return the refusal of a window of so many bytes, or more."""
    sizes = f"{nbytes / (1 << 20):.0f} MiB or more, the limit is {limit / (1 << 20):.0f} MiB"
    return Refusal(f"source {source}: a window of {sizes}: set a shorter `window` in its section", "never")


def joined(batches: Iterable[Batch]) -> list[Batch]:
    """Return the batches of a window from their pieces in order: consecutive pieces of one dataset become one batch."""
    return [_join(list(some)) for _, some in groupby(batches, key=lambda batch: (batch.dataset, batch.form, batch.step))]


def joined_rows(parts: Iterable[TableRows]) -> list[TableRows]:
    """Return the tables of a window from their pieces in order. Raises Malformed for pieces with other columns."""
    return [_join_rows(list(some)) for _, some in groupby(parts, key=lambda rows: rows.table)]


def cut_rows(rows: TableRows) -> Iterator[TableRows]:
    """Yield the rows of a table in pieces that fit into a frame each; a table without rows is one piece."""
    height = max(MAX_FRAME_BYTES // max(sum(array.dtype.itemsize for array in rows.values), 1), 1)
    for first in range(0, max(len(rows), 1), height):
        yield replace(rows, values=tuple(array[first : first + height] for array in rows.values))


def cut(batch: Batch) -> Iterator[Batch]:
    """Yield a batch in pieces of which each array, and the names, fit into a frame."""
    groups = _column_groups(batch.columns)
    if len(groups) <= 1:
        yield from _cut_rows(batch)
        return
    for first, end in groups:
        yield from _cut_rows(_columns(batch, first, end))


def _parts(batches: Sequence[Batch]) -> Sequence[Batch]:
    parts: list[Batch] = []
    latest: Batch | None = None
    for batch in batches:
        latest = _with_rows(batch, latest)
        parts += cut(latest)
    return parts


def _columns(batch: Batch, first: int, end: int) -> Batch:
    """Return the part of a batch that lies in some of its columns."""
    inside = (batch.column >= first) & (batch.column < end)
    column = batch.column[inside] - np.uint32(first)
    part = Batch(batch.dataset, batch.form, batch.step, batch.columns[first:end], batch.time[inside], column, batch.value[inside])
    return replace(part, rows=even_rows(part))


def _cut_rows(batch: Batch) -> Iterator[Batch]:
    width = len(batch.columns)
    if len(batch) <= MAX_PIECE_CELLS:
        yield batch
        return
    cells = MAX_PIECE_CELLS if batch.rows is None else MAX_PIECE_CELLS // width * width
    for first in range(0, len(batch), cells):
        some = slice(first, first + cells)
        time = batch.time[some]
        rows = None if batch.rows is None else Rows(batch.rows.start + first // width * batch.step, len(time) // width)
        yield replace(batch, time=time, column=batch.column[some], value=batch.value[some], rows=rows)


# The names of a source are the same in every window.
@lru_cache(maxsize=64)
def _column_groups(columns: tuple[str, ...]) -> list[tuple[int, int]]:
    """Return [first, end) of each group of columns whose names fit into a frame, and of which one row fits into a frame."""
    groups, first, size = [], 0, 0
    for index, name in enumerate(columns):
        nbytes = len(name.encode()) + 1
        if size + nbytes > MAX_FRAME_BYTES or index - first >= MAX_PIECE_CELLS:
            groups.append((first, index))
            first, size = index, 0
        size += nbytes
    return [*groups, (first, len(columns))]


def _with_rows(batch: Batch, before: Batch | None) -> Batch:
    """Return a batch with its rows, those of the batch before if both share their times and columns."""
    if before is not None and batch.time is before.time and batch.column is before.column and _shape(batch) == _shape(before):
        return replace(batch, rows=before.rows)
    return replace(batch, rows=even_rows(batch))


def _shape(batch: Batch) -> tuple[int, int]:
    return batch.step, len(batch.columns)


def _join(some: list[Batch]) -> Batch:
    first = some[0]
    if len(some) == 1:
        return first
    value = np.concatenate([batch.value for batch in some])
    if all(batch.columns is first.columns or batch.columns == first.columns for batch in some):
        if (rows := _joined_rows(some)) is not None:
            time, column = rows.arrays(first.step, len(first.columns))
            return replace(first, time=time, column=column, value=value, rows=rows)
        offsets, columns = [0] * len(some), first.columns
    else:
        offsets, columns = _joined_columns(some)
    time = np.concatenate([batch.time for batch in some])
    column = np.concatenate([batch.column + np.uint32(offset) for batch, offset in zip(some, offsets, strict=True)])
    return replace(first, columns=columns, time=time, column=column, value=value, rows=None)


def _joined_rows(some: list[Batch]) -> Rows | None:
    """Return the rows of pieces of whole rows that follow one another, else None."""
    start, end = None, None
    for batch in some:
        if batch.rows is None or end not in (None, batch.rows.start):
            return None
        start, end = batch.rows.start if start is None else start, batch.rows.end(batch.step)
    return None if start is None or end is None else Rows(start, (end - start) // some[0].step)


def _joined_columns(some: list[Batch]) -> tuple[list[int], tuple[str, ...]]:
    """Return where the columns of each piece begin among those of all, and these. Raises Malformed for a name in two groups."""
    begins: dict[tuple[str, ...], int] = {}
    columns: list[str] = []
    for batch in some:
        if batch.columns not in begins:
            begins[batch.columns] = len(columns)
            columns += batch.columns
    if len(set(columns)) != len(columns):
        raise Malformed("columns", f"a column of {some[0].dataset} is in two pieces with different columns")
    return [begins[batch.columns] for batch in some], tuple(columns)


def _join_rows(some: list[TableRows]) -> TableRows:
    first = some[0]
    if len(some) == 1:
        return first
    if any(rows.columns != first.columns for rows in some):
        raise Malformed("columns", f"pieces of {first.table} with different columns")
    values = zip(*(rows.values for rows in some), strict=True)
    return replace(first, values=tuple(np.concatenate(arrays) for arrays in values))


def _check_rows(system: str, rows: TableRows) -> None:
    """Raise Malformed for rows that the writer would not decode."""
    some = replace(rows, values=tuple(array[:0] for array in rows.values))
    decode_header(wire.encode_rows(system, some, Piece(system, system, 0, 1, 1, 0, 1)))
    if sum(array.dtype.itemsize for array in rows.values) > MAX_FRAME_BYTES:
        raise Malformed("size", f"a row of {rows.table} is longer than a frame")
