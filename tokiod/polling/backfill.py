"""Backfill: a past span of a source that an administrator requested, collected after live data."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from tokiod.collector import collect_window
from tokiod.errors import NotYet, Refusal, Transient
from tokiod.ledger.database import LedgerError
from tokiod.metrics import catalogue, stages
from tokiod.polling.retry import classify, decide, refused_by_writer
from tokiod.polling.schedule import LEASE_RETRY_SECONDS
from tokiod.polling.silence import EMPTY_IN_BACKFILL
from tokiod.runtime.log import Repeats
from tokiod.runtime.secrets import mask
from tokiod.window import Window, bulk_length, iso

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from random import Random

    from tokiod.batch import Extent
    from tokiod.clock import Clock
    from tokiod.collector import Collector, SourceConfig
    from tokiod.ledger.jobs import Job
    from tokiod.ledger.ledger import Ledger
    from tokiod.polling.schedule import WindowLease
    from tokiod.window import Calendar
    from tokiod.window_data import Collected
    from tokiod.window_result import Answer

JOB_CHECK_SECONDS, CANCEL_CHECK_SECONDS = 5.0, 1.0
"""Between two checks for new jobs, which is what an idle source costs; and, of a job that runs, whether it was cancelled."""
MAX_FAULTS = 8
"""Attempts at a window that fail through a fault of the collector, until the job fails."""
KEPT = "some windows stay as they are: the source has fewer records of them than are stored"
"""What a done job reports where nothing replaced a window."""
ENDED = "the source ends at {}, {} was not collected: {}"
"""What a done job reports where the source ends before the job does."""
LEFT_OUT = "the samples of {}, next to what was collected, are not stored: {}"
"""What a done job reports of a seam that can't be stored: the last differences before it may be missing."""


class JobFailed(Exception):  # noqa: N818 - says what has happened
    """A job can't go on until an administrator acts; the text says why."""


