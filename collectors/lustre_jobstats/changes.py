"""Which jobs of one target changed between two polls, with their counts.

A block of an idle job does not change by a byte, so a block that is what it was is not parsed. What is kept of each job is the hash of its
block and its last counts, not the block: some 700 bytes instead of 2 KB.

Counts are passed on as the target has them, and the job table finds what was done by their differences: so a lost poll, and a restart of
this process, takes nothing with it. They begin again at zero where Lustre removed a job (idle for longer than job_cleanup_interval), when
the target restarts, and when an administrator clears job_stats.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collectors.lustre_jobstats.parse import (
    FIELDS,
    MALFORMED,
    MAX_ID_BYTES,
    SAMPLES_OF,
    TOO_LONG,
    Counts,
    Operations,
    blocks,
    job_id,
    parse,
    raw_id,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

MISSING_EARLY = "job that left before job_cleanup_interval"
TWICE = "job that is listed twice"
RESTARTED = "job whose counts began again before its removal was seen"
SAMPLES, SUM = FIELDS.index("samples"), FIELDS.index("sum")
_BILLION = 10**9


class _Last(NamedTuple):
    """What a job's block was. block: its hash; start, snapshot: as in Counts; counts: samples and sums of its operations, as i8."""

    block: int
    snapshot: int
    start: int
    counts: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """The counts of n jobs of a target that changed since the poll before; at the first poll of all jobs.

    jobs: their ids; operations: names; samples, sums: i8[n, operations], how often each happened since `start` and the bytes or
    microseconds of it; snapshot, start: i8[n] UTC epoch nanoseconds of a job's last operation and of its first one (-1 before Lustre 2.14).
    ended: bool[n], Lustre removed the job, and these are the last counts that were seen. listed: how many jobs the text has. dropped: what
    was not used, by reason.
    """

    jobs: tuple[bytes, ...]
    operations: tuple[str, ...]
    samples: NDArray[np.int64]
    sums: NDArray[np.int64]
    snapshot: NDArray[np.int64]
    start: NDArray[np.int64]
    ended: NDArray[np.bool_]
    listed: int
    dropped: Counter[str]


