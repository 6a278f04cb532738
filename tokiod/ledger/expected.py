"""What of a source is expected in the archive by now, and what of it is gone for good: one rule for all who report it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tokiod.ranges import Ranges

if TYPE_CHECKING:
    from tokiod.collector import SourceConfig
    from tokiod.ledger.ledger import Ledger
    from tokiod.window import Calendar, Window


LATE_WINDOWS = 3
"""A source is late when its newest stored window is older than this, or more than this is due and not stored."""


class Expected(msgspec.Struct, frozen=True):
    """What is expected of a source, by a clock. Times are UTC epoch seconds.

    since, settled: the time from which and until which its data is expected; reach: before which it can't be queried any more.
    answered: what is answered since then, as Ledger.answered() returns it; gone: what lies before reach and is not answered.
    """

    since: int
    settled: int
    reach: int
    answered: list[tuple[int, int, bool]]
    gone: list[Window]


def expected(source: SourceConfig, since: int | None, ledger: Ledger, calendar: Calendar, now: float) -> Expected:
    """Return what is expected of a source: what is gone is lost, before a daemon that runs records it by the same rule.

    What a source held before its first stored window, and does not hold any more, was never expected. An empty span that can't be queried
    again counts as not answered. since: from when on the ledger expects it, None of a source that is not registered.

    Of a source without a past nothing is gone until the daemon records it: a window may wait for the writer, for as long as that is down.
    """
    settled = calendar.window(int(now - source.settle), source.window).start
    if since is None:
        return Expected(settled, settled, 0, [], [])
    reach = min(source.reach(calendar, now), settled) if source.replayable else 0
    spans = ledger.answered(source.name, since)
    answered = [(max(start, reach) if is_empty else start, end, is_empty) for start, end, is_empty in spans if not is_empty or end > reach]
    gone = Ranges((start, end) for start, end, is_empty in answered if not is_empty).holes(since, reach) if since < reach else []
    if gone and gone[0].start == since:
        since = gone.pop(0).end
    return Expected(since, settled, reach, answered, gone)
