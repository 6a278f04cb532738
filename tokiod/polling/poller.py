"""One source, polled: asks for the window that is due, hands it over, and does what follows from each outcome."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import structlog

from tokiod.clock import Jumps
from tokiod.ledger.database import LedgerError
from tokiod.metrics import catalogue
from tokiod.polling.collect_window import Asking
from tokiod.polling.retry import classify, decide, refused_by_writer
from tokiod.polling.schedule import Schedule
from tokiod.polling.source_status import SourceStatus
from tokiod.window import BULK_SECONDS
from tokiod.window_result import Stored

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from tokiod.clock import Clock
    from tokiod.collector import Collector, SourceConfig
    from tokiod.ledger.ledger import Ledger
    from tokiod.window import Calendar, Window
    from tokiod.window_data import Collected
    from tokiod.window_result import Answer

AGAIN = 5.0
"""Seconds until a ledger that can't be read is read again: nothing is asked for that may be stored."""
LONGEST_PAUSE = 60.0
"""Seconds after which a sleeping poller looks at the clock in any case: a jump is noticed within them."""


class Poller:
    """The one task that asks a source.

    One window is collected at a time; up to a few are then on their way to the writer, whose answer, not the handing over, makes them
    stored. `submit` waits while the writer is full: that is all there is of flow control, and nothing is collected meanwhile.
    Sleeps end at absolute times, so nothing is polled faster because it is late. No error of a collector ends the poller.

    counts: outcomes that were no success, by kind (see tokiod.polling.retry), and clock jumps; has_asked: whether the first window was
    had or not, where one was due.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - everything that a test replaces
        self,
        config: SourceConfig,
        collector: Collector,
        ledger: Ledger,
        submit: Callable[[Collected], Awaitable[Answer]],
        calendar: Calendar,
        clock: Clock,
        rng: Random,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.has_asked = False
        self._config = config
        self._ledger = ledger
        self._submit = submit
        self._clock = clock
        self._rng = rng
        self._replayable = collector.replayable
        self._schedule = Schedule(config, calendar, replayable=collector.replayable)
        self._asking = Asking(config, collector, clock)
        self._status = SourceStatus(config, ledger, clock)
        self._jumps = Jumps(clock)
        self._answers: set[Answer] = set()
        self._attempts: Counter[Window] = Counter()
        self._asked = 0
        self._collecting: Window | None = None
        self._failed_after = 0
        self._failures = 0
        self._busy = 0
        self._busy_until = -math.inf
        self._soon = float(min(max(config.settle, 1), 60))
        self._not_before = 0.0
        self._pace = 0.0
        self._woken = asyncio.Event()
        self._is_stale = True
        self._log = structlog.get_logger().bind(source=config.name)

    async def run(self) -> None:
        """Poll until cancelled; windows on their way to the writer are left to drain()."""
        try:
            while True:
                await self._turn()
        finally:
            self._status.stopped()

    async def drain(self, seconds: float) -> int:
        """Wait so many real seconds for the writer's answers; returns how many are still open, to be collected again one day."""
        if self._answers:
            await asyncio.wait(self._answers, timeout=seconds)
        return len(self._answers)

    def reload(self) -> None:
        """Read the ledger again before anything else is asked: it may hold less than it did."""
        self._is_stale = True
        self._woken.set()

    def stuck(self, now: float) -> str:
        """Say that the collector does not even end when its time is up, or nothing; now: the loop's time."""
        return self._asking.stuck(now)

    @property
    def trouble(self) -> str:
        """Why the source is down, where it is."""
        return self._status.trouble

    def live_is_due(self) -> bool:
        """Return whether the newest window is due or being collected: backfills and recounts wait for that."""
        tick, now = self._clock.monotonic(), self._clock.time()
        window = self._collecting or (None if tick < self._not_before else self._schedule.next(now, tick))
        return window is not None and window.end >= self._schedule.reach(now)[1]

    def acquire(self, window: Window) -> bool:
        """Lease a window to a backfill; False while any part of it is leased."""
        if self._schedule.is_leased(window):
            return False
        self._schedule.acquire(window)
        return True

    def release(self, window: Window, *, stored: bool) -> None:
        """End a backfill's lease."""
        if stored:
            self._schedule.store(window)
        else:
            self._schedule.release(window)

    async def _turn(self) -> None:
        if self._is_stale and not await self._has_loaded():
            await self._clock.sleep(AGAIN)
            return
        self._watch_clock()
        self._write_off()
        tick = self._clock.monotonic()
        window = None if tick < self._not_before else self._schedule.next(self._clock.time(), tick, self._longest())
        if window is None:
            self.has_asked = True
            await self._pause(max(self._not_before - tick, 0) or self._schedule.wait(self._clock.time(), tick))
        else:
            await self._attempt(window)
            self.has_asked = True

    async def _has_loaded(self) -> bool:
        try:
            await self._load()
        except LedgerError as error:
            self._is_stale = True
            self._status.ledger_failed(error)
            return False
        return True

    async def _load(self) -> None:
        # Answers that came before the reason to reload are still on their way to _answered(): they must not overrule the ledger.
        await asyncio.sleep(0)
        self._is_stale = False
        name, (since, _) = self._config.name, self._schedule.reach(self._clock.time())
        since = self._ledger.register(self._config, since)
        unstored = self._ledger.unstored(name)
        self._schedule.load(self._ledger.stored(name), [one.window for one in unstored if one.state == "lost"], since)
        self._attempts.update({one.window: one.attempts for one in unstored if one.window not in self._attempts})
        self._status.write()

    def _watch_clock(self) -> None:
        """Tell of a jump; nothing else need be done, because what is due is worked out anew in every turn."""
        if jump := self._jumps.look():
            self.counts["clock_jump"] += 1
            catalogue.CLOCK_JUMPS.inc(self._config.name)
            self._log.warning("clock.jumped", seconds=round(jump, 1))

    def _write_off(self) -> None:
        """Record as lost what fell out of reach, unless it is from before the first of all that was ever had of the source."""
        for span in self._schedule.overdue(self._clock.time()):
            is_told = self._lose(span) if self._schedule.was_expected(span) else self._status.expect(since=span.end)
            # On a full disk the ledger can't be told, and nobody will come upon it by asking: it is told in a later turn.
            if is_told:
                self._schedule.write_off(span)

    def _lose(self, span: Window) -> bool:
        self._attempts = Counter({w: n for w, n in self._attempts.items() if not span.start <= w.start < span.end})
        return self._status.lost(span, replayable=self._replayable)

    def _longest(self) -> int:
        """Return how many seconds of the past may be asked for at once: no more than are answered in half a window's time."""
        half = self._config.window / 2
        return int(half / self._pace) if self._pace * BULK_SECONDS > half else BULK_SECONDS

    async def _attempt(self, window: Window) -> None:
        self._asked += 1
        self._collecting = window
        begun = self._clock.monotonic()
        try:
            await self._ask(window)
        finally:
            self._collecting = None
            self._pace = (self._clock.monotonic() - begun) / window.seconds

    async def _ask(self, window: Window) -> None:
        self._schedule.begin(window, self._clock.time(), self._clock.monotonic())
        catalogue.RETRIES.inc(self._config.name, by=self._attempts[window] > 0)
        try:
            collected = await self._asking.collect(window)
        except Exception as error:  # noqa: BLE001 - a collector is anybody's code: whatever it raises, retry.py decides
            self._failed(window, error)
            return
        self._log.debug("window.collected", window=str(window), cells=sum(map(len, collected.batches)))
        answer = await self._submit(collected)
        self._answers.add(answer)
        answer.add_done_callback(partial(self._answered, window, self._asked))
        await asyncio.sleep(0)

    def _answered(self, window: Window, asked: int, answer: Answer) -> None:
        self._answers.discard(answer)
        if answer.cancelled():
            self._schedule.release(window)
        elif isinstance(outcome := answer.result(), Stored):
            self._schedule.store(window)
            self._attempts.pop(window, None)
            self._busy = 0
            self._log.debug("window.stored", window=str(window), cells=outcome.cells)
            if asked > self._failed_after:
                self._is_up()
        else:
            self._failed(window, refused_by_writer(outcome))
        self._woken.set()

    def _failed(self, window: Window, error: Exception) -> None:
        tick = self._clock.monotonic()
        # Windows that come to a busy writer together come so once.
        in_a_row = max(0, self._busy - (tick < self._busy_until)) if classify(error) == "busy" else self._failures
        verdict = decide(error, in_a_row + 1, self._attempts[window] + 1, self._soon, self._rng)
        self.counts[verdict.outcome] += 1
        catalogue.WINDOWS.inc(self._config.name, verdict.outcome)
        self._not_before = max(self._not_before, tick + verdict.source_wait)
        if verdict.outcome == "busy":
            self._busy = in_a_row + 1
            self._busy_until = max(self._busy_until, tick + verdict.window_wait)
            # Whatever else is asked of the past meanwhile would mostly be for the same file, and be refused as well.
            self._schedule.pause_healing(tick + verdict.window_wait)
            self._schedule.postpone(window, tick + verdict.window_wait)
            self._log.debug("window.postponed", window=str(window), reason=str(error))
            return
        if verdict.outcome == "not_yet":
            self._schedule.not_yet(window, tick + verdict.window_wait)
            self._log.debug("window.not_yet", window=str(window), reason=str(error))
            self._is_up()
            return
        self._attempts[window] += 1
        self._schedule.postpone(window, tick + verdict.window_wait, singly=True)
        self._status.failed(window, error, verdict, self._attempts[window])
        if verdict.outcome != "rejected":
            self._failures += 1
            self._failed_after = self._asked

    def _is_up(self) -> None:
        self._failures = 0
        self._status.up()

    async def _pause(self, seconds: float) -> None:
        """Sleep so long, or until an answer or a reload comes."""
        sleep = asyncio.ensure_future(self._clock.sleep(min(seconds, LONGEST_PAUSE)))
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait({sleep, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            woken.cancel()
            self._woken.clear()
