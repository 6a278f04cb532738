"""Recount: ask a source later how many records it holds for stored windows, and collect again those that have more."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import structlog

from tokiod.errors import TokiodError
from tokiod.ledger.database import LedgerError
from tokiod.ledger.jobs import JobRequest
from tokiod.metrics import catalogue
from tokiod.polling.schedule import LEASE_RETRY_SECONDS
from tokiod.runtime.backoff import FATAL_RETRY_SECONDS
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.clock import Clock
    from tokiod.collector import Collector, SourceConfig
    from tokiod.ledger.counts import Counted
    from tokiod.ledger.ledger import Ledger
    from tokiod.polling.poller import Poller

RECOUNT_CHECK_SECONDS = 60.0
"""Between two checks for windows that are due."""
MAX_COUNT_SECONDS = 3600
"""Length of neighbouring windows that are counted together."""
CLOCK_TOLERANCE_SECONDS = 1.0
"""How far a storing time must lie in the future to show that the clock was fast: two processes read it one after the other."""
REMEMBERED_SECONDS = 90 * 86400
"""How far back windows that have grown are remembered."""
MAX_FAILED_SECONDS = 86400.0
"""The longest wait after a backfill that failed."""


class Grown(NamedTuple):
    """A window of which the source counted more records than are stored, and the backfill that is to collect it.

    failed: how many backfills of it have failed; next_try: after one that has, seconds of the monotonic clock.
    """

    known: int
    found: int
    job: int
    failed: int = 0
    next_try: float = 0.0


# A count costs a source little, an answer of millions of documents much. So neighbours are counted together, and one by one only where
# their sum differs: a window that has shrunk must not hide one that has grown. A window that has grown becomes a forced backfill: that
# survives a restart, works at any age, and comes after live polling. Until it is done, the window stays due: a backfill that fails, as
# where a secret can't be read just then, is added again, also after a restart.
class Recount:
    """Recounts the windows of one source, with its own collector."""

    def __init__(self, config: SourceConfig, collector: Collector, live: Poller, ledger: Ledger, clock: Clock) -> None:
        self._after = tuple(int(seconds) for seconds in config.recount)
        self._settle = int(config.settle)
        self._name = config.name
        self._collector = collector
        self._live = live
        self._counts = ledger.counts(config.name)
        self._jobs = ledger.jobs
        self._clock = clock
        self._grown: dict[int, Grown] = {}
        self._log = structlog.get_logger().bind(source=config.name)

    async def run(self) -> None:
        """Recount what is due, until cancelled."""
        try:
            while True:
                try:
                    # The ledger is read before the clock: a window that is stored in between is not newer than the clock.
                    if self._after and self._counts.newest() > (now := self._clock.time()) + CLOCK_TOLERANCE_SECONDS:
                        self._counts.restart(now + CLOCK_TOLERANCE_SECONDS, self._after[0] - self._settle)
                    # A clock that is ahead makes no recount due: after the last one, nothing asks for late records any more.
                    due = self._counts.due(self._live.passed_time(), self._after)
                    for group in _neighbours([one for one in due if not self._is_waiting(one.window)]):
                        await self._recount(group)
                except LedgerError as error:
                    self._log.warning("recount.failed", error=str(error))
                except Exception:  # noqa: BLE001 - a fault in tokiod must not end live polling
                    self._log.exception("recount.failed")
                await self._clock.sleep(RECOUNT_CHECK_SECONDS)
        finally:
            await self._collector.close()

    async def _recount(self, group: list[Counted]) -> None:
        while self._live.live_is_due():
            await self._clock.sleep(LEASE_RETRY_SECONDS)
        shrunk: dict[Counted, int] = {}
        try:
            await self._check(group, shrunk)
        except (TokiodError, TimeoutError) as error:
            self._log.info("recount.failed", window=str(_whole(group)), error=str(error))
        for run in _neighbours(list(shrunk)):
            found = sum(shrunk[one] for one in run)
            self._log.warning("window.shrunk", window=str(_whole(run)), records=_records(run), found=found)

    async def _check(self, group: list[Counted], shrunk: dict[Counted, int]) -> None:
        """Count a group, and its halves where it differs, unless its count is 0. shrunk: receives the windows with fewer records.

        Raises what count() raises; the windows that were not reached stay due.
        """
        whole, known = _whole(group), _records(group)
        found = await self._collector.count(whole) if self._after else None
        if found not in {None, 0, known} and len(group) > 1:
            await self._check(group[: len(group) // 2], shrunk)
            await self._check(group[len(group) // 2 :], shrunk)
            return
        if found is not None and found > known and self._collect_again(whole, known, found):
            return
        if found is not None and found < known:
            shrunk |= dict.fromkeys(group, found)
        self._counts.recounted(group, len(self._after))

    def _is_waiting(self, window: Window) -> bool:
        """Return whether a window that has grown has a backfill that is not finished, or one that failed a moment ago.

        Seen as failed for the first time, it sets the time of the next one.
        """
        if (grown := self._grown.get(window.start)) is None:
            return False
        job = self._jobs.get(grown.job)
        if job is not None and job.state == "failed" and not grown.next_try:
            wait = min(MAX_FAILED_SECONDS, FATAL_RETRY_SECONDS * 2.0 ** min(grown.failed, 64))
            grown = grown._replace(failed=grown.failed + 1, next_try=self._clock.monotonic() + wait)
            self._grown[window.start] = grown
        return job is not None and (not job.finished or self._clock.monotonic() < grown.next_try)

    # A source may count documents that it never returns, or that the collector leaves out: another collection does not help. The first
    # one shows it, and this process remembers that.
    def _collect_again(self, window: Window, known: int, found: int) -> bool:
        """Add a backfill of a window that has grown; return False where one has shown that it does not help, or was cancelled."""
        before = self._grown.get(window.start, Grown(0, 0, 0))
        is_same = (before.known, before.found) == (known, found)
        if is_same and not before.next_try:
            if (done := self._jobs.get(before.job)) is not None and done.state == "cancelled":
                return False
            self._log.warning("window.overcounted", window=str(window), records=known, found=found)
            return False
        self._log.info("window.grown", window=str(window), records=known, found=found)
        job = self._jobs.add(JobRequest(self._name, window, force=True), self._clock.time())
        # Once the ledger has the job: a window of which it could not be recorded is collected again all the same.
        catalogue.LATE_RECORDS.inc(self._name, by=0 if is_same else found - known)
        self._grown = {start: grown for start, grown in self._grown.items() if start > window.start - REMEMBERED_SECONDS}
        self._grown[window.start] = Grown(known, found, job.id, before.failed if is_same else 0)
        return True


def _whole(group: list[Counted]) -> Window:
    return Window(group[0].window.start, group[-1].window.end)


def _records(group: list[Counted]) -> int:
    return sum(one.records for one in group)


def _neighbours(due: list[Counted]) -> Iterator[list[Counted]]:
    """Cut windows into runs without a hole, none longer than MAX_COUNT_SECONDS."""
    group: list[Counted] = due[:1]
    for before, one in pairwise(due):
        if one.window.start != before.window.end or one.window.end - group[0].window.start > MAX_COUNT_SECONDS:
            yield group
            group = []
        group.append(one)
    if group:
        yield group
