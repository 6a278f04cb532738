"""The frames of a message as one value, for brokers whose messages have no frames.

Each frame follows its length in bytes, u4 little-endian.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tokiod.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokiod.crossing.codec import Frame

_LENGTH = struct.Struct("<I")
MAX_FRAMES = 16


def pack(frames: Sequence[Frame]) -> bytes:
    """Return the frames of a message as one value."""
    parts: list[Frame] = []
    for frame in frames:
        parts += (_LENGTH.pack(memoryview(frame).nbytes), frame)
    return b"".join(parts)


def unpack(value: bytes) -> list[Frame]:
    """Return the frames of a value, views of it. Raises Malformed for a value that is not what pack() returns."""
    whole, position = memoryview(value), 0
    frames: list[Frame] = []
    while position < len(whole):
        if len(frames) == MAX_FRAMES or position + _LENGTH.size > len(whole):
            raise Malformed("frames", f"{len(whole)} bytes are not a packed message")
        (length,) = _LENGTH.unpack_from(whole, position)
        position += _LENGTH.size
        if position + length > len(whole):
            raise Malformed("frames", f"a frame of {length} bytes in the last {len(whole) - position} of a packed message")
        frames.append(whole[position : position + length])
        position += length
    return frames
