"""The gaps of `tokioctl gaps`: every span of a source that is expected and not stored, and why."""

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

Kind = Literal["due", "failed", "rejected", "lost", "empty"]


class Gap(msgspec.Struct, frozen=True):
    """A span [start, end) of a source that is not stored. Times are UTC epoch seconds.

    state: due (no attempt yet), failed (an attempt failed, the next one follows at next_try), rejected (the writer can't store it, see
    reason), lost (no longer available), empty (the source had no record of it, nor of anything else then; it is queried again once the
    source returns records); error_class, reason: of the last attempt; attempts: 0 without one.
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
    """Return the gaps of all sources, or of the named ones, by source and oldest first.

    A watched folder has no gaps, and a source has none before its registration: what they should hold is unknown.
    """
    calendar, known = Calendar(config.timezone), {source.name: source.since for source in ledger.sources()}
    chosen = [source for source in config.source if source.polled and (not names or source.name in names)]
    return [gap for source in chosen for gap in _gaps_of(source, known.get(source.name), ledger, calendar, now)]


def _gaps_of(source: SourceConfig, since: int | None, ledger: Ledger, calendar: Calendar, now: float) -> Iterator[Gap]:
    settled = calendar.window(int(now - source.settle), source.window).start
    unstored = ledger.unstored(source.name)
    begin = settled if since is None else since
    due_spans = Ranges((hole.start, hole.end) for hole in ledger.stored(source.name).holes(begin, settled)) if begin < settled else Ranges()
    found = [_recorded(source.name, one) for one in unstored]
    for one in unstored:
        due_spans.remove(one.window.start, one.window.end)
    found += [Gap(source.name, start, end, "due") for start, end in due_spans]
    yield from _joined(sorted(found, key=lambda gap: gap.start))


def _recorded(source: str, one: Unstored) -> Gap:
    window = one.window
    return Gap(source, window.start, window.end, one.state, one.error, one.error_class, one.attempts, one.last_try, one.next_try)


def _joined(gaps: list[Gap]) -> Iterator[Gap]:
    """Join neighbours with the same reason: a night without the source is one line, not hundreds."""
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
    """Return the sum of the gaps' lengths."""
    return sum(Window(gap.start, gap.end).seconds for gap in gaps)
