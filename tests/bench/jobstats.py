"""One poll of an OST with 10,000 jobs of which at most 5 % did something, and what is held of them; a day of their table."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import TYPE_CHECKING

import jobstats_text

from collectors.lustre_jobstats.changes import JobCounts
from tests.bench import jobtable
from tests.bench.measure import Row, paired, timed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECOND = 10**9
START = 1_723_102_025
OPERATIONS = ("read_bytes", "write_bytes", "read", "write", *jobstats_text.OST)


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    jobs = 1_000 if quick else 10_000
    texts = [text_of(jobs, poll) for poll in range(6)]
    state, polls = {"poll": 0}, itertools.count(1)
    tracemalloc.start()
    counts = JobCounts()
    counts.update(texts[0], START + 600)
    held, _ = tracemalloc.get_traced_memory()
    for poll in range(1, 13):
        assert len(counts.update(texts[poll % len(texts)], START + 600 + poll).jobs) == jobs // 20
    grown = tracemalloc.get_traced_memory()[0] / held
    tracemalloc.stop()

    def floor() -> None:
        texts[state["poll"]].count(b"\n")

    def ours() -> None:
        state["poll"] = (state["poll"] + 1) % len(texts)
        assert len(counts.update(texts[state["poll"]], START + 612 + next(polls)).jobs) == jobs // 20

    pair = paired(floor, ours, 5 if quick else 20)
    memory = f"holds {held / jobs:.0f} B per job, {grown:.2f} times that after 12 polls"
    note = f"{len(texts[0]) / 1e6:.1f} MB of text; floor: lines counted; {memory}"
    yield timed(f"job_stats of {jobs} jobs, 5 % changed", "ms", 1e3, pair, "100 ms", note)
    yield from jobtable.rows(directory, quick=quick)


def text_of(jobs: int, poll: int) -> bytes:
    """Return the text of a target on which one job of twenty did something since the poll before."""
    made = []
    for job in range(jobs):
        more = poll if job % 20 == 0 else 0
        counts = dict.fromkeys(OPERATIONS, (7 + more, 10**12 + job + more))
        made.append((b"%d:1000:nid%05d" % (job, job), counts, (START + 600 + more) * SECOND, START * SECOND))
    return jobstats_text.target(made)
