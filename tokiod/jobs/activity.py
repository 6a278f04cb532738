"""What jobs did between two polls, from the counts that a server has of them.

Counts are stored as they were read, so that a poll or a window that is lost takes nothing with it: the difference to the row before it
covers both. They begin again at zero where Lustre removed a job (start_time is later) or where a count fell; one of perf events falls
alone. States (tokiod.job_columns) are as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokiod.job_columns import falls_alone, is_state
from tokiod.window_data import ENDED_REMOVED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.jobs.rows import JobRows

BILLION = 10**9


@dataclass(frozen=True, slots=True, eq=False)
class Activity:
    """What was done up to each of n rows, since the one before it of the same job and target.

    since: i8[n] epoch seconds of that row, or of the begin of the counts; counts: i8[n] each, by the names of JobRows.counts, with states;
    is_known: bool[n], false where counts began at an unknown time before the first row: then all counts are 0.
    """

    since: NDArray[np.int64]
    counts: dict[str, NDArray[np.int64]]
    is_known: NDArray[np.bool_]


def activity(rows: JobRows) -> Activity:
    """Return the differences of rows that are sorted by job, target and time."""
    n, time, begin = len(rows), rows.columns["time"], rows.columns["begin"]
    follows = np.zeros(n, bool)
    follows[1:] = (rows.job[1:] == rows.job[:-1]) & (rows.target[1:] == rows.target[:-1])
    restarts = np.zeros(n, bool)
    restarts[1:] = begin[1:] > begin[:-1]
    for name, counts in rows.counts.items():
        if not (is_state(name) or falls_alone(name)):
            restarts[1:] |= counts[1:] < counts[:-1]
    # Before Lustre 2.14 nothing else shows that a job which was removed has returned with larger counts.
    restarts[1:] |= (rows.columns["ended"][:-1] == ENDED_REMOVED) & (begin[1:] < 0)
    restarts &= follows
    continues, is_known = follows & ~restarts, follows | (begin >= 0)
    since = np.where(begin >= 0, begin // BILLION, time)
    since[1:] = np.where(continues[1:], time[:-1], since[1:])
    # Counts of a version without start_time that fell began after the row before.
    since[1:] = np.where(restarts[1:] & (begin[1:] < 0), time[:-1], since[1:])
    done = {name: counts if is_state(name) else _differences(counts, continues, is_known) for name, counts in rows.counts.items()}
    return Activity(since, done, is_known)


def _differences(counts: NDArray[np.int64], continues: NDArray[np.bool_], is_known: NDArray[np.bool_]) -> NDArray[np.int64]:
    before = np.zeros_like(counts)
    before[1:] = counts[:-1]
    found: NDArray[np.int64] = np.where(is_known, counts - np.where(continues & (counts >= before), before, 0), 0)
    return found
