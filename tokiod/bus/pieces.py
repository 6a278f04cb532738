"""A window cut into messages, a batch each; tokiod.bus.staging puts them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod import sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokiod.sample import Batch, Frame
    from tokiod.sink import Collected


def pieces(collected: Collected, attempt: int) -> Iterator[list[Frame]]:
    """Yield the frames of each message; a window without data is one, too."""
    batches: Sequence[Batch | None] = collected.batches or [None]
    window, told = collected.window, dict(collected.dropped)
    for part, batch in enumerate(batches):
        piece = sample.Piece(
            collected.source,
            collected.kind,
            window.start,
            window.end,
            attempt,
            part,
            len(batches),
            collected.records,
            told,
            collected.extent,
        )
        yield sample.encode(collected.system, batch, piece)
