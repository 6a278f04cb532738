"""The states of jobs on nodes to rows of the job table: a row for each job that ran on a node in a window, and its last one at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokiod.job_columns import OF_NODES, UNKNOWN, scale_of
from tokiod.window_data import ENDED_REMOVED, JOB_COLUMNS, JOB_TABLE, TableRows, job_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokiod.window import Window

JOB_METRICS = tuple(OF_NODES)
JOB_FIELDS = 5
"""Of a state of a job, before its metrics: the places of the node and of the job among their names, begin, time, whether it ended."""
BILLION = 10**9
MAX_COUNT = 2**62
"""What an agent claims beyond that is that."""


def job_rows(states: NDArray[np.float64], jobs: Sequence[str], nodes: Sequence[str], window: Window) -> TableRows:
    """Return the rows of a window. states: f8[JOB_FIELDS + metric, n] NaN where unknown.

    A value that no node has gives no column; where only some have it, it is UNKNOWN for the others. Times are within the window.
    """
    node, job, begin, time, ended = states[:JOB_FIELDS]
    time = np.clip(np.nan_to_num(time), window.start, window.end - 1).astype(np.int64)
    begun = np.where(np.isnan(begin), -1, np.clip(np.nan_to_num(begin), 0, window.end) * BILLION).astype(np.int64)
    fixed = (
        time,
        _texts([name.encode() for name in nodes])[node.astype(np.int64)],
        _texts([key_of(name) for name in jobs])[job.astype(np.int64)],
        # Exact within its second: counts whose begin differs between two rows began again.
        np.where(begun // BILLION > time, time * BILLION, begun),
        time * BILLION,
        np.where(ended > 0, ENDED_REMOVED, 0).astype(np.int64),
    )
    columns = {
        column: np.where(
            np.isnan(values), UNKNOWN, np.rint(np.clip(np.nan_to_num(values) * scale_of(column), 0, MAX_COUNT)).astype(np.int64)
        )
        for column, values in zip(OF_NODES.values(), states[JOB_FIELDS:], strict=True)
        if not np.isnan(values).all() or not len(values)
    }
    return TableRows(JOB_TABLE, (*JOB_COLUMNS, *columns), (*fixed, *columns.values()))


def key_of(name: str) -> bytes:
    """Return the key of SCHEDULER:ID: the table calls a job by the scheduler's id."""
    printable = name.encode("ascii", "backslashreplace").decode()
    return job_key(printable.partition(":")[2] or printable, None, None, None, printable)


def _texts(texts: list[bytes]) -> NDArray[np.bytes_]:
    return np.array(texts or [b""], "S")
