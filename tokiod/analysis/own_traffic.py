"""What a job itself read, wrote and did, from the job table: the keys `job_*` next to those of the file system, `fs_*`.

A job's last operations are in the poll after its end, or, where polls were lost, in the row that a target leaves when it removes the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.analysis.job import GIB, OPERATIONS
from tokiod.jobs.rows import Wanted
from tokiod.jobs.span import span_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokiod.analysis.summary import Number
    from tokiod.jobs.span import Days
    from tokiod.reader.span import Span

LAST_SECONDS = 1800
"""After a job's end, in which its last rows come: Lustre removes an idle job after ten minutes."""
FIRST_SECONDS = 60
"""Before its start: the clocks of the scheduler and the servers differ."""
_TRANSFERS = (("read", "read_bytes.sum"), ("written", "write_bytes.sum"))
KEYS = (
    *(f"job_{key.format(to)}" for to, _ in _TRANSFERS
      for key in ("tot_bytes_{}", "tot_gibs_{}", "ave_bytes_{}_per_sec", "ave_gibs_{}_per_sec", "frac_bytes_{}")),
    *(f"job_tot_{name}_ops" for name in OPERATIONS),
    "job_targets",
)  # fmt: skip


def own_traffic(days: Days, number: str, span: Span, of_system: Mapping[str, object]) -> dict[str, Number | int]:
    """Return KEYS of a job, none where the table has no row of it.

    number: the scheduler's; span: in which the job ran; of_system: the keys `fs_*`, for shares. Raises OSError, NotAJobTable.
    """
    found = span_rows(days, span.start - FIRST_SECONDS, span.end + LAST_SECONDS, Wanted.of_job(number))
    if not len(found.rows):
        return {}
    sums = {name: int(values.sum()) for name, values in found.activity.counts.items()}
    keys: dict[str, Number | int] = {}
    for to, column in _TRANSFERS:
        whole, seconds = sums.get(column, 0), span.end - span.start
        of_all = of_system.get(f"fs_tot_bytes_{to}")
        keys |= {
            f"job_tot_bytes_{to}": whole,
            f"job_tot_gibs_{to}": whole / GIB,
            f"job_ave_bytes_{to}_per_sec": whole / seconds,
            f"job_ave_gibs_{to}_per_sec": whole / GIB / seconds,
            f"job_frac_bytes_{to}": whole / of_all if isinstance(of_all, (int, float)) and of_all else None,
        }
    keys |= {f"job_tot_{name}_ops": sums[f"{name}.samples"] for name in OPERATIONS if f"{name}.samples" in sums}
    return keys | {"job_targets": len(set(found.rows.target.tolist()))}
