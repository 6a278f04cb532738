"""Where an update lies among the samples that a live file holds, and which rows of raw need not be looked at for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokiod.tts.schema import NO_ROW

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Update:
    """Where new samples lie among those that are known, and span with them. All but span is per touched column.

    columns: the touched ones, ascending. start, stop: the raw rows [start, stop) of the day that hold them; end: that behind the last
    sample of these columns. first, last: as in span, but `first` beyond all rows where nothing ever moved. new: no sample was known before.
    still: nothing but zeros, behind all known samples; such cells depend on the sample before alone, however long the zeros last.
    """

    __slots__ = ("columns", "end", "first", "last", "new", "span", "start", "still", "stop")

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
        self.still = (moved[self.columns] == never) & (known < self.start)


class Gap:
    """The widest run of rows met so far that holds no sample in any column.

    It is there so that filling a hole of hours, window by window, reads the hole once and not once per window. It is found by reading,
    shrinks before a sample is stored in it, and is forgotten with the process.
    """

    def __init__(self) -> None:
        self.start = self.stop = 1

    def around(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return what is left of the rows [start, stop) without the gap: all of them, or a piece at each side, which may be empty."""
        if max(start, self.start) >= min(stop, self.stop):
            return [(start, stop)]
        return [(start, max(start, self.start)), (min(self.stop, stop), stop)]

    def before(self, row: int, count: int) -> int:
        """Return the row that is `count` rows before another, not counting the gap."""
        begin = row - count
        return begin - (self.stop - self.start) if begin < self.stop <= row else begin

    def behind(self, row: int, count: int) -> int:
        """Return the row that is `count` rows behind another, not counting the gap."""
        end = row + count
        return end + (self.stop - self.start) if row <= self.start < end else end

    def widen(self, start: int, sampled: NDArray[np.int64], stop: int) -> None:
        """Take the widest run without a sample of the rows [start, stop), if it is wider; sampled: those with one, ascending."""
        edges = np.concatenate([[start - 1], sampled, [stop]])
        widest = int(np.argmax(edges[1:] - edges[:-1]))
        first, last = int(edges[widest]) + 1, int(edges[widest + 1])
        if last - first > self.stop - self.start:
            self.start, self.stop = first, last

    def shrink(self, start: int, stop: int) -> None:
        """Give up the rows [start, stop) and the smaller rest."""
        below, above = (self.start, max(min(self.stop, start), self.start)), (min(max(self.start, stop), self.stop), self.stop)
        self.start, self.stop = max(below, above, key=lambda run: run[1] - run[0])