class JobCounts:
    """The jobs of one target, poll by poll.

    cleanup_interval: seconds after which the target removes an idle job; may be set at any time. The hash is Python's own, whose key
    differs in each process, so two blocks with one hash cannot be planned.
    """

    def __init__(self, cleanup_interval: int = 600) -> None:
        self.cleanup_interval = cleanup_interval
        self._operations = Operations()
        self._last: dict[bytes, _Last] = {}
        self._ended: dict[bytes, _Last] = {}

    def __len__(self) -> int:
        return len(self._last)

    def update(self, text: bytes) -> Changes:
        """Return what changed since the last call, from a target's whole output.

        A text that was cut must not be given: jobs after the cut seem to have left.
        """
        dropped: Counter[str] = Counter()
        found = blocks(text)
        changed, keys = self._changed(text, found, dropped)
        # Lustre prints every operation of every job, so a last block with fewer of them was cut, and the next poll will see it whole.
        if len(found) > 1 and text.count(SAMPLES_OF, *found[-1]) < text.count(SAMPLES_OF, *found[0]):
            dropped[MALFORMED] += changed.pop(len(found) - 1, None) is not None
        counts = parse(text, [found[place] for place in changed], self._operations, dropped)
        those = list(changed.values())
        jobs, hashes = zip(*[those[row] for row in counts.places.tolist()], strict=True) if len(counts.places) else ((), ())
        self._note(jobs, hashes, counts, dropped)
        removed = self._removed(keys, dropped)
        self._ended |= removed
        return self._joined(jobs, counts, list(removed.items()), np.ones(len(removed), bool), len(keys), dropped)

    def rows(self, jobs: Sequence[bytes], without: frozenset[tuple[bytes, bool]] = frozenset()) -> Changes:
        """Return the last counts of jobs again; of one that ended and returned, both. without: ids, and whether they ended."""
        held = [(job, last, ended) for ended, of in ((True, self._ended), (False, self._last)) for job in jobs if (last := of.get(job))]
        held = [one for one in held if (one[0], one[2]) not in without]
        ended = np.array([one[2] for one in held], bool)
        return self._joined((), None, [(job, last) for job, last, _ in held], ended, 0, Counter())

    def forget_ended(self, jobs: Iterable[bytes]) -> None:
        """Forget the last counts of jobs that ended: they are stored."""
        for job in jobs:
            self._ended.pop(job, None)

    def _changed(self, text: bytes, found: list[tuple[int, int]], dropped: Counter[str]) -> tuple[dict[int, tuple[bytes, int]], set[bytes]]:
        """Return the place of each changed block with its job id and hash, and the ids of all blocks."""
        changed: dict[int, tuple[bytes, int]] = {}
        keys: set[bytes] = set()
        whole = memoryview(text)
        for place, (start, end) in enumerate(found):
            raw = raw_id(text, start, end)
            if len(raw) > MAX_ID_BYTES:
                dropped[TOO_LONG] += 1
                continue
            job = job_id(raw)
            if job in keys:
                dropped[TWICE] += 1
                continue
            keys.add(job)
            block_hash = hash(whole[start:end])
            last = self._last.get(job)
            if last is None or last.block != block_hash:
                changed[place] = job, block_hash
        return changed, keys

    def _note(self, jobs: Sequence[bytes], hashes: Sequence[int], counts: Counts, dropped: Counter[str]) -> None:
        kept = counts.values[:, :, (SAMPLES, SUM)]
        for row, last in enumerate(zip(hashes, counts.snapshot.tolist(), counts.start.tolist(), strict=True)):
            before = self._last.get(jobs[row])
            # What was done between the poll before and that is unknown.
            dropped[RESTARTED] += before is not None and last[2] > before.start >= 0
            self._last[jobs[row]] = _Last(*last, kept[row].tobytes())
        if not dropped[RESTARTED]:
            del dropped[RESTARTED]

    def _removed(self, keys: set[bytes], dropped: Counter[str]) -> dict[bytes, _Last]:
        """Forget jobs that the text lacks, where they were idle for long enough. Others are kept: they may only be missing in this text."""
        newest = max((one.snapshot for one in self._last.values()), default=0)
        latest = newest - self.cleanup_interval * _BILLION
        absent = self._last.keys() - keys
        if early := sum(self._last[job].snapshot > latest for job in absent):
            dropped[MISSING_EARLY] += early
        return {job: self._last.pop(job) for job in sorted(absent) if self._last[job].snapshot <= latest}

    def _joined(  # noqa: PLR0913, PLR0917 - the parts of the result
        self,
        jobs: Sequence[bytes],
        counts: Counts | None,
        others: Sequence[tuple[bytes, _Last]],
        ended: NDArray[np.bool_],
        listed: int,
        dropped: Counter[str],
    ) -> Changes:
        """Return parsed counts, followed by the last ones of other jobs."""
        names = tuple(self._operations.names)
        width = len(names) * 2 * np.dtype(np.int64).itemsize
        # Counts of a time with fewer operations are zero for the others.
        last = np.frombuffer(b"".join(one.counts.ljust(width, b"\0") for _, one in others), np.int64).reshape(len(others), len(names), 2)
        times = np.array([(one.snapshot, one.start) for _, one in others], np.int64).reshape(-1, 2)
        if counts is None:
            return Changes(
                tuple(job for job, _ in others), names, last[:, :, 0], last[:, :, 1], times[:, 0], times[:, 1], ended, listed, dropped
            )
        values = np.concatenate([counts.values[:, :, (SAMPLES, SUM)], last])
        return Changes(
            (*jobs, *(job for job, _ in others)),
            names,
            values[:, :, 0],
            values[:, :, 1],
            np.concatenate([counts.snapshot, times[:, 0]]),
            np.concatenate([counts.start, times[:, 1]]),
            np.concatenate([np.zeros(len(jobs), bool), ended]),
            listed,
            dropped,
        )
