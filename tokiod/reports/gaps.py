"""The gaps of `tokioctl gaps`: every span of a source that is expected and not stored, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from tokiod.ledger.expected import expected
from tokiod.ledger.known_sources import known_sources
from tokiod.ranges import Ranges
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tokiod.collector import SourceConfig
    from tokiod.ledger.ledger import Ledger, SourceRow, Unstored
    from tokiod.window import Calendar

Kind = Literal["due", "failed", "rejected", "lost", "empty"]
CellKind = Literal["no sample", "first sample", "fell", "implausible", "unknown", "no file", "not configured"]
State = Kind | CellKind
RETRIED = {"due", "failed"}
"""States of an outage that goes on: the window is queried again."""


class Gap(msgspec.Struct, frozen=True):
    """A span [start, end) of a source that is not stored. Times are UTC epoch seconds.

    state: due (no attempt yet), failed (an attempt failed, the next one follows at next_try), rejected (the writer can't store it, see
    reason), lost (no longer available), empty (the source had no record of it, nor of anything else then; it is queried again once the
    source returns records); error_class, reason: of the last attempt, without one what keeps the source from being asked; attempts: 0
    without one. Of cells that are missing in time that is stored: no sample, first sample or fell or implausible (of a counter), unknown,
    no file, not configured; columns: those of the cells,
    empty for all; cells: how many.
    """

    source: str
    start: int
    end: int
    state: State
    reason: str = ""
    error_class: str = ""
    attempts: int = 0
    last_try: float | None = None
    next_try: float | None = None
    columns: list[str] = []
    cells: int = 0


def gaps(sources: Iterable[SourceConfig], ledger: Ledger, calendar: Calendar, now: float) -> list[Gap]:
    """Return the gaps of sources, by source and oldest first.

    A watched folder has no gaps, and a source has none before its registration: what they should hold is unknown.
    """
    polled = [source for source in sources if source.polled]
    known = known_sources(polled, ledger)
    chosen = (source for source in polled if source.name in known)
    return [gap for source in chosen for gap in _gaps_of(source, known[source.name], ledger, calendar, now)]


def _gaps_of(source: SourceConfig, known: SourceRow, ledger: Ledger, calendar: Calendar, now: float) -> Iterator[Gap]:
    ours = expected(source, known.since, ledger, calendar, now)
    unstored = [one for one in ledger.unstored(source.name) if one.state == "lost" or one.window.end > ours.reach]
    # Windows of a source that can't be asked are not tried: what keeps them is the source's own trouble.
    reason = known.state_reason if known.state in {"waiting", "fatal"} else ""
    due_spans = Ranges((hole.start, hole.end) for hole in ledger.stored(source.name).holes(ours.since, max(ours.since, ours.settled)))
    for window in (*ours.gone, *(one.window for one in unstored)):
        due_spans.remove(window.start, window.end)
    error_class, why = source.why_lost
    found = [_recorded(source.name, one, ours.reach) for one in unstored]
    found += [Gap(source.name, one.start, one.end, "lost", why, error_class) for one in ours.gone]
    found += [Gap(source.name, start, end, "due", reason) for start, end in due_spans]
    yield from _joined(sorted(found, key=lambda gap: gap.start))


def _recorded(source: str, one: Unstored, reach: int) -> Gap:
    """Return the gap of a recorded span, from the time on that the source can be queried if it is not lost."""
    window = one.window
    start = window.start if one.state == "lost" else max(window.start, reach)
    return Gap(source, start, window.end, one.state, one.error, one.error_class, one.attempts, one.last_try, one.next_try)


def _joined(gaps: list[Gap]) -> Iterator[Gap]:
    """Join neighbours with the same reason: a night without the source is one line, not hundreds."""
    before: Gap | None = None
    for gap in gaps:
        if before is not None and (before.end, before.state, before.error_class, before.reason) == (
            gap.start, gap.state, gap.error_class, gap.reason,
        ):  # fmt: skip
            before = msgspec.structs.replace(
                before,
                end=gap.end,
                attempts=max(before.attempts, gap.attempts),
                last_try=max(filter(None, (before.last_try, gap.last_try)), default=None),
                next_try=_first_try(before, gap),
            )
            continue
        if before is not None:
            yield before
        before = gap
    if before is not None:
        yield before


def _first_try(*gaps: Gap) -> float | None:
    return min((one.next_try for one in gaps if one.next_try is not None), default=None)


def outages(gaps: list[Gap]) -> list[Gap]:
    """Return the gaps with each outage as one: what failed and what is due next to it differ only in how often it was tried.

    It has the state and the reason of the part that was tried last.
    """
    found: list[Gap] = []
    for gap in gaps:
        before = found[-1] if found else None
        if before is None or (before.source, before.end) != (gap.source, gap.start) or not {before.state, gap.state} <= RETRIED:
            found.append(gap)
            continue
        newest = max(before, gap, key=lambda one: one.last_try or 0.0)
        found[-1] = msgspec.structs.replace(
            newest, start=before.start, end=gap.end, attempts=max(before.attempts, gap.attempts), next_try=_first_try(before, gap)
        )
    return found


def clipped(gaps: list[Gap], start: int, end: int) -> list[Gap]:
    """Return the parts of gaps that lie in [start, end)."""
    cut = (msgspec.structs.replace(gap, start=max(gap.start, start), end=min(gap.end, end)) for gap in gaps)
    return [gap for gap in cut if gap.start < gap.end]


def seconds(gaps: list[Gap]) -> int:
    """Return the sum of the gaps' lengths."""
    return sum(Window(gap.start, gap.end).seconds for gap in gaps)
