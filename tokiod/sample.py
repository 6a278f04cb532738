"""Batch: the one vocabulary that collectors, the writer, sinks and subscribers share, and its wire form.

A message is a ZeroMQ multipart, the same on the inner bus and on the feed (all arrays little-endian, C order):

    topic    system/dataset, e.g. cscratch/datatargets/readbytes
    header   JSON, see Header
    columns  names joined by newlines, UTF-8
    time     i8[n]  UTC epoch seconds
    column   u4[n]  index into columns
    value    f8[n]  or i8[n] where header.form is "counter"

A window without any data is the first two frames alone, its topic ending in "/".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from tokiod.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

VERSION = 1
FRAMES = 6

Frame = bytes | memoryview

Form = Literal["gauge", "counter"]
"""gauge: the value of the cell itself. counter: an absolute, ever growing count, from which tts/ makes differences."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One dataset's cells: n samples of (time, column, value).

    dataset: logical TTS name, `datatargets/readbytes`; form: what the values are; step: seconds between the rows of its group;
    columns: every component the source knows for this dataset, in the source's order, also those without a sample here;
    time: i8[n] UTC epoch seconds of each sample; column: u4[n] into columns; value: f8[n] (gauge) or i8[n] (counter).
    Row-major dense batches (every time with the same columns) are the fast ones. A cell stands at most once in a batch.
    """

    dataset: str
    form: Form
    step: int
    columns: tuple[str, ...]
    time: NDArray[np.int64]
    column: NDArray[np.uint32]
    value: NDArray[np.float64] | NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.time)

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return self.time.nbytes + self.column.nbytes + self.value.nbytes


class Piece(msgspec.Struct, frozen=True):
    """Which part of which attempt at which window of which source a message on the inner bus is."""

    source: str
    kind: str
    start: int
    end: int
    attempt: int
    part: int
    parts: int


class Stored(msgspec.Struct, frozen=True):
    """What a feed message tells beside its cells: the writer's run, a number per topic without holes, the source's watermark."""

    epoch: str
    sequence: int
    watermark: int


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """The JSON frame of a message."""

    version: int
    system: str
    dataset: str = ""
    form: Form = "gauge"
    step: int = 0
    cells: int = 0
    piece: Piece | None = None
    stored: Stored | None = None


_decode_header = msgspec.json.Decoder(Header).decode
encode_header = msgspec.json.encode


def topic(system: str, dataset: str = "") -> bytes:
    """Return the first frame of a message."""
    return f"{system}/{dataset}".encode()


def encode(system: str, batch: Batch | None, piece: Piece | None = None, stored: Stored | None = None) -> list[Frame]:
    """Return a message's frames; the arrays are not copied."""
    if batch is None:
        header = Header(VERSION, system, piece=piece, stored=stored)
        return [topic(system), encode_header(header)]
    header = Header(VERSION, system, batch.dataset, batch.form, batch.step, len(batch), piece, stored)
    arrays = (
        batch.time.astype("<i8", copy=False),
        batch.column.astype("<u4", copy=False),
        batch.value.astype("<i8" if batch.form == "counter" else "<f8", copy=False),
    )
    return [topic(system, batch.dataset), encode_header(header), _joined(batch.columns), *(np.ascontiguousarray(a).data for a in arrays)]


def decode(frames: Sequence[Frame]) -> tuple[Header, Batch | None]:
    """Read a message; the arrays are views of its frames.

    Raises Malformed for a wrong number of frames, header, version, topic, array length or column index, with the reason to count.
    """
    if len(frames) not in (2, FRAMES):
        raise Malformed("frames", f"{len(frames)} frames, expected 2 or {FRAMES}")
    header = _header(frames)
    if len(frames) == 2:  # noqa: PLR2004 - topic and header
        return header, None
    columns = _names(bytes(frames[2]))
    dtypes = ("<i8", "<u4", "<i8" if header.form == "counter" else "<f8")
    time, column, value = (_array(f, d, header.cells) for f, d in zip(frames[3:], dtypes, strict=True))
    if header.cells and int(column.max()) >= len(columns):
        raise Malformed("column", f"column {int(column.max())} of {len(columns)} in {header.dataset}")
    return header, Batch(header.dataset, header.form, header.step, columns, time, column, value)


def _header(frames: Sequence[Frame]) -> Header:
    try:
        header = _decode_header(frames[1])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed("header", str(error)) from None
    if header.version != VERSION:
        raise Malformed("version", f"version {header.version}, expected {VERSION}")
    if bytes(frames[0]) != topic(header.system, header.dataset):
        raise Malformed("topic", f"topic {bytes(frames[0])!r} is not that of the header")
    if len(frames) == FRAMES and header.step <= 0:
        raise Malformed("step", f"step {header.step} of {header.dataset}")
    return header


def _array(frame: Frame, dtype: str, cells: int) -> NDArray[Any]:
    size = memoryview(frame).nbytes
    if size != cells * np.dtype(dtype).itemsize:
        raise Malformed("shape", f"{size} bytes for {cells} cells of {dtype}")
    return np.frombuffer(frame, dtype)


# A source's names are the same in every window: joining and splitting them is done once, not per message.
@lru_cache(maxsize=256)
def _joined(columns: tuple[str, ...]) -> bytes:
    return "\n".join(columns).encode()


@lru_cache(maxsize=256)
def _names(frame: bytes) -> tuple[str, ...]:
    try:
        columns = tuple(frame.decode().split("\n")) if frame else ()
    except UnicodeDecodeError as error:
        raise Malformed("columns", str(error)) from None
    if len(set(columns)) != len(columns) or any(not c or "\0" in c for c in columns):
        raise Malformed("columns", "a column name is empty, twice there or holds a NUL")
    return columns
