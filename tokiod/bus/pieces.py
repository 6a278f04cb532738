"""A window cut into messages, a batch each; tokiod.bus.staging puts them together."""

from __future__ import annotations

from dataclasses import replace
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
    latest: Batch | None = None
    for part, batch in enumerate(batches):
        latest = None if batch is None else _with_rows(batch, latest)
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
        yield sample.encode(collected.system, latest, piece)


def _with_rows(batch: Batch, before: Batch | None) -> Batch:
    """Return a batch that says whether it is whole rows, as the one before does that has the very same times and columns."""
    if before is not None and batch.time is before.time and batch.column is before.column and _shape(batch) == _shape(before):
        return replace(batch, rows=before.rows)
    return replace(batch, rows=sample.even_rows(batch))


def _shape(batch: Batch) -> tuple[int, int]:
    return batch.step, len(batch.columns)
