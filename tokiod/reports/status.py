"""The status of `tokioctl status`, from the ledger, the lock and the file names: the same with and without a daemon."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

import msgspec

from tokiod.archive.lock import lock_owner
from tokiod.dropped import Why  # noqa: TC001 - msgspec reads annotations
from tokiod.ledger.database import LedgerError, to_ledger_error
from tokiod.ledger.expected import LATE_WINDOWS, expected
from tokiod.ledger.known_sources import known_sources
from tokiod.ledger.ledger import Ledger, LedgerNotReady
from tokiod.ledger.published_copy import readable_ledger
from tokiod.published.hosts import HostState  # noqa: TC001 - msgspec reads annotations
from tokiod.published.sinks import SinkState  # noqa: TC001 - msgspec reads annotations
from tokiod.ranges import Ranges
from tokiod.reports.days import due_seconds
from tokiod.runtime.full_disk import shortage
from tokiod.times import span
from tokiod.window import Calendar, Window

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from tokiod.collector import SourceConfig
    from tokiod.config.schema import Config
    from tokiod.ledger.ledger import SourceRow
    from tokiod.window import Day


Trouble = Literal["", "new", "unknown", "late", "waiting", "fatal", "empty", "partial"]
"""What is wrong with a source, "" if nothing is: the one word for it in status, /healthz, the log and the alerts.

new: nothing was ever asked of it; unknown: the collectors have not reported its state yet; late: what is due is not stored, though it
answers; waiting: it can't be asked now; fatal: it can't be asked until an administrator changes something; empty: it answers, and has had
no record for `empty_after`; partial: it answers, and a part of it does not or is at risk.
"""


class Gaps(msgspec.Struct, frozen=True):
    """The gaps of a source: number of spans that are due and not stored, seconds in them; lost: seconds that are no longer available.

    empty: seconds for which the source answered without a record, at a time when it had none at all; they are not among `seconds`.
    past: those of `seconds` that lie before all that is stored, and were not asked for yet: they are collected after what is newer.
    """

    spans: int
    seconds: int
    lost: int
    empty: int = 0
    past: int = 0


class Today(msgspec.Struct, frozen=True):
    """How much of the site's day a source has stored. Seconds of the day: stored; due, of the whole day.

    due: what the source should have answered by now since its registration, and what is stored besides.
    """

    stored: int
    due: int
    whole: int


class SourceLine(msgspec.Struct, frozen=True):
    """One source. Times are UTC epoch seconds.

    trouble, reason: what is wrong with it and why, both empty if nothing is.
    watermark: nothing is missing before it, None while nothing that is expected is stored; lag: seconds from the newest stored window's
    end to now, 0 where that end lies in the future, as for a source that is not replayable; cells_per_second: cells of the last window by
    its length; past_left: seconds until the past is collected, by the pace of the latest windows, None where none is or the pace is
    unknown; empty_windows: windows in a row without a record, up to the newest one that the source answered; today: None of a watched
    folder and before the first start.
    """

    name: str
    kind: str
    system: str
    state: str = "new"
    trouble: Trouble = "new"
    reason: str = ""
    watermark: int | None = None
    lag: int | None = None
    last_start: int | None = None
    last_end: int | None = None
    stored_at: float | None = None
    windows: int = 0
    cells: int = 0
    cells_per_second: float = 0.0
    gaps: Gaps = Gaps(0, 0, 0)
    last_error: str = ""
    attempts: int = 0
    dropped: dict[str, int] = {}
    empty_windows: int = 0
    today: Today | None = None
    why: dict[str, Why] = {}
    past_left: int | None = None


class FileLine(msgspec.Struct, frozen=True):
    """One file that is being filled.

    filled: share of its day's windows that are stored, over all polled sources of its system with datasets; None without such a source.
    """

    path: str
    system: str
    filled: float | None


class JobLine(msgspec.Struct, frozen=True):
    """One backfill that is not finished; seconds_left: of its span; error: why it waits, if it does."""

    id: int
    source: str
    start: int
    end: int
    state: str
    windows: int
    records: int
    seconds_left: int
    error: str


class Status(msgspec.Struct, frozen=True):
    """The status of all sources, files and jobs at a time. writer: the process that locks the archive, None when the daemon is down.

    has_ledger: False before the first start, and where the ledger was deleted; the sources are all new then. web: the state of
    `tokiod web` in words, "" where it does not run or this user may not ask it. sinks: those that the archive is sent to; hosts: all of
    them, where sources are collected on several. Health depends on none of these: a host that can't be reached has sources that wait.
    """

    time: float
    archive: str
    writer: int | None
    health: Literal["fine", "degraded", "down"]
    sources: list[SourceLine]
    files: list[FileLine]
    jobs: list[JobLine] = []
    has_ledger: bool = True
    web: str = ""
    sinks: list[SinkState] = []
    hosts: list[HostState] = []


def status(config: Config, ledger: Ledger | None, now: float, only: str | None = None) -> Status:
    """Return the status of all sources, or of one with its files and jobs; ledger: None before the first start."""
    known = {} if ledger is None else known_sources(config.source, ledger)
    calendar = config.calendar
    chosen = [source for source in config.source if only in {None, source.name}]
    sources = [_with_trouble(_source(source, known.get(source.name), ledger, calendar, now), source) for source in chosen]
    if any(line.trouble == "late" for line in sources) and (full := shortage(config.archive.root)):
        sources = [msgspec.structs.replace(one, reason=f"{one.reason}: {full}") if one.trouble == "late" else one for one in sources]
    writer = lock_owner(config.archive.lock, config.archive.owner)
    healthy = not any(line.trouble for line in sources)
    health: Literal["fine", "degraded", "down"] = "down" if writer is None else "fine" if healthy else "degraded"
    files, jobs = list[FileLine](), list[JobLine]()
    if ledger is not None:
        files = [
            FileLine(str(path), system, _filled(config, ledger, known, system, day))
            for system, day, path in _files(config, {source.system for source in chosen}, calendar, now)
        ]
        jobs = [job for job in _jobs(ledger) if only in {None, job.source}]
    return Status(now, str(config.archive.root), writer, health, sources, files, jobs, has_ledger=ledger is not None)


def read(config: Config, now: float, only: str | None = None) -> Status:
    """Return what status() does, from the ledger's file, or from its copy. Raises TokiodError where neither can be read."""
    if (path := readable_ledger(config.archive)) is None:
        return status(config, None, now, only)
    try:
        # A check of all pages takes 10 ms and more for a year.
        with Ledger.open_readonly(path, checked=False) as ledger, ledger.snapshot():
            return status(config, ledger, now, only)
    except LedgerNotReady:
        return status(config, None, now, only)
    except LedgerError as error:
        raise to_ledger_error(error, path) from None


