"""Coverage: which seconds of a source are stored, as maximal half-open ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Ranges:
    """A set of integers as sorted, disjoint, maximal half-open ranges.

    Two parallel lists, because bisect works on them directly: disjoint ranges are sorted by their starts and by their ends alike.
    Ten million stored windows without a hole are one range, so every query costs the number of holes, not of windows.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            self.add(start, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        return len(self._starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self._starts == other._starts and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment] # it changes

    def __repr__(self) -> str:
        return f"Ranges({list(self)})"

    @property
    def total(self) -> int:
        """How many integers there are."""
        return sum(self._ends) - sum(self._starts)

    def copy(self) -> Ranges:
        """Return an independent copy."""
        other = Ranges()
        other._starts, other._ends = self._starts.copy(), self._ends.copy()
        return other

    def add(self, start: int, end: int) -> None:
        """Add [start, end), joining the ranges that it overlaps or touches; an empty range adds nothing."""
        if start >= end:
            return
        if not self._ends or start > self._ends[-1]:
            self._starts.append(start)
            self._ends.append(end)
            return
        low, high = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [start], [end]

    def remove(self, start: int, end: int) -> None:
        """Remove [start, end), cutting the ranges that it overlaps."""
        low, high = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if start >= end or low >= high:
            return
        kept = [(s, e) for s, e in ((self._starts[low], start), (end, self._ends[high - 1])) if s < e]
        self._starts[low:high], self._ends[low:high] = [s for s, _ in kept], [e for _, e in kept]

    def windows(self) -> list[Window]:
        """Return all ranges, oldest first."""
        return [Window(start, end) for start, end in self]

    def covers(self, window: Window) -> bool:
        """Return whether the set holds all of a window."""
        return self.reach(window.start) >= window.end

    def reach(self, start: int) -> int:
        """Return the end of the range that holds `start`, `start` itself without one: how far the set reaches without a hole."""
        at = bisect_right(self._starts, start) - 1
        return max(start, self._ends[at]) if at >= 0 else start

    def within(self, start: int, end: int) -> list[Window]:
        """Return the parts of [start, end) that the set holds, oldest first."""
        low, high = bisect_right(self._ends, start), bisect_left(self._starts, end)
        pairs = zip(self._starts[low:high], self._ends[low:high], strict=True)
        return [Window(max(s, start), min(e, end)) for s, e in pairs] if start < end else []

    def holes(self, start: int, end: int) -> list[Window]:
        """Return the parts of [start, end) that are missing, oldest first."""
        held = self.within(start, end)
        edges = zip([start, *(w.end for w in held)], [*(w.start for w in held), end], strict=True)
        return [Window(s, e) for s, e in edges if s < e]

    def oldest_hole(self, start: int, end: int) -> Window | None:
        """Return the oldest hole in [start, end) without looking at the others."""
        start = self.reach(start)
        if start >= end:
            return None
        after = bisect_right(self._starts, start)
        return Window(start, min([end, *self._starts[after : after + 1]]))

    def newest_hole(self, start: int, end: int) -> Window | None:
        """Return the newest hole in [start, end) without looking at the others."""
        at = bisect_left(self._starts, end) - 1
        if at >= 0 and self._ends[at] >= end:
            end, at = self._starts[at], at - 1
        if start >= end:
            return None
        return Window(max(start, self._ends[at]) if at >= 0 else start, end)
