"""Which window of a source is queried next: a pure function of what is stored, what is leased, and the time."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Protocol

from tokiod.ranges import Ranges
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tokiod.collector import SourceConfig
    from tokiod.window import Calendar
    from tokiod.window_data import Collected


MAX_LIVE_RUN = 4
"""Newest windows in a row that are queried before gaps, while there are gaps."""


LEASE_RETRY_SECONDS = 0.1
"""Between two attempts of a backfill or recount to lease a window while live polling goes first."""


class WindowLease(Protocol):
    """Which task works on a window of a source: its poller or a backfill, never both."""

    def live_is_due(self) -> bool:
        """Return whether the newest window is due or being collected."""
        ...

    def acquire(self, window: Window) -> bool:
        """Lease a window; False while any part of it is leased."""
        ...

    def release(self, window: Window, *, stored: bool) -> None:
        """End a lease; stored: the window is not due any more."""
        ...

    def doubts(self, collected: Collected) -> bool:
        """Return whether a window without records may have some once the source returns any, so that it must not count as stored."""
        ...


class FreeLease:
    """The leases where no poller runs."""

    def live_is_due(self) -> bool:
        """Return that live polling has nothing to do."""
        return False

    def acquire(self, _window: Window) -> bool:
        """Lease any window."""
        return True

    def release(self, _window: Window, *, stored: bool) -> None:
        """End a lease."""

    def doubts(self, collected: Collected) -> bool:
        """Return whether a window has no records: it is unknown whether the source has any."""
        return collected.is_empty


class Schedule:
    """The windows of a source that are due, newest first.

    One rule covers live polling, healing and restarts: query the newest window that is closed and not stored. A window that has just
    closed is the newest gap, so it comes before all older ones, and these follow newest first.

    Older gaps are healed: neighbours are queried together, up to the longest query, and no more than `heal_rate` seconds of data per
    second. Where a source is so slow that a window has always just closed, a gap is healed after every few windows all the same. What
    failed together is queried window by window.

    The exception are windows that the source has not reached yet ("ahead"): the oldest of them and all newer ones wait for some seconds,
    and then come oldest first. Otherwise a source that lags by an hour would be queried for sixty windows again and again. While all
    answers are "not yet", each next guess goes back twice as far, so a source that stopped long ago, or a clock that jumped forward by a
    year, costs a few queries.

    A source that is not replayable is queried only for the current window, as soon as it has begun.

    `now` is wall time, which may jump; `tick` is monotonic time, and all waiting is done in it. All windows are aligned.
    """

    def __init__(self, config: SourceConfig, calendar: Calendar, *, replayable: bool) -> None:
        self._config = config
        self._calendar = calendar
        self.replayable = replayable
        self._stored = Ranges()
        self._accounted = Ranges()
        self._taken = Ranges()
        self._empty = Ranges()
        self._leased: set[Window] = set()
        self._postponed: list[tuple[float, Window]] = []
        self._since = self._checked = 0
        self._ahead: int | None = None
        self._ahead_due = 0.0
        self._stride = 1
        self._singly = Ranges()
        self._heal_due = float("-inf")
        self._live_run = 0
        self._proven: float | None = None
        self._samples_until: int | None = None

    def reach(self, now: float) -> tuple[int, int]:
        """Return the span [since, until) in which windows may be queried: at least the newest closed one."""
        if not self.replayable:
            current = self._window(int(now))
            return current.start, current.end
        until = self._window(int(now - self._config.settle)).start
        return min(self._config.reach(self._calendar, now), self._window(until - 1).start), until

    def load(
        self, stored: Ranges, lost: Iterable[Window], since: int, empty: Iterable[Window] = (), *, data_end: int | None = None
    ) -> None:
        """Start from the ledger; leased and postponed windows stay so. since: the time from which data is expected.

        Empty windows are due, unless they are postponed. data_end: the end of the newest stored window with a sample.
        """
        if data_end is not None and self._samples_until is None:
            self._samples_until = data_end
        self._stored = stored
        self._accounted = stored.copy()
        self._empty = Ranges((window.start, window.end) for window in empty)
        for window in lost:
            self._accounted.add(window.start, window.end)
        self._taken = stored.copy()
        for window in [*self._leased, *(window for _, window in self._postponed)]:
            self._taken.add(window.start, window.end)
        self.expect(since)

    def expect(self, since: int) -> None:
        """Expect data from a time on, epoch seconds."""
        if self.replayable and since < self._since:
            # The later time came from a clock that was ahead. It may have been taken for proof that it had passed.
            self._proven = None
        self._since = self._checked = since

    def next(self, now: float, tick: float, longest: int = 0) -> Window | None:
        """Return the window to query, or neighbouring gaps as one window of at most `longest` seconds; None where nothing is due."""
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
        gap = self._newest_gap(since, min(until, newest.start) if newest else until, tick, longest)
        return newest if gap is None or (newest and self._live_run < MAX_LIVE_RUN) else gap

    def _newest(self, since: int, until: int, now: float) -> Window | None:
        """Return the newest closed window, if it is due."""
        hole = self._taken.newest_hole(since, until)
        return self._window(hole.end - 1) if hole and self._is_newest(self._window(hole.end - 1), now) else None

    def _newest_gap(self, since: int, until: int, tick: float, longest: int) -> Window | None:
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
        """Return the seconds until next() may return another window: one closes, or a wait ends."""
        settle = self._config.settle if self.replayable else 0
        waits = [self._window(int(now - settle)).end + settle - now]
        waits += [due - tick for due, _ in self._postponed[:1]]
        waits += [self._ahead_due - tick] if self._ahead is not None and self._ahead_due > tick else []
        waits += [self._heal_due - tick] if self._heal_due > tick else []
        return max(0.001, min(waits))

    def begin(self, window: Window, now: float, tick: float) -> None:
        """Lease what next() returned, and limit the rate of healing."""
        if self._is_newest(window, now):
            has_gap = self._newest_gap(self.reach(now)[0], window.start, tick, 0)
            self._live_run = self._live_run + 1 if has_gap else 0
        else:
            self._live_run = 0
            self._heal_due = tick + window.seconds / self._config.heal_rate if self._config.heal_rate else tick
        self.acquire(window)

    def pause_healing(self, until: float) -> None:
        """Query no gaps until a tick."""
        self._heal_due = max(self._heal_due, until)

    def acquire(self, window: Window) -> None:
        """Lease a window, from its collection to the writer's answer: it is not due meanwhile."""
        self._leased.add(window)
        self._taken.add(window.start, window.end)

    def is_leased(self, window: Window) -> bool:
        """Return whether any part of a window is leased."""
        return any(other.start < window.end and window.start < other.end for other in self._leased)

    def store(self, window: Window) -> None:
        """End the lease of a window that is stored."""
        self._leased.discard(window)
        for ranges in (self._stored, self._accounted, self._taken):
            ranges.add(window.start, window.end)
        for ranges in (self._singly, self._empty):
            ranges.remove(window.start, window.end)
        if self._ahead is not None and window.start < self._ahead:
            self._stride = 1

    def release(self, window: Window) -> None:
        """End the lease of a window that is not stored: it is due again."""
        self._leased.discard(window)
        self._free(window)

    def postpone(self, window: Window, until: float, *, singly: bool = False) -> None:
        """End the lease of a window and make it due at a tick; singly: what was queried together comes window by window."""
        self._leased.discard(window)
        if singly and window.seconds > self._config.window:
            self._singly.add(window.start, window.end)
        heapq.heappush(self._postponed, (until, window))

    def keep_empty(self, window: Window, until: float) -> None:
        """End the lease of a window for which the source has no record: it is due at a tick, or once the source returns records again."""
        self.postpone(window, until)
        self._empty.add(window.start, window.end)

    def release_empty(self) -> None:
        """Make all empty windows due."""
        if not self._empty:
            return
        kept = [(until, window) for until, window in self._postponed if not self._empty.covers(window)]
        released = [window for _, window in self._postponed if self._empty.covers(window)]
        self._postponed = kept
        heapq.heapify(kept)
        for window in released:
            self._free(window)

    def not_yet(self, window: Window, until: float) -> None:
        """End the lease of a window that the source has not reached: neither this one nor newer ones are due until a tick."""
        self.release(window)
        self._ahead_due = until
        back = 0
        if self._ahead is None:
            self._stride = 1
        elif window.start < self._ahead:
            back, self._stride = self._stride, 2 * self._stride + 1
        self._ahead = window.start - back * self._config.window

    def overdue(self, now: float, tick: float) -> list[Window]:
        """Return the spans that can no longer be queried and are neither stored, leased nor written off; none is empty in part.

        A clock that is ahead makes nothing overdue: what has passed is judged by proven_time().
        """
        edge, _ = self.reach(self.proven_time(now, tick))
        gone = Ranges((hole.start, hole.end) for hole in self._accounted.holes(self._checked, edge))
        for window in self._leased:
            gone.remove(window.start, window.end)
        self._checked = max(self._checked, min([edge, *(start for start, _ in gone), *(window.start for window in self._leased)]))
        found = [window for hole in gone for window in self._cut_at_empty(Window(*hole))]
        return sorted(found, key=lambda window: window.start)

    def _cut_at_empty(self, span: Window) -> Iterator[Window]:
        yield from self._empty.within(span.start, span.end)
        yield from self._empty.holes(span.start, span.end)

    def is_empty(self, span: Window) -> bool:
        """Return whether the source was asked for an overdue span, and had no record of it."""
        return self._empty.covers(span)

    def proven_time(self, now: float, tick: float) -> float:
        """Return the latest time, at most `now`, that has certainly passed.

        That is the end of the newest samples, and the monotonic time since they came. A window without samples proves nothing: a source
        answers so for a time that has not come yet, too. Before a sample has come or anything expected is stored,
        nothing can be lost, and `now` is good enough.
        A source that is not replayable proves nothing, because its windows get their times from the same clock: of its clock only the first
        time counts that is not before what is expected.
        """
        newest = self._newest_proof(int(now)) if self.replayable else now
        if newest is None:
            return now
        was_behind = not self.replayable and self._proven is not None and self._proven + tick < self._since <= now
        if self._proven is None or was_behind or (self.replayable and newest - tick > self._proven):
            self._proven = newest - tick
        return min(now, self._proven + tick)

    def _newest_proof(self, now: int) -> float | None:
        if not self._stored.within(self._since, max(now, self._since)):
            return None if self._samples_until is None else min(now, self._samples_until)
        return min(now, max(self._samples_until or 0, self._since))

    def note_samples(self, until: int) -> bool:
        """Note that the source has returned samples up to a time, which has thus passed; return whether they are the first."""
        is_first = self._samples_until is None
        self._samples_until = max(self._samples_until or 0, until)
        return is_first

    def premature_seconds(self, window: Window, now: float, tick: float) -> float:
        """Return how long it takes until a window has certainly passed, seconds; 0.0 for one that has, and before the first sample.

        A source had settled when its newest samples came, so as much time had passed since their end.
        """
        return 0.0 if self._samples_until is None else max(0.0, window.end - self._config.settle - self.proven_time(now, tick))

    def write_off(self, span: Window) -> None:
        """Leave out a span from overdue(): the ledger records its state."""
        self._accounted.add(span.start, span.end)
        self._empty.remove(span.start, span.end)

    def was_expected(self, span: Window) -> bool:
        """Return whether an overdue span is lost: something that was expected before it is stored.

        Otherwise the source never held data as far back as this. A source that is not replayable held everything that was expected. Of a
        source that never returned a sample, a span that it was asked for is not known to have held any.
        """
        if not self.replayable:
            return True
        return bool(self._stored.within(self._since, span.start)) and not (self._samples_until is None and self.is_empty(span))

    def _free(self, window: Window) -> None:
        self._taken.remove(window.start, window.end)
        for part in self._stored.within(window.start, window.end):
            self._taken.add(part.start, part.end)

    def _window(self, time: int) -> Window:
        return self._calendar.window(time, self._config.window)
