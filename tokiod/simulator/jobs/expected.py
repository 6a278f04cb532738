"""What a job table must hold of a site's jobs: each row as a target counted it, and of each job all that stored windows could see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokiod.jobs.rows import read
from tokiod.ranges import Ranges
from tokiod.simulator.compare import Comparison, Difference
from tokiod.simulator.jobs.work import HOUR, fault
from tokiod.window_data import job_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.jobs.rows import JobRows
    from tokiod.simulator.jobs.work import Life, Work
    from tokiod.window import Window

BILLION = 10**9
TABLE = "jobs/operations"
SHOWN = 20


@dataclass(frozen=True, slots=True)
class Polls:
    """When servers were polled: the windows that are stored, and when no server answered."""

    stored: Sequence[Window]
    dead: Sequence[Window] = ()

    def saw(self, work: Work, target: str, start: int, end: int) -> bool:
        """Return whether a poll of [start, end) must have seen a target."""
        return any(
            start <= window.start and window.end <= end and self._answered(work, target, window)
            for window in self.stored_moments(work.site.moment)
        )

    def stored_moments(self, moment: int) -> Iterator[Window]:
        """Yield the windows that are stored."""
        for span in self.stored:
            for start in range(span.start, span.end, moment):
                yield type(span)(start, start + moment)

    def _answered(self, work: Work, target: str, window: Window) -> bool:
        servers = {work.server(target, time) for time in (window.start, window.end - 1)}
        times = range(window.start // work.site.moment * work.site.moment, window.end, work.site.moment)
        is_dead = any(one.start < window.end and window.start < one.end for one in self.dead)
        return not is_dead and not any(fault(work.site, server, time) for server in servers for time in times)


def compare_jobs(work: Work, directories: Sequence[Path], polls: Polls) -> Comparison:
    """Compare the rows below some directories of days with a site's jobs.

    different: a row that is not what the target had counted; lost: the last counts of a job that a stored window must have seen.
    """
    rows = read(sorted(directories), 0, 2**40)
    if not len(rows):
        return Comparison()
    result, lives = Comparison(cells=len(rows), filled=len(rows)), _lives(work, rows, polls)
    newest: dict[tuple[str, str, int], int] = {}
    names = [id_of(key) for key in rows.jobs.tolist()]
    targets = [target.decode() for target in rows.targets.tolist()]
    for row in range(len(rows)):
        identity, target = names[rows.job[row]], targets[rows.target[row]]
        begin, last = (int(rows.columns[name][row]) for name in ("begin", "last"))
        life = lives.get((target, identity))
        if life is None or not _is_right(life, rows, row, begin, last):
            _note(result, Difference("different", TABLE, f"{target} {identity}", int(rows.columns["time"][row]), np.nan, last / BILLION))
            continue
        key = target, identity, begin // BILLION
        newest[key] = max(newest.get(key, 0), last // BILLION)
    for difference in _lost(work, lives.values(), newest, polls):
        _note(result, difference)
    return result


def _lives(work: Work, rows: JobRows, polls: Polls) -> dict[tuple[str, str], Life]:
    """Return the lives of jobs around what rows counted, and in the stored windows: some rows are from a clock that was years ahead."""
    hours, spans = np.unique(rows.columns["last"] // BILLION // HOUR) * HOUR, Ranges()
    first, end = int(hours[0]) - 6 * HOUR, int(rows.columns["time"].max()) + 1
    for hour in hours.tolist():
        spans.add(hour - 6 * HOUR, hour + HOUR)
    for window in polls.stored:
        spans.add(max(window.start, first), min(window.end, end))
    return {(life.target, life.identity): life for start, end in spans for life in work.lives(start, end)}


def _is_right(life: Life, rows: JobRows, row: int, begin: int, last: int) -> bool:
    place = last % BILLION
    if place >= len(life.times) or last // BILLION != life.times[place] or begin != life.begins[place] * BILLION:
        return False
    wanted = counts_of(life.operations, life.counts[place])
    return all(int(values[row]) == wanted.get(name, 0) for name, values in rows.counts.items())


def _lost(work: Work, lives: Iterable[Life], newest: dict[tuple[str, str, int], int], polls: Polls) -> Iterator[Difference]:
    """Yield the last counts that a poll must have seen, before the target forgot them, and that no row has."""
    for life in lives:
        lasts = np.append(life.begins[1:] != life.begins[:-1], True)
        for place in np.flatnonzero(lasts).tolist():
            begin, time, until = int(life.begins[place]), int(life.times[place]), int(life.until[place])
            found = newest.get((life.target, life.identity, begin), 0)
            if found < time and polls.saw(work, life.target, time, until):
                yield Difference("lost", TABLE, f"{life.target} {life.identity}", time, time, found)


def _note(result: Comparison, difference: Difference) -> None:
    result.counts[difference.kind] += 1
    if len(result.differences) < SHOWN:
        result.differences.append(difference)


def counts_of(operations: Sequence[str], counts: NDArray[np.int64]) -> dict[str, int]:
    """Return counts, i8[operations, 2], by the names of columns."""
    both = zip(operations, counts.tolist(), strict=True)
    return {f"{name}.{part}": int(value) for name, one in both for part, value in zip(("samples", "sum"), one, strict=True)}


def id_of(key: bytes) -> str:
    """Return the job id of a key that was stored with names."""
    parts = job_parts(key)
    return f"{parts['command']}.{parts['user']}" if parts["command"] else f"{parts['job']}:{parts['user']}:{parts['node']}"
