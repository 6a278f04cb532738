"""Batch: the one vocabulary that collectors, the writer, sinks and subscribers share, and its wire form.

A message is a ZeroMQ multipart, the same on the inner bus and on the feed (all arrays little-endian, C order):

    topic    system/dataset, e.g. cscratch/datatargets/readbytes
    header   JSON, see Header
    columns  names joined by newlines, UTF-8
    time     i8[n]  UTC epoch seconds
    column   u4[n]  index into columns
    value    f8[n]  or i8[n] where header.form is "counter"

Two messages are the first two frames alone: a window without any data (inner bus; its topic ends in "/"), and a heartbeat
(feed; it repeats the last `stored` of its topic). Names are letters, digits, "_", "." and "-"; a dataset is two of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np

from tokiod.errors import Malformed
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

VERSION = 1
FRAMES = 6

Frame = bytes | memoryview

_NAME = "[A-Za-z0-9][A-Za-z0-9_.-]*"
Name = Annotated[str, msgspec.Meta(pattern=rf"\A{_NAME}\Z", max_length=200)]
Dataset = Annotated[str, msgspec.Meta(pattern=rf"\A({_NAME}/{_NAME})?\Z", max_length=200)]
Epoch = Annotated[str, msgspec.Meta(pattern=r"\A[!-~]+\Z", max_length=200)]
Reason = Annotated[str, msgspec.Meta(max_length=200)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
Second = Annotated[int, msgspec.Meta(ge=0, lt=250_000_000_000)]
"""What a stranger's header may hold: nothing that is no file name, no printable word, no number that a float or an int64 can't be,
no time that no calendar has (they end with the year 9999)."""

Extent = Literal["whole", "some", "seam"]
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


class Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which part of which attempt at which window of which source a message on the inner bus is.

    records, dropped: what the collector says of the whole window (tokiod.collector.Tally); extent: see tokiod.sink.Collected.
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

    @property
    def window(self) -> Window:
        """The window it is a part of; raises ValueError for an empty one."""
        return Window(self.start, self.end)


class Stored(msgspec.Struct, frozen=True):
    """What a feed message tells beside its cells: the writer's run, a number per topic without holes, the source's watermark."""

    epoch: Epoch
    sequence: Count
    watermark: Count


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """The JSON frame of a message."""

    version: int
    system: Name
    dataset: Dataset = ""
    form: Form = "gauge"
    step: Count = 0
    cells: Count = 0
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
    """Return a message's frames; the arrays are not copied."""
    if batch is None:
        header = Header(VERSION, system, piece=piece, stored=stored)
        return [topic(system), msgspec.json.encode(header)]
    header = Header(VERSION, system, batch.dataset, batch.form, batch.step, len(batch), piece, stored)
    arrays = (
        batch.time.astype("<i8", copy=False),
        batch.column.astype("<u4", copy=False),
        batch.value.astype("<i8" if batch.form == "counter" else "<f8", copy=False),
    )
    return [
        topic(system, batch.dataset),
        msgspec.json.encode(header),
        _joined(batch.columns),
        *(np.ascontiguousarray(a).data for a in arrays),
    ]


def encode_heartbeat(system: str, dataset: str, stored: Stored) -> list[Frame]:
    """Return the frames that repeat what was last stored of a dataset."""
    return [topic(system, dataset), msgspec.json.encode(Header(VERSION, system, dataset, stored=stored))]


def decode_header(frames: Sequence[Frame]) -> Header:
    """Read who a message is from and what it is, whatever its arrays hold.

    Raises Malformed for a wrong number of frames, header, version or topic.
    """
    if len(frames) not in (2, FRAMES):
        raise Malformed("frames", f"{len(frames)} frames, expected 2 or {FRAMES}")
    try:
        header = _json_to_header(frames[1])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed("header", str(error)) from None
    if header.version != VERSION:
        raise Malformed("version", f"version {header.version}, expected {VERSION}")
    if bytes(frames[0]) != topic(header.system, header.dataset):
        raise Malformed("topic", f"topic {bytes(frames[0])[:100]!r} is not that of the header")
    return header


def decode(frames: Sequence[Frame]) -> tuple[Header, Batch | None]:
    """Read a message; the arrays are views of its frames, or copies where a view would not be aligned.

    Raises Malformed for what decode_header does, and for a step, array length, column name or column index that can't be.
    """
    header = decode_header(frames)
    if len(frames) != FRAMES:
        if header.cells:
            raise Malformed("shape", f"no arrays for {header.cells} cells")
        return header, None
    if not (header.dataset and header.step):
        raise Malformed("step", f"dataset {header.dataset!r} with a step of {header.step}")
    columns = _names(bytes(frames[2]))
    time = _array(frames[3], _TIME, header.cells)
    column = _array(frames[4], _COLUMN, header.cells)
    value = _array(frames[5], _VALUE[header.form], header.cells)
    if header.cells and int(column.max()) >= len(columns):
        raise Malformed("column", f"column {int(column.max())} of {len(columns)} in {header.dataset}")
    return header, Batch(header.dataset, header.form, header.step, columns, time, column, value)


def _array(frame: Frame, dtype: np.dtype[Any], cells: int) -> NDArray[Any]:
    size = memoryview(frame).nbytes
    if size != cells * dtype.itemsize:
        raise Malformed("shape", f"{size} bytes for {cells} cells of {dtype.str}")
    array = np.frombuffer(frame, dtype)
    return array if array.flags.aligned else array.copy()


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
