"""The header of a message of the feed: names, sizes and state, without its arrays. See tokiod.bus.feed_message for the whole message.

A process that only passes messages on needs nothing else, and no numpy.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from tokiod.batch import Count, Form, Rows  # noqa: TC001 - msgspec reads annotations
from tokiod.crossing.names import Name, Printable, check_dataset, check_names
from tokiod.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokiod.crossing.codec import Frame

VERSION = 1
FRAMES = 6
ROWS_FRAMES = 4


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
    stored: Stored | None = None


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
    if bytes(frames[0]) != checked_topic(header.system, header.dataset):
        raise Malformed("topic", f"topic {bytes(frames[0])[:100]!r} differs from the header")
    return header


@lru_cache(maxsize=256)
def checked_topic(system: str, dataset: str) -> bytes:
    """Return the first frame of a message; raises Malformed for names that the wire does not allow."""
    check_names(system)
    if dataset:
        check_dataset(dataset)
    return topic(system, dataset)
