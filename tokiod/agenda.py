"""Which window of a source is asked for next: a pure function of what is stored, what is underway, and the time."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from tokiod.ranges import Ranges
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokiod.collector import SourceConfig
    from tokiod.window import Calendar


class Agenda:
    """The windows of a source that are due, newest first.

    One rule makes live polling, healing and restarts: ask for the newest window that is closed and not stored. A window that has just
    closed is the newest hole there is, so it always goes before all older ones, and these follow newest first.

    The exception are windows that the source has not got to yet ("ahead"): from the oldest of them on, none is asked for until some
    seconds have passed, and then they come oldest first, or a source that lags by an hour would be asked for sixty windows again and
    again. While only answers "not yet" come, each next guess goes twice as far back, so that a source that stopped long ago, or a
    clock that jumped forth by a year, costs a few questions.

    A source without a past is asked only for the window that is now, as soon as it has begun.

    `now` is wall time, which may jump; `tick` is monotonic time, and all waiting is done in it. All windows are aligned.
    """

    def __init__(self, config: SourceConfig, calendar: Calendar, *, replayable: bool) -> None:
        self._config = config
        self._calendar = calendar
        self._replayable = replayable
        self._stored = Ranges()
        self._accounted = Ranges()
        self._taken = Ranges()
        self._underway: set[Window] = set()
        self._postponed: list[tuple[float, Window]] = []
        self._since = self._checked = 0
        self._ahead: int | None = None
        self._ahead_due = 0.0
        self._stride = 1

    def reach(self, now: float) -> tuple[int, int]:
        """Return the span [since, until) in which windows may be asked for: at least the newest that is closed."""
        if not self._replayable:
            current = self._window(int(now))
            return current.start, current.end
        until = self._window(int(now - self._config.settle)).start
        return min(self._window(int(now) - self._config.retention - 1).end, self._window(until - 1).start), until

    def load(self, stored: Ranges, lost: Iterable[Window], since: int) -> None:
        """Begin with what the ledger proves; what is underway or postponed stays so. since: from when on anything is expected."""
        self._stored = stored
        self._accounted = stored.copy()
        for window in lost:
            self._accounted.add(window.start, window.end)
        self._taken = stored.copy()
        for window in [*self._underway, *(window for _, window in self._postponed)]:
            self._taken.add(window.start, window.end)
        self._since = self._checked = since

    def next(self, now: float, tick: float) -> Window | None:
        """Return the window to ask for, or None where none is due."""
        while self._postponed and self._postponed[0][0] <= tick:
            self._free(heapq.heappop(self._postponed)[1])
        since, until = self.reach(now)
        if self._ahead is not None:
            if tick >= self._ahead_due:
                if hole := self._taken.oldest_hole(max(since, self._ahead), until):
                    return self._window(hole.start)
                self._ahead = None
            else:
                until = min(until, self._ahead)
        hole = self._taken.newest_hole(since, until)
        return self._window(hole.end - 1) if hole else None

    def wait(self, now: float, tick: float) -> float:
        """Return the seconds until next() may have another answer: a window closes, or a wait is over."""
        settle = self._config.settle if self._replayable else 0
        waits = [self._window(int(now - settle)).end + settle - now]
        waits += [due - tick for due, _ in self._postponed[:1]]
        waits += [self._ahead_due - tick] if self._ahead is not None else []
        return max(0.001, min(waits))

    def take(self, window: Window) -> None:
        """Mark a window as underway, from its collecting to the writer's answer: it is not asked for meanwhile."""
        self._underway.add(window)
        self._taken.add(window.start, window.end)

    def is_underway(self, window: Window) -> bool:
        """Whether any part of a window is underway."""
        return any(other.start < window.end and window.start < other.end for other in self._underway)

    def done(self, window: Window) -> None:
        """Mark a window as stored."""
        self._underway.discard(window)
        for ranges in (self._stored, self._accounted, self._taken):
            ranges.add(window.start, window.end)
        if self._ahead is not None and window.start < self._ahead:
            self._stride = 1

    def release(self, window: Window) -> None:
        """Make a window due again."""
        self._underway.discard(window)
        self._free(window)

    def postpone(self, window: Window, until: float) -> None:
        """Make a window due again at a tick."""
        self._underway.discard(window)
        heapq.heappush(self._postponed, (until, window))

    def not_yet(self, window: Window, until: float) -> None:
        """Note that the source has not got to a window; neither this one nor newer ones are due until a tick."""
        self.release(window)
        self._ahead_due = until
        back = 0
        if self._ahead is None:
            self._stride = 1
        elif window.start < self._ahead:
            back, self._stride = self._stride, 2 * self._stride + 1
        self._ahead = window.start - back * self._config.window

    def overdue(self, now: float) -> list[Window]:
        """Return, once, the spans that nobody will ever ask for again: neither stored nor underway, and out of reach."""
        edge, _ = self.reach(now)
        gone = Ranges((hole.start, hole.end) for hole in self._accounted.holes(self._checked, edge))
        for window in self._underway:
            gone.remove(window.start, window.end)
        self._checked = max(self._checked, min([edge, *(window.start for window in self._underway)]))
        for start, end in gone:
            self._accounted.add(start, end)
        return [Window(start, end) for start, end in gone]

    def had_before(self, span: Window) -> bool:
        """Tell whether anything that was expected before a span is stored: if not, the source was never had as far back as this."""
        return bool(self._stored.within(self._since, span.start))

    def _free(self, window: Window) -> None:
        if not self._stored.covers(window):
            self._taken.remove(window.start, window.end)

    def _window(self, time: int) -> Window:
        return self._calendar.window(time, self._config.window)