# A job has its own collectors, so that it and live polling never wait for each other's connections. Its progress is what the ledger
# records, so a kill costs the windows that were leased.
class Backfill:
    """Works on the jobs of one source, one after the other.

    make: makes a collector of a source; slots: windows that the jobs of all sources may have on the bus.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - everything that a test replaces
        self,
        config: SourceConfig,
        make: Callable[[SourceConfig], Collector],
        lease: WindowLease,
        ledger: Ledger,
        submit: Callable[[Collected], Awaitable[Answer]],
        slots: asyncio.Semaphore,
        calendar: Calendar,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._config = config
        self._make = make
        self._lease = lease
        self._ledger = ledger
        self._jobs = ledger.jobs
        self._submit = submit
        self._slots = slots
        self._calendar = calendar
        self._clock = clock
        self._rng = rng
        self._notes: defaultdict[int, dict[str, str]] = defaultdict(dict)
        self._repeats = Repeats(clock)
        self._log = structlog.get_logger().bind(source=config.name)

    async def run(self) -> None:
        """Work on jobs until cancelled."""
        while True:
            try:
                for job in self._jobs.unfinished(self._config.name)[:1]:
                    await self.work(job)
            except LedgerError as error:
                if times := self._repeats(str(error)):
                    self._log.error("ledger.failed", error=str(error), times=times)
            except Exception:  # noqa: BLE001 - a fault in tokiod must not end live polling
                self._log.exception("backfill.broken")
            # All sources check at the same time, so that the process wakes once.
            await self._clock.sleep(JOB_CHECK_SECONDS - self._clock.monotonic() % JOB_CHECK_SECONDS)

    async def work(self, job: Job) -> None:
        """Work on a job until it is done, failed or cancelled; when this task is cancelled, the job stays unfinished.

        Raises LedgerError where the ledger fails; the job stays unfinished then, too.
        """
        self._notes[job.id].pop(ENDED, None)
        self._jobs.start(job, _seams(self._jobs.remaining(job), self._config.step), self._clock.time())
        self._log.info("backfill.started", job=job.id, span=str(job.span))
        working = asyncio.ensure_future(self._collect_all(job))
        watching = asyncio.ensure_future(self._job_cancelled(job))
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            watching.cancel()
            await asyncio.wait({working, watching})
        for task in (working, watching):
            if not task.cancelled() and isinstance(error := task.exception(), LedgerError):
                raise error
        self._conclude(job, working)

    def _conclude(self, job: Job, working: asyncio.Future[None]) -> None:
        notes = self._notes.pop(job.id, {})
        if working.cancelled():
            self._log.info("backfill.cancelled", job=job.id)
            return
        error = working.exception()
        if error is not None:
            is_known = isinstance(error, JobFailed)
            self._log.error("backfill.failed", job=job.id, error=str(error), exc_info=None if is_known else error)
            self._jobs.set_state(job, "failed", self._clock.time(), mask(str(error)) or type(error).__name__)
            return
        self._log.info("backfill.done", job=job.id)
        self._jobs.set_state(job, "done", self._clock.time(), mask("; ".join(notes.values())))

    async def _collect_all(self, job: Job) -> None:
        config = self._config.only(frozenset(job.datasets)) if job.partial else self._config
        length = bulk_length(int(config.window))
        # Years of windows are made one by one, as they are collected.
        remaining = (window for hole in self._jobs.remaining(job) for window in self._calendar.split(hole, length))
        collectors = [self._make(config) for _ in range(job.parallel)]
        seams = self._jobs.seams(job) if collectors[0].needs_sample_at_end else []
        tasks = [asyncio.ensure_future(self._collect_some(job, collector, remaining)) for collector in collectors]
        try:
            await asyncio.gather(*tasks)
            for seam in seams:
                await self._collect_one(job, collectors[0], seam, is_seam=True)
                self._jobs.seam_collected(job, seam)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(collector.close() for collector in collectors), return_exceptions=True)

    async def _collect_some(self, job: Job, collector: Collector, remaining: Iterator[Window]) -> None:
        for window in remaining:
            if ENDED in self._notes[job.id]:
                return
            await self._collect_one(job, collector, window)

    async def _collect_one(self, job: Job, collector: Collector, window: Window, *, is_seam: bool = False) -> None:
        """Collect and store a window, with as many attempts as it needs. Raises JobFailed where another attempt can't help, LedgerError."""
        failures = 0
        while (error := await self._attempt(job, collector, window, is_seam=is_seam)) is not None:
            if (parts := self._instead(job, window, error, is_seam=is_seam)) is not None:
                for part in parts:
                    await self._collect_one(job, collector, part, is_seam=is_seam)
                return
            failures += 1
            await self._wait(job, window, error, failures)
            catalogue.RETRIES.inc(self._config.name)

    # An error of the ledger does not concern the source or the window: the job goes on once the ledger can be used again.
    async def _attempt(self, job: Job, collector: Collector, window: Window, *, is_seam: bool) -> Exception | None:
        """Collect and store a window once; return why it is not stored, None where nothing is left to do. Raises LedgerError."""
        await self._acquire(window)
        stored = False
        try:
            try:
                collected = await self._collected(job, collector, window)
            except Exception as error:  # noqa: BLE001 - a collector may raise anything: retry.py decides
                return error
            collected = _only_counters(collected) if is_seam else collected
            if self._has_shrunk(collected):
                self._notes[job.id][KEPT] = KEPT
            elif not self._is_kept_empty(collected):
                if (refused := await self._sent(collected)) is not None:
                    return refused
                stored = collected.meta.is_whole
            if is_seam:
                return None
            self._jobs.collected(job, window, collected.meta.records or 0, self._clock.time())
            return None
        finally:
            self._lease.release(window, stored=stored)

    async def _sent(self, collected: Collected) -> Exception | None:
        """Send a window to the writer; return why it is not stored."""
        try:
            async with self._slots:
                outcome = await (await self._submit(collected))
        except Exception as error:  # noqa: BLE001 - what can't be sent is a fault of the collector: retry.py decides
            return error
        return refused_by_writer(outcome) if isinstance(outcome, Refusal) else None

    def _instead(self, job: Job, window: Window, error: Exception, *, is_seam: bool) -> list[Window] | None:
        """Return the parts of a window to collect instead of it, because some can be stored; None where the window is to be tried again."""
        if isinstance(error, Transient) and error.ended_at is not None:
            if not is_seam:
                rest = Window(max(error.ended_at, job.start), job.end)
                self._notes[job.id][ENDED] = ENDED.format(iso(error.ended_at), rest, error)
            return [Window(window.start, error.ended_at)] if window.start < error.ended_at < window.end else []
        is_refused = isinstance(error, Refusal) and error.when == "never"
        if is_refused and is_seam:
            self._notes[job.id][str(window)] = LEFT_OUT.format(window, error)
            return []
        parts = list(self._calendar.split(window, int(self._config.window)))
        return parts if len(parts) > 1 and (is_refused or isinstance(error, NotYet)) else None

    def _has_shrunk(self, collected: Collected) -> bool:
        """Return whether the source has fewer records than are stored: then nothing is replaced."""
        known = self._ledger.counts(collected.meta.source).records(collected.meta.window) if collected.meta.is_whole else None
        if known is None or collected.meta.records is None or collected.meta.records >= known:
            return False
        self._log.warning("window.shrunk", window=str(collected.meta.window), records=known, found=collected.meta.records)
        return True

    def _is_kept_empty(self, collected: Collected) -> bool:
        """Return whether a window has no records that may yet come; if so, record what of it is not stored as empty."""
        if not self._lease.doubts(collected):
            return False
        meta = collected.meta
        if meta.is_whole:
            for hole in self._ledger.stored(meta.source, meta.window).holes(meta.window.start, meta.window.end):
                self._ledger.empty(meta.source, hole, EMPTY_IN_BACKFILL, self._clock.time())
        return True

    async def _acquire(self, window: Window) -> None:
        while self._lease.live_is_due() or not self._lease.acquire(window):
            await self._clock.sleep(LEASE_RETRY_SECONDS)

    async def _collected(self, job: Job, collector: Collector, window: Window) -> Collected:
        extent: Extent = "some" if job.partial else "whole"
        seconds = self._config.seconds_for(window)
        collection = collect_window(collector, self._config, window, seconds=seconds, extent=extent)
        collected = await stages.Collecting(collection, self._config.name, window)
        self._log.debug("window.collected", window=str(window), job=job.id)
        if not job.partial:
            return collected
        return replace(collected, batches=[batch for batch in collected.batches if batch.dataset in job.datasets])

    async def _wait(self, job: Job, window: Window, error: Exception, failures: int) -> None:
        """Record an error and wait as its class demands. Raises JobFailed where waiting can't help."""
        verdict = decide(error, failures, failures, float(self._config.settle), self._rng)
        catalogue.WINDOWS.inc(self._config.name, verdict.outcome)
        text = f"{window}: {str(error) or ('no answer in time' if isinstance(error, TimeoutError) else type(error).__name__)}"
        if verdict.outcome in {"fatal", "rejected"} or (verdict.outcome == "bug" and failures >= MAX_FAULTS):
            raise JobFailed(text) from error
        if verdict.outcome == "busy":
            await self._clock.sleep(verdict.window_wait)
            return
        self._log.warning("backfill.waiting", job=job.id, window=str(window), error_class=classify(error), error=str(error))
        self._jobs.set_state(job, "running", self._clock.time(), mask(text))
        await self._clock.sleep(max(verdict.source_wait, verdict.window_wait, LEASE_RETRY_SECONDS))

    async def _job_cancelled(self, job: Job) -> None:
        while True:
            await self._clock.sleep(CANCEL_CHECK_SECONDS)
            current = self._jobs.get(job.id)
            if current is None or current.finished:
                return


def _seams(holes: list[Window], step: int) -> Iterator[Window]:
    """Yield the steps just outside of each hole: differences at its edges need their samples, which sealed days don't keep."""
    for hole in holes:
        yield Window(hole.start - step, hole.start)
        yield Window(hole.end, hole.end + step)


def _only_counters(collected: Collected) -> Collected:
    counters = [batch for batch in collected.batches if batch.form == "counter"]
    return replace(collected, meta=replace(collected.meta, extent="seam"), batches=counters)
