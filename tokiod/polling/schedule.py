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


PATIENCE = 4
"""Windows that have just closed and go before the past in a row, while there is some to be had."""


class Agenda:
    """The windows of a source that are due, newest first.

    One rule makes live polling, healing and restarts: ask for the newest window that is closed and not stored. A window that has just
    closed is the newest hole there is, so it always goes before all older ones, and these follow newest first.

    Older ones are the past that is healed: neighbours are asked for at once, as far as one question may reach, and no more than
    `heal_rate` seconds of it per second. A source that is so slow that a window is always just closed is asked for some of its past
    all the same, after every few windows. What failed at once is asked for window by window.

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
        self._singly = Ranges()
        self._heal_due = float("-inf")
        self._passed = 0

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

    def next(self, now: float, tick: float, longest: int = 0) -> Window | None:
        """Return the window to ask for, or neighbours of the past as one of at most `longest` seconds; None where nothing is due."""
        while self._postponed and self._postponed[0][0] <= tick:
            self._free(heapq.heappop(self._postponed)[1])
        since, until = self.reach(now)
        if self._ahead is not None:
            if tick >= self._ahead_due:
                if hole := self._taken.oldest_hole(max(since, self._ahead), until):
                    window = self._window(hole.start)
                    return window if window.end >= until or tick >= self._heal_due else None
                self._ahead = None
            else:
                until = min(until, self._ahead)
        newest = self._newest(since, until, now)
        past = self._past(since, min(until, newest.start) if newest else until, tick, longest)
        return newest if past is None or (newest and self._passed < PATIENCE) else past

    def _newest(self, since: int, until: int, now: float) -> Window | None:
        """Return the window that has just closed, if it is due."""
        hole = self._taken.newest_hole(since, until)
        return self._window(hole.end - 1) if hole and self._is_newest(self._window(hole.end - 1), now) else None

    def _past(self, since: int, until: int, tick: float, longest: int) -> Window | None:
        hole = self._taken.newest_hole(since, until) if tick >= self._heal_due else None
        if hole is None:
            return None
        window = self._window(hole.end - 1)
        length = self._config.window
        start = self._calendar.window(window.start, max(1, longest // length) * length).start
        whole = self._window(hole.start)
        start = max(start, whole.start if whole.start >= hole.start else whole.end)
        start = max([start, *(failed.end for failed in self._singly.within(start, window.start))])
        return window if self._singly.within(window.start, window.end) else Window(min(start, window.start), window.end)

    def _is_newest(self, window: Window, now: float) -> bool:
        return window.end >= self.reach(now)[1]

    def wait(self, now: float, tick: float) -> float:
        """Return the seconds until next() may have another answer: a window closes, or a wait is over."""
        settle = self._config.settle if self._replayable else 0
        waits = [self._window(int(now - settle)).end + settle - now]
        waits += [due - tick for due, _ in self._postponed[:1]]
        waits += [self._ahead_due - tick] if self._ahead is not None and self._ahead_due > tick else []
        waits += [self._heal_due - tick] if self._heal_due > tick else []
        return max(0.001, min(waits))

    def begin(self, window: Window, now: float, tick: float) -> None:
        """Take what next() returned, and keep account of the past."""
        if self._is_newest(window, now):
            waiting = self._past(self.reach(now)[0], window.start, tick, 0)
            self._passed = self._passed + 1 if waiting else 0
        else:
            self._passed = 0
            self._heal_due = tick + window.seconds / self._config.heal_rate if self._config.heal_rate else tick
        self.take(window)

    def rest(self, until: float) -> None:
        """Ask for nothing of the past until a tick."""
        self._heal_due = max(self._heal_due, until)

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
        self._singly.remove(window.start, window.end)
        if self._ahead is not None and window.start < self._ahead:
            self._stride = 1

    def release(self, window: Window) -> None:
        """Make a window due again."""
        self._underway.discard(window)
        self._free(window)

    def postpone(self, window: Window, until: float, *, singly: bool = False) -> None:
        """Make a window due again at a tick; singly: what was asked for at once, window by window."""
        self._underway.discard(window)
        if singly and window.seconds > self._config.window:
            self._singly.add(window.start, window.end)
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
        """Return the spans that nobody will ever ask for again: neither stored nor underway, out of reach, and not yet written off."""
        edge, _ = self.reach(now)
        gone = Ranges((hole.start, hole.end) for hole in self._accounted.holes(self._checked, edge))
        for window in self._underway:
            gone.remove(window.start, window.end)
        self._checked = max(self._checked, min([edge, *(start for start, _ in gone), *(window.start for window in self._underway)]))
        return [Window(start, end) for start, end in gone]

    def write_off(self, span: Window) -> None:
        """Note that an overdue span is told of."""
        self._accounted.add(span.start, span.end)

    def had_before(self, span: Window) -> bool:
        """Tell whether anything that was expected before a span is stored: if not, the source was never had as far back as this.

        Of a source without a past, all that was expected could have been had when it was.
        """
        return not self._replayable or bool(self._stored.within(self._since, span.start))

    def _free(self, window: Window) -> None:
        self._taken.remove(window.start, window.end)
        for part in self._stored.within(window.start, window.end):
            self._taken.add(part.start, part.end)

    def _window(self, time: int) -> Window:
        return self._calendar.window(time, self._config.window)
