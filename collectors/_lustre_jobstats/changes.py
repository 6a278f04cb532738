"""What each job of one target did between two polls.

A block of an idle job does not change by a byte, so a block that is what it was is not parsed. What is kept of each job is the hash of its
block and its last counts, not the block: some 700 bytes instead of 2 KB.

A job's counts begin at zero where it is new, after Lustre removed it (idle for longer than job_cleanup_interval), and when the target
restarts or an administrator clears job_stats. start_time tells where a version prints it; else a count that fell.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collectors._lustre_jobstats.parse import (
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
    from collections.abc import Sequence

    from numpy.typing import NDArray

MISSING_EARLY = "job that left before job_cleanup_interval"
TWICE = "job that is listed twice"
MISSED = "job whose counts before are unknown"
SAMPLES, SUM = FIELDS.index("samples"), FIELDS.index("sum")
_ITEM = np.dtype(np.int64).itemsize
_BILLION = 10**9


class _Last(NamedTuple):
    """What a job's block was. block: its hash; start, snapshot: as in Counts; counts: samples and sums of its operations, as i8."""

    block: int
    snapshot: int
    start: int
    counts: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """The activity of n jobs of a target since the poll before.

    jobs: their ids; operations: names; samples, sums: i8[n, operations], how often each happened and the bytes or microseconds of it;
    snapshot: i8[n] UTC epoch nanoseconds of a job's last operation. restarted: bool[n], the counts began again, so what was done between
    the last poll and that is unknown. vanished: ids that Lustre removed. listed: how many jobs the text has. dropped: what was not used,
    by reason.
    """

    jobs: tuple[bytes, ...]
    operations: tuple[str, ...]
    samples: NDArray[np.int64]
    sums: NDArray[np.int64]
    snapshot: NDArray[np.int64]
    restarted: NDArray[np.bool_]
    vanished: tuple[bytes, ...]
    listed: int
    dropped: Counter[str]


class JobCounts:
    """The jobs of one target, poll by poll.

    cleanup_interval: seconds after which the target removes an idle job. The hash is Python's own, whose key differs in each process,
    so two blocks with one hash cannot be planned.
    """

    def __init__(self, cleanup_interval: int = 600) -> None:
        self._cleanup = cleanup_interval * _BILLION
        self._operations = Operations()
        self._last: dict[bytes, _Last] = {}
        self._is_first = True
        self._newest = 0

    def __len__(self) -> int:
        return len(self._last)

    def update(self, text: bytes) -> Changes:
        """Return what changed since the last call, from a target's whole output. The first call only learns where counts stand.

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
        result = self._since(jobs, counts, dropped)
        kept = counts.values[:, :, (SAMPLES, SUM)]
        for row, last in enumerate(zip(hashes, counts.snapshot.tolist(), counts.start.tolist(), strict=True)):
            self._last[jobs[row]] = _Last(*last, kept[row].tobytes())
        vanished = self._vanished(keys, dropped)
        self._is_first = False
        used = result.is_used
        return Changes(
            tuple(jobs[row] for row in used.nonzero()[0].tolist()),
            counts.operations,
            result.samples[used],
            result.sums[used],
            counts.snapshot[used],
            result.restarted[used],
            vanished,
            len(keys),
            dropped,
        )

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

    def _since(self, jobs: Sequence[bytes], counts: Counts, dropped: Counter[str]) -> _Difference:
        """Return the differences to the last counts of jobs, which are zero for new ones."""
        now = counts.values[:, :, (SAMPLES, SUM)]
        last = [self._last.get(job) for job in jobs]
        width = now.shape[1] * 2 * _ITEM
        # Counts of a time with fewer operations are zero for the others.
        before = np.frombuffer(b"".join((one.counts if one else b"").ljust(width, b"\0") for one in last), np.int64).reshape(now.shape)
        is_known = np.array([one is not None for one in last], bool)
        start = np.array([one.start if one else -1 for one in last], np.int64)
        restarted = is_known & ((counts.start > start) | (now < before).any((1, 2)))
        difference = np.where(restarted[:, np.newaxis, np.newaxis], now, now - before)
        # A job that is new began after the last operation that the poll before saw. Another one was missing in that text.
        was_missed = ~is_known & (counts.start >= 0) & (counts.start <= self._newest)
        if was_missed.any() and not self._is_first:
            dropped[MISSED] += int(was_missed.sum())
        is_used = difference.any((1, 2)) & ~was_missed & (not self._is_first)
        return _Difference(difference[:, :, 0], difference[:, :, 1], restarted, is_used)

    def _vanished(self, keys: set[bytes], dropped: Counter[str]) -> tuple[bytes, ...]:
        """Forget jobs that the text lacks, where they were idle for long enough. Others are kept: they may only be missing in this text."""
        self._newest = newest = max((one.snapshot for one in self._last.values()), default=0)
        absent = self._last.keys() - keys
        early = sum(self._last[job].snapshot + self._cleanup > newest for job in absent)
        if early:
            dropped[MISSING_EARLY] += early
        gone = [job for job in absent if self._last[job].snapshot + self._cleanup <= newest]
        for job in gone:
            del self._last[job]
        return tuple(sorted(gone))


@dataclass(frozen=True, slots=True, eq=False)
class _Difference:
    samples: NDArray[np.int64]
    sums: NDArray[np.int64]
    restarted: NDArray[np.bool_]
    is_used: NDArray[np.bool_]
