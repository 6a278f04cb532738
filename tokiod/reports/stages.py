"""Where the time of each window and file went: what the processes recorded, joined.

A stage lasts until the next one begins, so the stages of a window add up to its age at the acknowledgement. The collectors record the bus
from submission to acknowledgement. The commit of the writer is cut out of that: what lies before it is bus, after it ack.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from math import ceil
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from tokiod.errors import NoPermission
from tokiod.metrics.stage_ring import KINDS, STAGES, read_ring
from tokiod.metrics.stages import ring_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tokiod.metrics.stage_ring import Recording, Work
    from tokiod.metrics.types import Role

FILE_STAGES = KINDS[3:]
WRITER_STAGES = ("apply", "sync", "ledger")
FEED = STAGES["commit"].index("feed")
ORDER = ("due", "ask", "fetch", "parse", "submit", "bus", *WRITER_STAGES, "ack", "feed", *FILE_STAGES)
"""Of the stages in tables and legends."""


StagedKind = Literal["window", "file"]
State = Literal["stored", "done", "failed", "open", "unsent", "refused"]


class StageSpan(msgspec.Struct, frozen=True):
    """A stage of a window or a file. start: UTC epoch seconds; seconds: until the next stage, of an open one until now."""

    stage: str
    start: float
    seconds: float
    open: bool = False


class StagedWork(msgspec.Struct, frozen=True):
    """A window that was collected, or a file that was rewritten, with its stages.

    name: the source, of a file its system; start, end: of the window, of a file its day, UTC epoch seconds. state: stored, failed, open,
    refused (the writer did not store the window, as while a file is made, and it is brought again), unsent (a window without records that
    was not submitted), of a file done, failed, open. began: UTC epoch seconds; seconds: of all
    stages, of a stored window its age at the acknowledgement from when it was due; nbytes: of its samples; feed: the stage after the
    acknowledgement, null before it.
    """

    kind: StagedKind
    name: str
    start: int
    end: int
    state: State
    began: float
    seconds: float
    nbytes: int
    stages: list[StageSpan]
    feed: StageSpan | None = None

    @property
    def healing(self) -> float:
        """Seconds of its waiting beyond its own length. A window of live polling is asked for before the next one is due.

        One that waited longer was asked for before, or its source or the daemon was down: that is a gap, and no slow stage.
        """
        first = self.stages[0]
        return max(0.0, first.seconds - (self.end - self.start)) if first.stage == "due" else 0.0


class StageRow(msgspec.Struct, frozen=True):
    """A stage over all windows, or all files. n: how often; median, p95, max: seconds.

    share: of the seconds of all stages, without feed and the waiting of healed windows.
    """

    stage: str
    n: int
    median: float
    p95: float
    max: float
    share: float


class StageReport(msgspec.Struct, frozen=True):
    """The windows and files that took longest, oldest first, and a table of the stages of all of them."""

    slowest: list[StagedWork]
    stages: list[StageRow]


class _Timed(NamedTuple):
    """What a ring holds, and the monotonic time until which it shows what is open: now, or the last that a process recorded that ended."""

    works: list[Work]
    until: int


def read_stages(directory: Path) -> list[StagedWork]:
    """Return all recorded windows and files, oldest first; directory: of the rings. Raises OSError, NoPermission for an outsider."""
    rings: dict[str, Recording] = {}
    roles: tuple[Role, Role] = ("collectors", "writer")
    for role in roles:
        try:
            found = read_ring(ring_path(directory, role))
        except FileNotFoundError:
            continue
        except PermissionError:
            raise NoPermission(directory) from None
        if found is not None:
            rings[role] = found
    boots = {ring.boot for ring in rings.values()}
    now = time.monotonic_ns()
    timed = {role: _Timed(ring.works, now if ring.is_live else _last_time(ring.works)) for role, ring in rings.items()}
    collectors, writer = (timed.get(role, _Timed([], 0)) for role in roles)
    # Monotonic times of two boots can't be compared.
    windows = joined(collectors, writer if len(boots) == 1 else _Timed([], 0))
    files = (_file(work, writer.until) for work in writer.works if work.kind in FILE_STAGES)
    return sorted((*windows, *files), key=lambda one: one.began)


def chosen(works: Iterable[StagedWork], names: set[str], since: float) -> list[StagedWork]:
    """Return those that ended after a UTC epoch second. names: sources and systems, none for all."""
    return [one for one in works if one.began + one.seconds >= since and (not names or one.name in names)]


def report(works: list[StagedWork], slowest: int) -> StageReport:
    """Return the report of some windows and files. The waiting of healed windows does not make them slow."""
    longest = sorted(works, key=lambda one: one.seconds - one.healing)[max(0, len(works) - slowest) :]
    return StageReport(sorted(longest, key=lambda one: one.began), [*_rows(works, "window"), *_rows(works, "file")])


def joined(collectors: _Timed, writer: _Timed) -> Iterator[StagedWork]:
    """Yield each attempt at a window: its collection, its submission and the commit that lies within that."""
    commits = defaultdict(list)
    for work in writer.works:
        if work.kind == "commit":
            commits[_key(work)].append(work)
    collections: dict[tuple[str, int, int], Work] = {}
    for work in collectors.works:
        before = [one for one in [collections.pop(_key(work), None)] if one is not None]
        if work.kind == "submission":
            yield _window([*before, work], _commit_within(work, commits[_key(work)]), collectors.until)
            continue
        collections[_key(work)] = work
        if before:
            yield _window(before, None, collectors.until)
    for work in collections.values():
        yield _window([work], None, collectors.until)


def _key(work: Work) -> tuple[str, int, int]:
    return work.name, work.window_start, work.window_seconds


def _commit_within(submission: Work, commits: list[Work]) -> Work | None:
    """Return the commit of a window that is or was on the bus: the first that the ledger recorded, else the last that was begun.

    After a sync that took longer than the silence that collectors bear, the window comes again and is committed again.
    """
    _, begun, ended = submission.marks
    within = [one for one in commits if begun and begun <= one.marks[0] and not (ended and one.marks[0] > ended)]
    recorded = [one for one in within if one.marks[FEED]]
    return next(iter(recorded or within[-1:]), None)


def _window(works: list[Work], commit: Work | None, until: int) -> StagedWork:
    """Join a collection, a submission, or both in this order, and a commit."""
    last = works[-1]
    marks, feed = [mark for work in works for mark in _marks(work)], None
    if commit is not None:
        *mine, feeding, fed = commit.marks
        marks += [(stage, mark) for stage, mark in zip(WRITER_STAGES, mine, strict=True) if mark]
        if feeding:
            marks.append(("ack", min(feeding, last.marks[-1] or feeding)))
            feed = _spans([("feed", feeding)], fed, until, last.wall)[0]
    done: State = "stored" if last.kind == "submission" else "unsent"
    spans = _spans(marks, last.marks[-1], until, last.wall)
    return _staged("window", last, done if last.outcome == "done" else last.outcome, spans, feed)


def _file(work: Work, until: int) -> StagedWork:
    return _staged("file", work, work.outcome, _spans(_marks(work), work.marks[-1], until, work.wall))


def _staged(kind: StagedKind, work: Work, state: State, spans: list[StageSpan], feed: StageSpan | None = None) -> StagedWork:
    end, seconds = work.window_start + work.window_seconds, sum(span.seconds for span in spans)
    return StagedWork(kind, work.name, work.window_start, end, state, spans[0].start, seconds, work.nbytes, spans, feed)


def _marks(work: Work) -> list[tuple[str, int]]:
    return [(stage, mark) for stage, mark in zip(STAGES[work.kind], work.marks[:-1], strict=True) if mark]


def _spans(marks: list[tuple[str, int]], end: int, until: int, wall: int) -> list[StageSpan]:
    """Return the stages that begin at some marks. end: of the last one, 0 while it is open; all in ns of the monotonic clock."""
    ends = [mark for _, mark in marks[1:]] + [end or max(until, marks[-1][1])]
    last = len(marks) - 1
    return [
        StageSpan(stage, (mark + wall) / 1e9, (stop - mark) / 1e9, open=place == last and not end)
        for place, ((stage, mark), stop) in enumerate(zip(marks, ends, strict=True))
    ]


def _last_time(works: Iterable[Work]) -> int:
    return max((mark for work in works for mark in work.marks), default=0)


def _rows(works: list[StagedWork], kind: str) -> Iterator[StageRow]:
    seconds: dict[str, list[float]] = defaultdict(list)
    for work in works:
        for span in work.stages if work.kind == kind else ():
            seconds[span.stage].append(span.seconds)
        if work.feed is not None and work.kind == kind:
            seconds["feed"].append(work.feed.seconds)
    healing = sum(work.healing for work in works if work.kind == kind)
    total = sum(sum(of) for stage, of in seconds.items() if stage != "feed") - healing or 1.0
    for stage in ORDER:
        if of := sorted(seconds.get(stage, ())):
            share = 0.0 if stage == "feed" else (sum(of) - (healing if stage == "due" else 0.0)) / total
            yield StageRow(stage, len(of), statistics.median(of), of[ceil(0.95 * len(of)) - 1], of[-1], share)