def troubled(now: Status) -> dict[str, list[str]]:
    """Return the names of the sources with each trouble."""
    found: dict[str, list[str]] = {}
    for line in now.sources:
        if line.trouble:
            found.setdefault(line.trouble, []).append(line.name)
    return found


def _with_trouble(line: SourceLine, source: SourceConfig) -> SourceLine:
    """Return a line with what is wrong with the source. One that waits has it from its state; a late one from its windows."""
    if line.state not in {"running", "stopped"}:
        return msgspec.structs.replace(line, trouble=line.state)
    if late := _lateness(line, source):
        return msgspec.structs.replace(line, trouble="late", reason=line.reason or late)
    is_partial = source.polled and line.state == "running" and line.reason
    return msgspec.structs.replace(line, trouble="partial" if is_partial else "")


def _jobs(ledger: Ledger) -> Iterator[JobLine]:
    jobs = ledger.jobs
    for job in (job for job in jobs.all() if not job.finished):
        left = sum(window.seconds for window in jobs.remaining(job))
        yield JobLine(job.id, job.source, job.start, job.end, job.state, job.windows, job.records, left, job.error)


def _lateness(line: SourceLine, source: SourceConfig) -> str:
    """Return why a source is late, "" if it is not."""
    tolerated = LATE_WINDOWS * source.window
    if source.polled and (line.lag or 0) > tolerated + source.settle:
        return f"its newest stored window ended {span(line.lag or 0)} ago"
    if source.polled and (missing := line.gaps.seconds - line.gaps.past) > tolerated:
        return f"{span(missing)} are due and not stored"
    return ""


