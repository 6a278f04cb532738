"""The normal windows of a counter: whole rows, behind all that is stored or in the middle of it, where nothing falls: plain differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokiod.tts.schema import NO_ROW

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.tts.live.matrix import Matrix

AROUND = 3
"""Rows that are read beside the window: an anchor, as tokiod.tts.counters.deltas has it, and the two samples before it."""


def follows(span: NDArray[np.int64], first: int, stop: int, last_row: int) -> bool:
    """Tell whether whole rows [first, stop) of raw lie inside the day, right behind the last sample of every column."""
    inside = first > AROUND and stop <= last_row
    return inside and bool((span[1] == first - 1).all()) and int(span[0].max()) < first


def steps_onward(span: NDArray[np.int64], raw: Matrix, first: int, block: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return each sample's difference to the row before it, of block's shape; None where the rule may say something else.

    The rule takes plain differences as long as nothing falls if the row before is an anchor, or zero in a column that never moved: there
    is no base then, and the last sample stands in for it. Where the next day's first samples are known their cells may follow too: None.
    """
    earlier, later, before = raw.read(first - AROUND, first)
    anchor = (before >= np.maximum(earlier, later)) & (np.minimum(earlier, later) > 0)
    if not (anchor | ((before == 0) & (span[0] == NO_ROW))).all() or (raw.read(raw.rows - 1, raw.rows) >= 0).any():
        return None
    steps = np.empty_like(block)
    np.subtract(block[0], before, out=steps[0])
    np.subtract(block[1:], block[:-1], out=steps[1:])
    return steps if steps.min() >= 0 else None


def span_onward(span: NDArray[np.int64], first: int, block: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return span with these rows, which must be such as have steps_onward()."""
    onward = span.copy()
    onward[1] = first + len(block) - 1
    if span[0].min() == NO_ROW:
        moved = np.flatnonzero((span[0] == NO_ROW) & (block[-1] > 0))
        onward[0, moved] = first + (block[:, moved] > 0).argmax(axis=0)
    return onward


def steps_between(span: NDArray[np.int64], raw: Matrix, first: int, block: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return what whole rows from `first` on, in the middle of known ones, and the AROUND rows after them make; None as steps_onward().

    Where nothing falls and nothing is zero or absent, the row before is an anchor, so that all these are plain differences; and the last
    row after is one that owes nothing to the window, so that nothing beyond it changes. A sample after ABSENT wraps around to below zero,
    but ABSENT after a sample to above it: the last row is looked at for itself.
    """
    begin, end = first - AROUND, first + len(block) + AROUND
    if begin < 1 or end > raw.rows - 1 or span[1].min() < end - 1 or span[0].min() == NO_ROW or span[0].max() > begin:
        return None
    rows = raw.read(begin, end)
    rows[AROUND:-AROUND] = block
    steps: NDArray[np.int64] = rows[1:] - rows[:-1]
    return steps[AROUND - 1 :] if rows[0].min() > 0 and rows[-1].min() > 0 and steps.min() >= 0 else None
