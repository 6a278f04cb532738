"""The usual windows of a counter: whole rows without a fall, after or between the stored rows. Their cells are plain differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokiod.tts.schema import NO_ROW

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.tts.live.matrix import Matrix

CONTEXT_ROWS = 3
"""Rows read on each side of the window: an anchor (tokiod.tts.counters.deltas) and the two samples before it."""


def is_append(span: NDArray[np.int64], first: int, stop: int, last_row: int) -> bool:
    """Return whether whole rows [first, stop) of raw lie inside the day and directly follow the last sample of every column."""
    inside = first > CONTEXT_ROWS and stop <= last_row
    return inside and bool((span[1] == first - 1).all()) and int(span[0].max()) < first


def appended_steps(span: NDArray[np.int64], raw: Matrix, first: int, block: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return each sample's difference to the row before it, of block's shape; None if the rule may give other cells.

    The rule gives plain differences while nothing falls if the row before is an anchor, or zero in a column without a nonzero sample:
    there is no base then, and the last sample is used. None too if the next day's first samples are known: their cells may change.
    """
    earlier, later, before = raw.read(first - CONTEXT_ROWS, first)
    anchor = (before >= np.maximum(earlier, later)) & (np.minimum(earlier, later) > 0)
    if not (anchor | ((before == 0) & (span[0] == NO_ROW))).all() or (raw.read(raw.rows - 1, raw.rows) >= 0).any():
        return None
    steps = np.empty_like(block)
    np.subtract(block[0], before, out=steps[0])
    np.subtract(block[1:], block[:-1], out=steps[1:])
    return steps if steps.min() >= 0 else None


def appended_span(span: NDArray[np.int64], first: int, block: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return span with these rows, for which appended_steps() returned differences."""
    onward = span.copy()
    onward[1] = first + len(block) - 1
    if span[0].min() == NO_ROW:
        moved = np.flatnonzero((span[0] == NO_ROW) & (block[-1] > 0))
        onward[0, moved] = first + (block[:, moved] > 0).argmax(axis=0)
    return onward


def inserted_steps(span: NDArray[np.int64], raw: Matrix, first: int, block: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return the differences of whole rows from `first` on, between stored rows, and of the CONTEXT_ROWS rows after them; None as above.

    If nothing falls and nothing is zero or absent, the row before is an anchor, so all these are plain differences; the last row after
    them does not depend on the window, so nothing after it changes. A sample after ABSENT wraps around to below zero, but ABSENT after a
    sample to above it: the last row is checked separately.
    """
    begin, end = first - CONTEXT_ROWS, first + len(block) + CONTEXT_ROWS
    if begin < 1 or end > raw.rows - 1 or span[1].min() < end - 1 or span[0].min() == NO_ROW or span[0].max() > begin:
        return None
    rows = raw.read(begin, end)
    rows[CONTEXT_ROWS:-CONTEXT_ROWS] = block
    steps: NDArray[np.int64] = rows[1:] - rows[:-1]
    return steps[CONTEXT_ROWS - 1 :] if rows[0].min() > 0 and rows[-1].min() > 0 and steps.min() >= 0 else None
