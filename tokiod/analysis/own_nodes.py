"""What a job did on its compute nodes, from the rows of their agents: keys `job_*` next to those of the file system.

Counters are exact where the agent measured a job's end (docs/sensors.md); a job that runs has them up to its newest row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokiod.job_columns import DISK_READ, DISK_WRITTEN, MEMORY, OF_NODES, USECS
from tokiod.jobs.rows import Wanted
from tokiod.jobs.span import span_rows
from tokiod.jobs.unknown import sum_of

if TYPE_CHECKING:
    from tokiod.analysis.summary import Number
    from tokiod.jobs.span import Days
    from tokiod.reader.span import Span

AROUND_SECONDS = 60
"""Before a job's start and after its end: the clocks of the scheduler and the nodes differ, and epilogs take time."""
_SECONDS = {
    f"job_{name}_seconds": OF_NODES[f"job_{name}"]
    for name in ("cpu", "cpu_user", "cpu_system", "cpu_throttled", "cpu_stalled", "memory_stalled", "io_stalled")
}
_COUNTS = {
    "job_tot_disk_bytes_read": DISK_READ,
    "job_tot_disk_bytes_written": DISK_WRITTEN,
    "job_tot_page_faults": OF_NODES["job_page_faults"],
    "job_tot_oom_kills": OF_NODES["job_oom_kills"],
}
KEYS = ("job_nodes", *_SECONDS, "job_ave_cores", "job_max_mem_bytes", "job_max_node_mem_bytes", *_COUNTS)


def on_nodes(days: Days, number: str, span: Span) -> dict[str, Number | int]:
    """Return KEYS of a job, none where the table has no row of it.

    number: the scheduler's; span: in which the job ran. job_max_mem_bytes: the largest of each node, added up. A key that no node reported
    is left out; a sum is of the nodes that did.
    Raises OSError, NotAJobTable.
    """
    found = span_rows(days, span.start - AROUND_SECONDS, span.end + AROUND_SECONDS, Wanted.of_job(number))
    if not len(found.rows):
        return {}
    counts, node = found.activity.counts, found.rows.target
    sums = {name: known for name, values in counts.items() if (known := sum_of(values)) is not None}
    keys: dict[str, Number | int] = {"job_nodes": len(np.unique(node))}
    keys |= {key: sums[column] / USECS for key, column in _SECONDS.items() if column in sums}
    if "job_cpu_seconds" in keys:
        keys["job_ave_cores"] = float(keys["job_cpu_seconds"] or 0) / (span.end - span.start)
    if MEMORY in sums:
        largest = np.zeros(len(found.rows.targets), np.int64)
        np.maximum.at(largest, node, counts[MEMORY])
        keys |= {"job_max_mem_bytes": int(largest.sum()), "job_max_node_mem_bytes": int(largest.max())}
    return keys | {key: sums[column] for key, column in _COUNTS.items() if column in sums}
