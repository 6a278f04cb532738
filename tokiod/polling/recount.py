"""Recount: closed windows are counted again at the source after a while, and what has grown since is collected again."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import structlog

from tokiod.errors import TokiodError
from tokiod.ledger.database import LedgerError
from tokiod.ledger.jobs import JobRequest
from tokiod.metrics import catalogue
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.clock import Clock
    from tokiod.collector import Collector, SourceConfig
    from tokiod.ledger.counts import Counted
    from tokiod.ledger.ledger import Ledger
    from tokiod.polling.backfill import Lender

LOOK = 60.0
"""Seconds between two looks for windows that are due."""
YIELD = 0.1
LONGEST = 3600
"""Seconds of neighbouring windows that one question is about."""
FAST = 1.0
"""Seconds by which the clock must have been fast: two processes look at it one after the other."""

FORGET = 90 * 86400
"""Seconds for which it is remembered what a source was asked again in vain."""


# A question costs a source little, an answer of millions of documents much. So neighbours are asked for together, and only where their
# sum is another one by one: one that has shrunk must not hide one that has grown. What has grown becomes a backfill by force of that
# window: it survives a restart, reaches any past, and goes behind live polling.
class Recount:
    """Counts the windows of one source again, with a collector of its own."""

    def __init__(self, config: SourceConfig, collector: Collector, lender: Lender, ledger: Ledger, clock: Clock) -> None:
        self._after = tuple(int(seconds) for seconds in config.recount)
        self._settle = int(config.settle)
        self._name = config.name
        self._collector = collector
        self._lender = lender
        self._counts = ledger.counts(config.name)
        self._jobs = ledger.jobs
        self._clock = clock
        self._asked: dict[int, tuple[int, int]] = {}
        self._log = structlog.get_logger().bind(source=config.name)

    async def run(self) -> None:
        """Count whatever is due, until cancelled."""
        try:
            while True:
                try:
                    # The ledger first: what is stored while we look at it is no newer than the clock is then.
                    if self._after and self._counts.newest() > (now := self._clock.time()) + FAST:
                        self._counts.restart(now + FAST, self._after[0] - self._settle)
                    for group in _neighbours(self._counts.due(self._clock.time(), self._after)):
                        await self._look_at(group)
                except LedgerError as error:
                    self._log.warning("recount.failed", error=str(error))
                except Exception:  # noqa: BLE001 - a fault of ours: it must not end live polling
                    self._log.exception("recount.failed")
                await self._clock.sleep(LOOK)
        finally:
            await self._collector.close()

    async def _look_at(self, group: list[Counted]) -> None:
        while self._lender.live_is_due():
            await self._clock.sleep(YIELD)
        shrunk: dict[Counted, int] = {}
        try:
            await self._check(group, shrunk)
        except (TokiodError, TimeoutError) as error:
            self._log.info("recount.failed", window=str(_whole(group)), error=str(error))
        for run in _neighbours(list(shrunk)):
            found = sum(shrunk[one] for one in run)
            self._log.warning("window.shrunk", window=str(_whole(run)), records=_records(run), found=found)

    async def _check(self, group: list[Counted], shrunk: dict[Counted, int]) -> None:
        """Count a group; one that differs by halves, unless nothing is left of it. shrunk: gets what has fewer records, and how many.

        Raises what count() raises; what is not settled stays due.
        """
        whole, known = _whole(group), _records(group)
        found = await self._collector.count(whole) if self._after else None
        if found not in {None, 0, known} and len(group) > 1:
            await self._check(group[: len(group) // 2], shrunk)
            await self._check(group[len(group) // 2 :], shrunk)
            return
        if found is not None and found > known:
            self._grown(whole, known, found)
        elif found is not None and found < known:
            shrunk |= dict.fromkeys(group, found)
        self._counts.recounted(group, len(self._after))

    # A source may count documents that it never hands out, or that we leave out uncounted: to ask for these again each hour, for ever,
    # brings nothing. That is known from having asked once, in this process.
    def _grown(self, window: Window, known: int, found: int) -> None:
        if self._asked.get(window.start) == (known, found):
            self._log.warning("window.overcounted", window=str(window), records=known, found=found)
            return
        self._asked = {start: asked for start, asked in self._asked.items() if start > window.start - FORGET}
        self._asked[window.start] = known, found
        self._log.info("window.grown", window=str(window), records=known, found=found)
        catalogue.LATE_RECORDS.inc(self._name, by=found - known)
        self._jobs.add(JobRequest(self._name, window, force=True), self._clock.time())


def _whole(group: list[Counted]) -> Window:
    return Window(group[0].window.start, group[-1].window.end)


def _records(group: list[Counted]) -> int:
    return sum(one.records for one in group)


def _neighbours(due: list[Counted]) -> Iterator[list[Counted]]:
    """Cut windows into runs without a hole, none longer than LONGEST."""
    group: list[Counted] = due[:1]
    for before, one in pairwise(due):
        if one.window.start != before.window.end or one.window.end - group[0].window.start > LONGEST:
            yield group
            group = []
        group.append(one)
    if group:
        yield group
