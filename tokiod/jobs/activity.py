"""What jobs did between two polls, from the counts that a server has of them.

Counts are stored as they were read, so that a poll or a window that is lost takes nothing with it: the difference to the row before it
covers both. tokiod.increases has the rule. What Lustre counts of a job on a target begins again together; what a node counts is a sum over
devices, processes and children, which may go away; and its perf events begin again alone. States (tokiod.job_columns) are as they were.

All that Lustre counts since one begin is a life of the job on the target. Each life is counted by itself: its counts only rise, so its sum
is right in any order of polls. Clocks that jump, and old answers, mix lives: a row of one life shows nothing about another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokiod.increases import FELL, IMPLAUSIBLE, OLDER, Samples, increases, place_before, refused
from tokiod.job_columns import falls_alone, is_of_parts, is_state
from tokiod.window_data import ENDED_REMOVED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.jobs.rows import JobRows


@dataclass(frozen=True, slots=True, eq=False)
class Activity:
    """What was done up to each of n rows, since the one before it of the same job and target.

    since: i8[n] epoch seconds of that row, or of the begin of the counts; counts: i8[n] each, by the names of JobRows.counts, with states;
    is_known: bool[n], false where counts began at an unknown time before the first row: then all counts are 0. A count that a node
    did not report is UNKNOWN. odd: bool[n] by reason, which rows are refused, with counts of 0, or have a count that fell.
    """

    since: NDArray[np.int64]
    counts: dict[str, NDArray[np.int64]]
    is_known: NDArray[np.bool_]
    odd: dict[str, NDArray[np.bool_]]

    def where(self, kept: NDArray[np.bool_] | NDArray[np.int64]) -> Activity:
        """Return what was done up to some of the rows. kept: bool[n], or their places."""
        if kept.dtype == bool and kept.all():
            return self
        counts = {name: values[kept] for name, values in self.counts.items()}
        return Activity(self.since[kept], counts, self.is_known[kept], {reason: of[kept] for reason, of in self.odd.items()})


def activity(rows: JobRows) -> Activity:
    """Return the differences of rows that are sorted by_lives()."""
    found = increases(_samples(rows))
    counts = {name: found.counts.get(name, values) for name, values in rows.counts.items()}
    odd = {OLDER: found.is_older, IMPLAUSIBLE: found.is_implausible, FELL: found.fell}
    return Activity(found.since, counts, found.is_known, odd)


def by_lives(rows: JobRows) -> JobRows:
    """Return rows sorted by job, target, life and time; without jumps of clocks and old answers they are as read."""
    begin = rows.columns["begin"]
    if all(map(is_of_parts, rows.counts)) or not (is_next(rows)[1:] & (begin[1:] < begin[:-1])).any():
        return rows
    return rows.where(np.lexsort((rows.columns["time"], begin, rows.target, rows.job)))


def is_credible(rows: JobRows) -> NDArray[np.bool_]:
    """Return bool[n]: which rows are not refused. Rows are sorted by_lives(), here and below."""
    is_older, is_implausible = refused(_samples(rows))
    return ~(is_older | is_implausible)


def is_next(rows: JobRows) -> NDArray[np.bool_]:
    """Return bool[n]: whether the row before each is of the same job and target."""
    found = np.zeros(len(rows), bool)
    found[1:] = (rows.job[1:] == rows.job[:-1]) & (rows.target[1:] == rows.target[:-1])
    return found


def _samples(rows: JobRows) -> Samples:
    time, begin, last, ended = (rows.columns[name] for name in ("time", "begin", "last", "ended"))
    counts = {name: values for name, values in rows.counts.items() if not is_state(name)}
    own = {name: values for name, values in counts.items() if falls_alone(name)}
    parts = {name: values for name, values in counts.items() if is_of_parts(name) and name not in own}
    common = {name: values for name, values in counts.items() if not is_of_parts(name)}
    series: NDArray[np.int64] = rows.job * len(rows.targets) + rows.target
    if common and (is_next(rows)[1:] & (begin[1:] != begin[:-1])).any():
        series = np.cumsum(~following(rows), dtype=np.int64)
    return Samples(series, time, begin, last, ended == ENDED_REMOVED, common, parts, own)


def following(rows: JobRows) -> NDArray[np.bool_]:
    """Return bool[n]: whether the row before each is of the same job, target and life."""
    found, begin = is_next(rows), rows.columns["begin"]
    if not all(map(is_of_parts, rows.counts)):
        found[1:] &= begin[1:] == begin[:-1]
    return found


def places_before(rows: JobRows, follows: NDArray[np.bool_]) -> dict[str, NDArray[np.int64]]:
    """Return i8[n] for each count that some rows do not have: the place of the last row before each, of the same job and target, that does.

    -1 without one.
    """
    found = {name: counts for name, counts in rows.counts.items() if not is_state(name) and (counts < 0).any()}
    return {name: place_before(counts, follows) for name, counts in found.items()}
