"""What of a span is stored, and why the rest is not: by the ledger of the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tokiod.ledger.expected import expected
from tokiod.ledger.known_sources import known_sources
from tokiod.ledger.ledger import Ledger
from tokiod.ledger.published_copy import readable_ledger
from tokiod.ranges import Ranges
from tokiod.reader.completeness import CoverageSpan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tokiod.collector import SourceConfig
    from tokiod.config.sections import ArchiveConfig
    from tokiod.ledger.expected import Expected
    from tokiod.reader.completeness import State
    from tokiod.reader.span import Span
    from tokiod.window import Calendar

_NOT_CONFIGURED: tuple[State, str] = ("missing", "no source was configured")

_Part: TypeAlias = "tuple[int, int, State, str]"


def ledger_completeness(
    archive: ArchiveConfig, sources: Sequence[SourceConfig], calendar: Calendar, span: Span, now: float
) -> tuple[CoverageSpan, ...]:
    """Return the stretches of each source, by source and time; now: epoch seconds.

    Raises LedgerNotReady before the daemon's first start.
    """
    with Ledger.open_readonly(readable_ledger(archive) or archive.ledger) as ledger:
        known = known_sources(sources, ledger)
        found: list[CoverageSpan] = []
        for source in sorted(sources, key=lambda one: one.name):
            since = known[source.name].since if source.name in known else None
            ours = expected(source, since, ledger, calendar, now)
            parts = _parts(source, since, ours, ledger, span) if source.name in known else [(span.start, span.end, *_NOT_CONFIGURED)]
            found += _cut(source.name, parts, span)
        return tuple(found)


def _cut(source: str, parts: Iterable[_Part], span: Span) -> list[CoverageSpan]:
    """Return the parts within a span, by time. Of those that overlap, the first one counts."""
    rest, found = Ranges([(span.start, span.end)]), list[CoverageSpan]()
    for first, last, state, reason in parts:
        for one in rest.within(first, last):
            found.append(CoverageSpan(source, one.start, one.end, state, reason))
            rest.remove(one.start, one.end)
    return sorted(found, key=lambda one: one.start)


def _parts(source: SourceConfig, since: int | None, ours: Expected, ledger: Ledger, span: Span) -> Iterator[_Part]:
    """Yield what is known of a source, of all of the span and more: the first of the parts that overlap is meant.

    What a watched folder should hold is unknown, and so is what is still to come.
    """
    stored = list(ledger.stored(source.name))
    yield from ((start, end, "stored", "") for start, end in stored)
    if not source.polled:
        latest = stored[-1][1] if stored else span.start
        yield span.start, latest, "missing", "no file that was received has it"
        yield latest, span.end, "not yet", ""
        return
    _, why = source.why_lost
    yield from ((one.start, one.end, "lost", why) for one in ours.gone)
    for unstored in ledger.unstored(source.name):
        window = unstored.window
        yield window.start, window.end, "lost" if unstored.state == "lost" else "gap", unstored.error
    if since is not None:
        yield since, ours.since, "missing", f"before its first stored window, and {why}"
    yield span.start, ours.since, *_NOT_CONFIGURED
    yield ours.since, ours.settled, "gap", "no attempt yet"
    yield ours.settled, span.end, "not yet", ""
