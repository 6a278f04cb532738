"""One polled source: collects the window that is due, submits it to the writer, and acts on each outcome."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import structlog

from tokiod.clock import JumpDetector
from tokiod.dropped import sentence
from tokiod.ledger.database import LedgerError
from tokiod.ledger.expected import LATE_WINDOWS
from tokiod.metrics import catalogue
from tokiod.polling.collect_window import WindowCollector
from tokiod.polling.retry import LEDGER_RETRY_SECONDS, SourceBackoff, refused_by_writer
from tokiod.polling.schedule import Schedule
from tokiod.polling.silence import Silence
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

MAX_SLEEP_SECONDS = 60.0
"""Longest sleep, so that a clock jump is noticed in time."""


class Poller:
    """The one task that polls a source.

    It collects one window at a time; several may be in flight to the writer. A window is stored when the writer acknowledges it, not when
    it is submitted. `submit` waits while too much is in flight: this is the only flow control, and nothing is collected meanwhile.
    Sleeps end at absolute times, so polling never speeds up because it is late. No error of a collector ends the poller.

    counts: outcomes other than stored, by kind (see tokiod.polling.retry), and clock jumps; has_asked: the first attempt has ended, or
    nothing was due.
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
        self._schedule = Schedule(config, calendar, replayable=collector.replayable)
        self._collector = WindowCollector(config, collector, clock)
        self._status = SourceStatus(config, ledger, clock)
        self._silence = Silence(config, ledger, clock, replayable=collector.replayable)
        self._backoff = SourceBackoff(config.settle, rng)
        self._jumps = JumpDetector(clock)
        self._answers: set[Answer] = set()
        self._collecting: Window | None = None
        self._seconds_per_second = 0.0
        self._woken = asyncio.Event()
        self._is_stale = True
        self._is_loaded = False
        self._log = structlog.get_logger().bind(source=config.name)

    async def run(self) -> None:
        """Poll until cancelled; drain() waits for the windows in flight."""
        try:
            while True:
                await self._turn()
        finally:
            self._status.stopped()

    async def drain(self, seconds: float) -> int:
        """Wait so many real seconds for the writer's answers; return how many windows are still in flight."""
        if self._answers:
            await asyncio.wait(self._answers, timeout=seconds)
        return len(self._answers)

    def reload(self) -> None:
        """Read the ledger again before the next query: it may record less than before."""
        self._is_stale = True
        self._woken.set()

    def stuck(self, now: float) -> str:
        """Return that the collector hangs beyond its time limit, or an empty text; now: the loop's time."""
        return self._collector.stuck(now)

    @property
    def trouble(self) -> str:
        """Whether the source is down or empty, and why; no text for one that runs."""
        why = self._status.why_down
        return why and f"{'empty' if self._status.is_empty else 'down'} ({why})"

    def live_is_due(self) -> bool:
        """Return whether the newest window is due or being collected: backfills and recounts wait for that."""
        tick, now = self._clock.monotonic(), self._clock.time()
        window = self._collecting or (None if tick < self._backoff.not_before else self._schedule.next(now, tick))
        return window is not None and window.end >= self._schedule.reach(now)[1]

    def passed_time(self) -> float:
        """Return the latest time that has certainly passed, epoch seconds: a clock may be ahead. 0.0 until the ledger has been read."""
        return self._schedule.proven_time(self._clock.time(), self._clock.monotonic()) if self._is_loaded else 0.0

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

    def doubts(self, collected: Collected) -> bool:
        """Return whether a window of a backfill without records may have some once the source returns any."""
        return self._silence.verdict(collected, self._premature_seconds(collected.meta.window)) is not None

    def _premature_seconds(self, window: Window) -> float:
        return self._schedule.premature_seconds(window, self._clock.time(), self._clock.monotonic())

    async def _turn(self) -> None:
        if self._is_stale and not await self._has_loaded():
            await self._clock.sleep(LEDGER_RETRY_SECONDS)
            return
        self._report_clock_jump()
        self._write_off()
        tick, not_before = self._clock.monotonic(), self._backoff.not_before
        window = None if tick < not_before else self._schedule.next(self._clock.time(), tick, self._longest_query())
        if window is None:
            self.has_asked = True
            await self._sleep(max(not_before - tick, 0) or self._schedule.wait(self._clock.time(), tick))
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
        # Answers that arrived before the reason to reload must reach _answered() first: they must not overrule the ledger.
        await asyncio.sleep(0)
        self._is_stale = False
        name = self._config.name
        self._ledger.forget_other_system(self._config)
        unstored = self._ledger.unstored(name)
        data_end = self._ledger.data_end(name)
        lost, empty = ([one.window for one in unstored if one.state == state] for state in ("lost", "empty"))
        self._schedule.load(self._ledger.stored(name), lost, self._ledger.since(name), empty, data_end=data_end)
        self._is_loaded = True
        # By a clock that is ahead, windows seem older than the retention that the source still has: they stay expected. By one that is
        # behind, the source seems to hold what was never expected of it: its samples prove how late it is at least.
        passed = max(self.passed_time(), (data_end or 0) if self._config.replayable else 0)
        since = self._ledger.register(self._config, self._schedule.reach(passed)[0])
        self._schedule.expect(since)
        self._backoff.restore(one for one in unstored if one.state != "empty" and one.window.end > since)
        self._silence.load()
        self._status.write()

    def _report_clock_jump(self) -> None:
        """Report a clock jump, and register again from when data is expected. Each turn computes anew what is due."""
        if jump := self._jumps.read():
            self._is_stale = True
            self.counts["clock_jump"] += 1
            catalogue.CLOCK_JUMPS.inc(self._config.name)
            self._log.warning("clock.jumped", seconds=round(jump, 1))

    def _write_off(self) -> None:
        """Record as lost what is out of reach, unless it is older than everything that was ever stored of the source."""
        for span in self._schedule.overdue(self._clock.time(), self._clock.monotonic()):
            is_recorded = self._lose(span) if self._schedule.was_expected(span) else self._status.expect(since=span.end)
            # On a full disk the ledger can't record it: a later turn does.
            if is_recorded:
                self._schedule.write_off(span)

    def _lose(self, span: Window) -> bool:
        self._backoff.forget(span)
        return self._status.lost(span, replayable=self._schedule.replayable, is_empty=self._schedule.is_empty(span))

    def _longest_query(self) -> int:
        """Return how many seconds of gaps may be queried at once: those that are answered in half a window's time."""
        half = self._config.window / 2
        return int(half / self._seconds_per_second) if self._seconds_per_second * BULK_SECONDS > half else BULK_SECONDS

    async def _attempt(self, window: Window) -> None:
        self._collecting = window
        begun = self._clock.monotonic()
        try:
            await self._collect(window, self._backoff.begin())
        finally:
            self._collecting = None
            self._seconds_per_second = (self._clock.monotonic() - begun) / window.seconds

    async def _collect(self, window: Window, query: int) -> None:
        self._schedule.begin(window, self._clock.time(), self._clock.monotonic())
        catalogue.RETRIES.inc(self._config.name, by=self._backoff.attempts(window) > 0)
        try:
            collected = await self._collector.collect(window)
        except Exception as error:  # noqa: BLE001 - a collector may raise anything: retry.py decides
            self._failed(window, error)
            return
        self._log.debug("window.collected", window=str(window), cells=sum(map(len, collected.batches)))
        self._status.dropped(collected)
        if (samples_end := collected.samples_end) is not None and not await self._has_noted(samples_end):
            self._schedule.release(window)
            return
        if self._has_ended_silence(collected):
            self._schedule.release_empty()
        seconds = self._silence.verdict(collected, self._premature_seconds(window))
        if seconds is not None and self._status.empty_window(window):
            self._schedule.keep_empty(window, self._clock.monotonic() + seconds)
            self._answered_well(window, query, _lacks(collected))
            return
        answer = await self._submit(collected)
        self._answers.add(answer)
        answer.add_done_callback(partial(self._answered, window, query, _lacks(collected)))
        await asyncio.sleep(0)

    # Until samples come, the clock is believed. Where the newest window has none it may be ahead, and the source holds more than it allows.
    async def _has_noted(self, samples_end: int) -> bool:
        """Note samples of a source; return whether it is registered again where that is due."""
        is_first = self._schedule.note_samples(samples_end)
        newest = self._schedule.reach(self._clock.time())[1] - self._config.window
        return not (is_first and self._config.replayable and samples_end <= newest) or await self._has_loaded()

    def _answered(self, window: Window, query: int, trouble: str, answer: Answer) -> None:
        self._answers.discard(answer)
        if answer.cancelled():
            self._schedule.release(window)
        elif isinstance(outcome := answer.result(), Stored):
            self._schedule.store(window)
            self._collector.note_stored(window)
            self._log.debug("window.stored", window=str(window), cells=outcome.cells)
            self._answered_well(window, query, trouble)
        else:
            self._failed(window, refused_by_writer(outcome))
        self._woken.set()

    def _answered_well(self, window: Window, query: int, trouble: str) -> None:
        if not self._backoff.stored(window, query):
            return
        if self._silence.is_long:
            self._status.empty("; ".join(part for part in (self._silence.reason(), trouble) if part))
        elif trouble:
            self._status.partial(trouble)
        else:
            self._status.up()

    def _has_ended_silence(self, collected: Collected) -> bool:
        try:
            return self._silence.note(collected)
        except LedgerError as error:
            self._status.ledger_failed(error)
            return False

    def _failed(self, window: Window, error: Exception) -> None:
        tick = self._clock.monotonic()
        verdict = self._backoff.failed(window, error, tick)
        until = tick + verdict.window_wait
        self.counts[verdict.outcome] += 1
        catalogue.WINDOWS.inc(self._config.name, verdict.outcome)
        match verdict.outcome:
            case "busy":
                # Other gaps would mostly be for the same file and be refused too.
                self._schedule.pause_healing(until)
                self._schedule.postpone(window, until)
                self._log.debug("window.postponed", window=str(window), reason=str(error))
            case "not_yet":
                self._schedule.not_yet(window, until)
                self._log.debug("window.not_yet", window=str(window), reason=str(error))
                if self._clock.time() - window.end <= self._config.settle + LATE_WINDOWS * self._config.window:
                    self._status.up()
                elif self._status.why_down or not self._status.trouble:
                    self._status.partial(str(error))
            case _:
                self._schedule.postpone(window, until, singly=True)
                self._status.failed(window, error, verdict, self._backoff.attempts(window))

    async def _sleep(self, seconds: float) -> None:
        """Sleep, at most MAX_SLEEP_SECONDS, or until an answer or a reload."""
        sleep = asyncio.ensure_future(self._clock.sleep(min(seconds, MAX_SLEEP_SECONDS)))
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait({sleep, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            woken.cancel()
            self._woken.clear()


def _lacks(collected: Collected) -> str:
    """Return what a window lacks, for the status; of one without a cell also why all of its records were dropped, where that is a fault."""
    unread = sentence(collected.meta.dropped, collected.why, 0) if collected.is_empty and collected.why else ""
    return "; ".join(part for part in (collected.trouble, unread) if part)