def _source(config: SourceConfig, known: SourceRow | None, ledger: Ledger | None, calendar: Calendar, now: float) -> SourceLine:
    if known is None or ledger is None:
        return SourceLine(config.name, config.kind, config.system)
    if not config.polled:
        return _folder(config, known, ledger)
    failure = ledger.last_failure(config.name)
    due = calendar.window(int(now - config.settle), config.window).start
    last = known.last
    silence = ledger.silence(config.name, known.data_end, int(now))
    watermark, gaps = _progress(config, known, ledger, calendar, now)
    pace = ledger.pace(config.name, now) if gaps.past else 0.0
    return SourceLine(
        name=config.name,
        kind=config.kind,
        system=config.system,
        state=known.state,
        reason=known.state_reason,
        watermark=watermark,
        lag=None if last is None else max(0, int(now) - last.end),
        last_start=None if last is None else last.start,
        last_end=None if last is None else last.end,
        stored_at=known.stored_at,
        windows=known.windows,
        cells=known.cells,
        cells_per_second=0.0 if last is None else known.last_cells / last.seconds,
        gaps=gaps,
        last_error="" if failure is None else failure.error,
        attempts=0 if failure is None else failure.attempts,
        dropped=known.dropped,
        why=ledger.why_dropped(config.name),
        empty_windows=0 if silence is None else -(-silence.seconds // config.window),
        today=_today(ledger, config.name, calendar.day(int(now)), known.since or 0, due),
        past_left=int(gaps.past / (pace - 1)) if pace > 1 else None,
    )


def _today(ledger: Ledger, source: str, day: Day, since: int, due: int) -> Today:
    """Return what is stored of a day. since: of the source's registration; due: the time before which it should have answered."""
    stored = _stored(ledger, source, day)
    return Today(stored.total, due_seconds(stored, day, since, due), day.end - day.start)


def _stored(ledger: Ledger, source: str, day: Day) -> Ranges:
    parts = ledger.stored(source, Window(day.start, day.end)).within(day.start, day.end)
    return Ranges((part.start, part.end) for part in parts)


def _folder(config: SourceConfig, known: SourceRow, ledger: Ledger) -> SourceLine:
    """Return the line of a watched folder: it is never late and has no gaps, because the files to expect are unknown."""
    last = known.last
    return SourceLine(
        name=config.name,
        kind=config.kind,
        system=config.system,
        state=known.state,
        reason=known.state_reason,
        last_start=None if last is None else last.start,
        last_end=None if last is None else last.end,
        stored_at=known.stored_at,
        windows=known.windows,
        cells=known.cells,
        dropped=known.dropped,
        why=ledger.why_dropped(config.name),
    )


def _progress(source: SourceConfig, known: SourceRow, ledger: Ledger, calendar: Calendar, now: float) -> tuple[int | None, Gaps]:
    """Return a source's watermark, None without one, and its gaps until now."""
    lost = ledger.lost_seconds(source.name)
    if known.since is None:
        return ledger.watermark(source.name) or None, Gaps(0, 0, lost)
    ours = expected(source, known.since, ledger, calendar, now)
    since, due = ours.since, ours.settled
    reached, spans, seconds, empty_seconds, past = since, 0, 0, 0, 0
    watermark: int | None = None
    for start, end, is_empty in sorted([*ours.answered, *((one.start, one.end, False) for one in ours.gone)]):
        if start > reached or is_empty:
            watermark = reached if watermark is None else watermark
        if start > reached == since:
            asked = [one.window for one in ledger.unstored(source.name)]
            past = sum(hole.seconds for hole in Ranges((one.start, one.end) for one in asked).holes(since, min(start, due)))
        if start > reached:
            spans, seconds = spans + (reached < due), seconds + max(0, min(start, due) - reached)
        if is_empty:
            empty_seconds += end - max(start, since)
        reached = max(reached, end)
    spans, seconds = spans + (reached < due), seconds + max(0, due - reached)
    if watermark is None and reached > since:
        watermark = reached
    # Of most sources the row tells it without another query.
    if not known.has_sample_after(since) and not ledger.has_reached(source.name, since):
        watermark = None
    return watermark, Gaps(spans, seconds, lost + sum(one.seconds for one in ours.gone), empty_seconds, past)


def _files(config: Config, systems: set[str], calendar: Calendar, now: float) -> Iterator[tuple[str, Day, Path]]:
    """Yield the files of yesterday, today and tomorrow that exist."""
    today = calendar.day(int(now))
    days = (calendar.day(today.start - 1), today, calendar.day(today.end))
    for system in sorted(systems):
        for day in days:
            if os.path.exists(config.archive.file_name(day, system)):  # noqa: PTH110 - a path for all systems takes a millisecond
                yield system, day, config.archive.file(day, system)


def _filled(config: Config, ledger: Ledger, known: Container[str], system: str, day: Day) -> float | None:
    """Return the share of a file that is stored: what a watched folder should hold is unknown, and a table is in no file of a system."""
    names = [source.name for source in config.source if source.system == system and source.polled and source.datasets()]
    if not names:
        return None
    return sum(_stored(ledger, name, day).total for name in names if name in known) / ((day.end - day.start) * len(names))
