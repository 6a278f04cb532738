"""The header of a message of batches: names, sizes and state, without its arrays. See tokiod.bus.wire for the whole message.

A process that only passes messages on needs nothing else, and no numpy.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Self

import msgspec

from tokiod.batch import Count, Extent, Form, Rows, Second  # noqa: TC001 - msgspec reads annotations
from tokiod.errors import Malformed
from tokiod.window import Window
from tokiod.window_data import WindowMeta

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = 1
FRAMES = 6
ROWS_FRAMES = 4
TABLE_FRAMES = 3

Frame = bytes | memoryview

_NAME = "[A-Za-z0-9][A-Za-z0-9_.-]*"
_is_name = re.compile(_NAME).fullmatch
_is_dataset = re.compile(rf"({_NAME}/{_NAME})?").fullmatch
Name = Annotated[str, msgspec.Meta(max_length=200)]
"""What _is_name matches; of a dataset, _is_dataset. Checked once, not per message."""
Printable = Annotated[str, msgspec.Meta(pattern=r"\A[!-~]+\Z", max_length=200)]
Reason = Annotated[str, msgspec.Meta(max_length=200)]
ColumnName = Annotated[str, msgspec.Meta(pattern=r"\A[a-z][a-z0-9_.]*\Z", max_length=60)]
Width = Annotated[int, msgspec.Meta(ge=0, le=4096)]
"""Of a table's column: 0 for numbers, else the bytes of its text."""
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

    epoch: Printable
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
    table: dict[ColumnName, Width] | None = None
    polled: tuple[Printable, ...] = ()


_json_to_header = msgspec.json.Decoder(Header).decode


def topic(system: str, dataset: str = "") -> bytes:
    """Return the first frame of a message."""
    return f"{system}/{dataset}".encode()


def encode_heartbeat(system: str, dataset: str, stored: Stored) -> list[Frame]:
    """Return the frames of a heartbeat, which repeats the last state of a dataset."""
    return [topic(system, dataset), msgspec.json.encode(Header(VERSION, system, dataset, stored=stored))]


def decode_header(frames: Sequence[Frame]) -> Header:
    """Decode the header of a message, independently of its arrays.

    Raises Malformed for an invalid number of frames, header, version or topic.
    """
    if len(frames) not in (2, TABLE_FRAMES, ROWS_FRAMES, FRAMES):
        raise Malformed("frames", f"{len(frames)} frames, expected 2, {TABLE_FRAMES}, {ROWS_FRAMES} or {FRAMES}")
    try:
        header = _json_to_header(frames[1])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed("header", str(error)) from None
    if header.version != VERSION:
        raise Malformed("version", f"version {header.version}, expected {VERSION}")
    if (header.rows is None) == (len(frames) == ROWS_FRAMES):
        raise Malformed("frames", f"{len(frames)} frames, expected {ROWS_FRAMES} with whole rows in the header, and only then")
    if (header.table is None) == (len(frames) == TABLE_FRAMES):
        raise Malformed("frames", f"{len(frames)} frames, expected {TABLE_FRAMES} for rows of a table, and only then")
    if header.piece is not None:
        _check_names(header.piece.source, header.piece.kind)
    if bytes(frames[0]) != checked_topic(header.system, header.dataset):
        raise Malformed("topic", f"topic {bytes(frames[0])[:100]!r} differs from the header")
    return header


# A source's names are the same in every window: matching, joining and splitting them is done once, not per message. Each cache is small
# enough for frames from a peer that sends other names each time.
@lru_cache(maxsize=256)
def _check_names(*names: str) -> None:
    for name in names:
        if not _is_name(name):
            raise Malformed("header", f"{name!r} is not a name of a source, kind or system")


@lru_cache(maxsize=256)
def checked_topic(system: str, dataset: str) -> bytes:
    """Return the first frame of a message; raises Malformed for names that the wire does not allow."""
    _check_names(system)
    if not _is_dataset(dataset):
        raise Malformed("header", f"{dataset!r} is not a name of a dataset")
    return topic(system, dataset)
