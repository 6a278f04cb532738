"""A window as the messages in which a collectors' process sends it to the writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.bus import protocol
from tokiod.crossing.codec import encode
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from tokiod.window_data import Collected


def messages(collected: Collected, attempt: int = 1, parts: int = 1) -> list[list[bytes]]:
    """Return the frames of each message, with the bytes of the window cut into so many parts of one length."""
    meta = collected.meta
    content = b"".join(encode(WindowData(collected.batches, meta.records, meta.dropped, collected.tables)))
    size = -(-len(content) // parts)
    heads = [protocol.encode(protocol.Part.of(meta, attempt, part, parts)) for part in range(parts)]
    return [[head, content[part * size : (part + 1) * size]] for part, head in enumerate(heads)]
