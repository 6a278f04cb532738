"""What else ran during a job: pytokio's keys jobsdb_concurrent_*, from the records of a scheduler or of a file of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tokiod.reader.span import Span

KEYS = ("jobsdb_concurrent_jobs", "jobsdb_concurrent_nodes", "jobsdb_concurrent_nodehrs")
"""Jobs that ran in a part of the span, their nodes, and the node hours of those parts; the job itself is among them."""
HOUR_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class RunJobs:
    """Jobs that ran: start and end, i8[n] epoch seconds, and their nodes, i8[n]."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    nodes: NDArray[np.int64]

    @classmethod
    def of(cls, jobs: Iterable[tuple[int, int, int]]) -> RunJobs:
        """Take the start, the end and the nodes of each."""
        return cls(*np.array(list(jobs), np.int64).reshape(-1, 3).T)

    def during(self, span: Span) -> dict[str, float | int | str | None]:
        """Return KEYS of a span."""
        both = (self.start < span.end) & (self.end > span.start)
        seconds = np.minimum(self.end[both], span.end) - np.maximum(self.start[both], span.start)
        nodes = self.nodes[both]
        figures = int(both.sum()), int(nodes.sum()), float(nodes @ seconds) / HOUR_SECONDS
        return dict(zip(KEYS, figures, strict=True))
