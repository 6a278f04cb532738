"""A window cut into messages, a batch each; tokiod.bus.staging puts them together."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING

from tokiod import sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokiod.sample import Batch, Frame
    from tokiod.sink import Collected


def _with_rows(batch: Batch, before: Batch | None) -> Batch:
    """Return a batch that says whether it is whole rows, which is known if it has the very times and columns of the one before."""
    if batch.rows is not None:
        return batch
    of_both = operator.attrgetter("time", "column", "step")
    same = before is not None and all(map(operator.is_, of_both(batch), of_both(before))) and len(batch.columns) == len(before.columns)
    return replace(batch, rows=before.rows if before is not None and same else sample.even_rows(batch))


def pieces(collected: Collected, attempt: int) -> Iterator[list[Frame]]:
    """Yield the frames of each message; a window without data is one, too."""
    batches: Sequence[Batch | None] = collected.batches or [None]
    window, told = collected.window, dict(collected.dropped)
    known: Batch | None = None
    for part, one in enumerate(batches):
        known = batch = None if one is None else _with_rows(one, known)
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
