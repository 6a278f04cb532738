"""What jobs did between two polls, from the counts that a server has of them.

Counts are stored as they were read, so that a poll or a window that is lost takes nothing with it: the difference to the row before it
covers both. They begin again at zero where Lustre removed a job (start_time is later) or where a count fell; one of perf events falls
alone. States (tokiod.job_columns) are as they were. Where a node did not report a count, what was done is unknown, and the next row
that has one covers it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokiod.job_columns import UNKNOWN, falls_alone, is_state
from tokiod.window_data import ENDED_REMOVED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.jobs.rows import JobRows

BILLION = 10**9


@dataclass(frozen=True, slots=True, eq=False)
class Activity:
    """What was done up to each of n rows, since the one before it of the same job and target.

    since: i8[n] epoch seconds of that row, or of the begin of the counts; counts: i8[n] each, by the names of JobRows.counts, with states;
    is_known: bool[n], false where counts began at an unknown time before the first row: then all counts are 0. A count that a node
    did not report is UNKNOWN.
    """

    since: NDArray[np.int64]
    counts: dict[str, NDArray[np.int64]]
    is_known: NDArray[np.bool_]


def activity(rows: JobRows) -> Activity:
    """Return the differences of rows that are sorted by job, target and time."""
    n, time, begin = len(rows), rows.columns["time"], rows.columns["begin"]
    follows = following(rows)
    restarts = np.zeros(n, bool)
    restarts[1:] = begin[1:] > begin[:-1]
    partly = places_before(rows, follows)
    for name, counts in rows.counts.items():
        if is_state(name) or falls_alone(name):
            continue
        if (place := partly.get(name)) is None:
            restarts[1:] |= counts[1:] < counts[:-1]
        else:
            restarts |= (counts >= 0) & (place >= 0) & (counts < counts[place])
    # Before Lustre 2.14 nothing else shows that a job which was removed has returned with larger counts.
    restarts[1:] |= (rows.columns["ended"][:-1] == ENDED_REMOVED) & (begin[1:] < 0)
    restarts &= follows
    continues, is_known = follows & ~restarts, follows | (begin >= 0)
    since = np.where(begin >= 0, begin // BILLION, time)
    since[1:] = np.where(continues[1:], time[:-1], since[1:])
    # Counts of a version without start_time that fell began after the row before.
    since[1:] = np.where(restarts[1:] & (begin[1:] < 0), time[:-1], since[1:])
    done = {name: counts if is_state(name) else _differences(counts, continues, is_known) for name, counts in rows.counts.items()}
    for name, place in partly.items():
        done[name] = _known_differences(rows.counts[name], place, continues, begin >= 0)
    return Activity(since, done, is_known)


def _differences(counts: NDArray[np.int64], continues: NDArray[np.bool_], is_known: NDArray[np.bool_]) -> NDArray[np.int64]:
    before = np.zeros_like(counts)
    before[1:] = counts[:-1]
    found: NDArray[np.int64] = np.where(is_known, counts - np.where(continues & (counts >= before), before, 0), 0)
    return found


def following(rows: JobRows) -> NDArray[np.bool_]:
    """Return bool[n]: whether the row before each is of the same job and target."""
    follows = np.zeros(len(rows), bool)
    follows[1:] = (rows.job[1:] == rows.job[:-1]) & (rows.target[1:] == rows.target[:-1])
    return follows


def places_before(rows: JobRows, follows: NDArray[np.bool_]) -> dict[str, NDArray[np.int64]]:
    """Return i8[n] for each count that some rows do not have: the place of the last row before each, of the same job and target, that does.

    -1 without one.
    """
    found = {name: counts for name, counts in rows.counts.items() if not is_state(name) and (counts < 0).any()}
    return {name: _place_before(counts, follows) for name, counts in found.items()}


def _place_before(counts: NDArray[np.int64], follows: NDArray[np.bool_]) -> NDArray[np.int64]:
    places = np.arange(len(counts))
    known = np.maximum.accumulate(np.where(counts >= 0, places, -1))
    before = np.append(-1, known[:-1])
    first = np.maximum.accumulate(np.where(follows, 0, places))
    found: NDArray[np.int64] = np.where(before >= first, before, -1)
    return found


def _known_differences(
    counts: NDArray[np.int64], place: NDArray[np.int64], continues: NDArray[np.bool_], begins: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return the differences of a count to the last one before it; UNKNOWN where a row has none."""
    # Rows of one number are of one job and target, whose counts did not begin again between them.
    run, before = np.cumsum(~continues), counts[place]
    goes_on = (place >= 0) & (run[place] == run) & (counts >= before)
    grown = np.where((place >= 0) | begins, counts - np.where(goes_on, before, 0), 0)
    found: NDArray[np.int64] = np.where(counts >= 0, grown, UNKNOWN)
    return found
