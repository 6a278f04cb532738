"""What `tokioctl gaps` tells: every span of a source that is expected and not stored, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from tokiod.ranges import Ranges
from tokiod.window import Calendar, Window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.collector import SourceConfig
    from tokiod.config.load import Config
    from tokiod.ledger.ledger import Ledger, Unstored

Kind = Literal["due", "failed", "rejected", "lost"]


class Gap(msgspec.Struct, frozen=True):
    """A span [start, end) of a source that is not stored. Times are UTC epoch seconds.

    state: due (not asked for since it was missing), failed (asked for in vain, and again at next_try), rejected (the writer can't store
    it, a person must look), lost (can't be had any more); error_class, reason: of the last attempt; attempts: 0 where there was none.
    """

    source: str
    start: int
    end: int
    state: Kind
    reason: str = ""
    error_class: str = ""
    attempts: int = 0
    last_try: float | None = None
    next_try: float | None = None


def gaps(config: Config, ledger: Ledger, now: float, names: tuple[str, ...] = ()) -> list[Gap]:
    """Return the gaps of all sources, or of the named ones, by source and oldest first; of watched folders there are none.

    What a source that was never heard of should have is not known: it has no gaps before it was registered.
    """
    calendar, known = Calendar(config.timezone), {source.name: source.since for source in ledger.sources()}
    chosen = [source for source in config.source if source.polled and (not names or source.name in names)]
    return [gap for source in chosen for gap in _of(source, known.get(source.name), ledger, calendar, now)]


def _of(source: SourceConfig, since: int | None, ledger: Ledger, calendar: Calendar, now: float) -> Iterator[Gap]:
    due = calendar.window(int(now - source.settle), source.window).start
    unstored = ledger.unstored(source.name)
    begin = due if since is None else since
    rest = Ranges((hole.start, hole.end) for hole in ledger.stored(source.name).holes(begin, due)) if begin < due else Ranges()
    found = [_told(source.name, one) for one in unstored]
    for one in unstored:
        rest.remove(one.window.start, one.window.end)
    found += [Gap(source.name, start, end, "due") for start, end in rest]
    yield from _joined(sorted(found, key=lambda gap: gap.start))


def _told(source: str, one: Unstored) -> Gap:
    window = one.window
    return Gap(source, window.start, window.end, one.state, one.error, one.error_class, one.attempts, one.last_try, one.next_try)


def _joined(gaps: list[Gap]) -> Iterator[Gap]:
    """Join neighbours that are missing for the same reason: a night without the source is one line, not hundreds."""
    before: Gap | None = None
    for gap in gaps:
        if before is not None and (before.end, before.state, before.error_class, before.reason) == (
            gap.start, gap.state, gap.error_class, gap.reason,
        ):  # fmt: skip
            tries = [one.next_try for one in (before, gap) if one.next_try is not None]
            before = msgspec.structs.replace(
                before,
                end=gap.end,
                attempts=max(before.attempts, gap.attempts),
                last_try=max(filter(None, (before.last_try, gap.last_try)), default=None),
                next_try=min(tries, default=None),
            )
            continue
        if before is not None:
            yield before
        before = gap
    if before is not None:
        yield before


def seconds(gaps: list[Gap]) -> int:
    """Return how many seconds gaps are in all."""
    return sum(Window(gap.start, gap.end).seconds for gap in gaps)
