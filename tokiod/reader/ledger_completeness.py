"""What of a span is stored, and why the rest is not: by the ledger of the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.ledger.known_sources import known_sources
from tokiod.ledger.ledger import Ledger
from tokiod.ledger.published_copy import readable_ledger
from tokiod.ranges import Ranges
from tokiod.reader.completeness import CoverageSpan, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.config.load import Config
    from tokiod.ledger.ledger import SourceRow, Unstored
    from tokiod.reader.span import Span

_NOT_CONFIGURED: tuple[State, str] = ("missing", "no source was configured")


def ledger_completeness(config: Config, system: str, span: Span) -> tuple[CoverageSpan, ...]:
    """Return the stretches of each source of a system, oldest first. Raises LedgerNotReady before the daemon's first start."""
    with Ledger.open_readonly(readable_ledger(config.archive) or config.archive.ledger) as ledger:
        known = known_sources(config, ledger)
        names = sorted(source.name for source in config.source if source.system == system)
        return tuple(one for name in names for one in _of_source(ledger, name, known.get(name), span))


def _of_source(ledger: Ledger, name: str, known: SourceRow | None, span: Span) -> Iterator[CoverageSpan]:
    if known is None:
        yield CoverageSpan(name, span.start, span.end, *_NOT_CONFIGURED)
        return
    stored, unstored = ledger.stored(name), [one for one in ledger.unstored(name) if one.window.start < span.end]
    found = [CoverageSpan(name, one.start, one.end, "stored") for one in stored.within(span.start, span.end)]
    rest = Ranges((hole.start, hole.end) for hole in stored.holes(span.start, span.end))
    for one in unstored:
        start, end = max(one.window.start, span.start), min(one.window.end, span.end)
        if start < end:
            found.append(CoverageSpan(name, start, end, _state(one), one.error))
            rest.remove(start, end)
    latest = max((end for _, end in stored), default=known.since)
    for start, end in rest:
        found += [CoverageSpan(name, *part) for part in _unrecorded(start, end, known.since, latest)]
    yield from sorted(found, key=lambda one: one.start)


def _state(one: Unstored) -> State:
    return "lost" if one.state == "lost" else "gap"


def _unrecorded(start: int, end: int, since: int | None, latest: int | None) -> Iterator[tuple[int, int, State, str]]:
    """Yield the parts of a time range of which the ledger has no record: before a source, between stored windows, after the last one."""
    first = min(end, max(start, since)) if since is not None else end
    if start < first:
        yield start, first, *_NOT_CONFIGURED
    last = min(end, max(first, latest)) if latest is not None else first
    if first < last:
        yield first, last, "gap", "no attempt yet"
    if last < end:
        yield last, end, "not yet", ""
