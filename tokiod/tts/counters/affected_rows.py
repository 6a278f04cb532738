"""The rows of raw that need not be read: the widest run without a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class EmptyRun:
    """The widest known run of rows without a sample in any column.

    With it, filling a hole of hours window by window reads the hole once and not once per window. It is found by reading, shrinks before
    a sample is stored in it, and is not kept across processes.
    """

    def __init__(self) -> None:
        self.start = self.stop = 0

    def outside(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the rows [start, stop) outside the run: all of them, or a piece on each side, which may be empty."""
        if max(start, self.start) >= min(stop, self.stop):
            return [(start, stop)]
        return [(start, max(start, self.start)), (min(self.stop, stop), stop)]

    def before(self, row: int, count: int) -> int:
        """Return the row that is `count` rows before another, not counting the run."""
        begin = row - count
        return begin - (self.stop - self.start) if begin < self.stop <= row else begin

    def after(self, row: int, count: int) -> int:
        """Return the row that is `count` rows after another, not counting the run."""
        end = row + count
        return end + (self.stop - self.start) if row <= self.start < end else end

    def widen(self, start: int, sampled: NDArray[np.int64], stop: int) -> None:
        """Take the widest run without a sample of the rows [start, stop), if it is wider; sampled: the rows with one, ascending."""
        edges = np.concatenate([[start - 1], sampled, [stop]])
        widest = int(np.argmax(edges[1:] - edges[:-1]))
        first, last = int(edges[widest]) + 1, int(edges[widest + 1])
        if last - first > self.stop - self.start:
            self.start, self.stop = first, last

    def shrink(self, start: int, stop: int) -> None:
        """Drop the rows [start, stop) and the smaller of the two remaining pieces."""
        below, above = (self.start, max(min(self.stop, start), self.start)), (min(max(self.start, stop), self.stop), self.stop)
        self.start, self.stop = max(below, above, key=lambda run: run[1] - run[0])
