"""The position of an update among the stored samples, and the rows of raw that need not be read for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokiod.tts.schema import NO_ROW

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Update:
    """The position of new samples among the stored ones, and the span that includes them. All but span is per touched column.

    columns: the touched columns, ascending. start, stop: the raw rows [start, stop) of the day that hold the new samples; end: the row
    after the last sample of these columns. first, last: as in span, but `first` is after all rows in a column without a nonzero sample.
    new: no sample was stored before. idle: only zeros, after all stored samples; such cells depend on the sample before alone, however
    long the zeros last.
    """

    __slots__ = ("columns", "end", "first", "idle", "last", "new", "span", "start", "stop")

    def __init__(
        self, span: NDArray[np.int64], last_row: int, row: NDArray[np.int64], column: NDArray[np.integer], value: NDArray[np.int64]
    ) -> None:
        untouched, never, column = NO_ROW - 1, last_row + 1, column.astype(np.intp, copy=False)
        lowest, highest = int(row.min()), int(row.max())
        inside = lowest > 0 and highest < last_row
        own = row if inside else np.where((row > 0) & (row < last_row), row, NO_ROW)
        moving = value > 0 if inside else (value > 0) & (row > 0)
        moved, newest = np.full(span.shape[1], never), np.full(span.shape[1], untouched)
        np.minimum.at(moved, column, np.where(moving, row, never))
        np.maximum.at(newest, column, own)
        first, last = np.minimum(np.where(span[0] == NO_ROW, never, span[0]), moved), np.maximum(span[1], newest)
        self.span = np.stack([np.where(first == never, NO_ROW, first), last])
        self.columns = np.flatnonzero(newest != untouched)
        self.first, self.last, known = first[self.columns], last[self.columns], span[1, self.columns]
        self.end = max(int(self.last.max()) + 1, 1)
        self.start = min(max(lowest, 1), self.end)
        self.stop = min(highest + 1, self.end)
        self.new = known == NO_ROW
        self.idle = (moved[self.columns] == never) & (known < self.start)


class EmptyRun:
    """The widest known run of rows without a sample in any column.

    With it, filling a hole of hours window by window reads the hole once and not once per window. It is found by reading, shrinks before
    a sample is stored in it, and is not kept across processes.
    """

    def __init__(self) -> None:
        self.start = self.stop = 1

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
