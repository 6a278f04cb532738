"""Which jobs of one target changed between two polls, with their counts.

A block of an idle job does not change by a byte, so a block that is what it was is not parsed. What is kept of each job is the hash of its
block and its last counts, not the block: some 700 bytes instead of 2 KB.

Counts are passed on as the target has them, and the job table finds what was done by their differences: so a lost poll, and a restart of
this process, takes nothing with it. They begin again at zero where Lustre removed a job (idle for longer than job_cleanup_interval), when
the target restarts, and when an administrator clears job_stats.

A job that ended has a summary row, its whole counts, once the target removed it or it was idle for job_cleanup_interval: an idle target
removes no job. A target removes only jobs that were idle for so long, so what a job did is known whole as long as polls are not further
apart than that. Where they are, what it did after the last one is missing, and the job is counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collectors.lustre_jobstats.parse import (
    EXAMPLE_BYTES,
    MALFORMED,
    MAX_ID_BYTES,
    SAMPLES,
    SUM,
    TOO_LONG,
    Counts,
    Operations,
    blocks,
    job_id,
    line_count,
    parse,
    raw_id,
)
from tokiod.window_data import ENDED_IDLE, ENDED_REMOVED, JOB_LOOKBACK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

MISSING_EARLY = "job that left before job_cleanup_interval"
UNSEEN_END = "removed job whose last operations may be missing: polls were further apart than job_cleanup_interval"
TWICE = "job that is listed twice"
RESTARTED = "job whose counts began again before its removal was seen"
IDLE_SECONDS = 600
"""After which a job is idle on a target that never removes one."""
BASELINE_SECONDS = JOB_LOOKBACK_SECONDS // 2
"""The age of a job's last row at which the next one comes with the counts before it. The other half is for polls that are lost."""
_BILLION = 10**9


_BEGINS = {b"", b"job_stats:", b"job_stats:\n- job_id:", b"job_stats:\r\n- job_id:"}
"""What is before the first block of a target."""


class _Last(NamedTuple):
    """What a job's block was.

    block: its hash; lines: how many operations it has; start, snapshot: as in Counts; counts: samples and sums of its operations, as i8.
    time: epoch seconds of its last row; ended: 0, or ENDED_IDLE where a summary was returned.
    """

    block: int
    lines: int
    snapshot: int
    start: int
    counts: bytes
    time: int
    ended: int = 0


class _Lost:
    """What of a text is not used: counts by reason, and the first example of each, as it was read."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, bytes] = {}

    def add(self, reason: str, example: bytes) -> None:
        self.counts[reason] += 1
        self.examples.setdefault(reason, example)


class _Row(NamedTuple):
    job: bytes
    time: int
    ended: int
    last: _Last


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """Rows of n jobs of a target that changed since the poll before, at the first poll of all jobs, and of jobs that ended.

    jobs: their ids; operations: names; samples, sums: i8[n, operations], how often each happened since `start` and the bytes or
    microseconds of it; snapshot, start: i8[n] UTC epoch nanoseconds of a job's last operation and of its first one (-1 before Lustre 2.14).
    time: i8[n] epoch seconds at which these were the counts; ended: i8[n], as in JOB_COLUMNS. listed: how many jobs the text has. dropped:
    what was not used, by reason; examples: of some reasons, as they were read.
    """

    jobs: tuple[bytes, ...]
    operations: tuple[str, ...]
    samples: NDArray[np.int64]
    sums: NDArray[np.int64]
    snapshot: NDArray[np.int64]
    start: NDArray[np.int64]
    time: NDArray[np.int64]
    ended: NDArray[np.int64]
    listed: int
    dropped: Counter[str]
    examples: Mapping[str, bytes] = field(default_factory=dict)


class JobCounts:
    """The jobs of one target, poll by poll.

    cleanup_interval: seconds after which the target removes an idle job, 0 for never; may be set at any time. The hash is Python's own,
    whose key differs in each process, so two blocks with one hash cannot be planned.
    """

    def __init__(self, cleanup_interval: int = 600) -> None:
        self.cleanup_interval = cleanup_interval
        self._operations = Operations()
        self._last: dict[bytes, _Last] = {}
        self._polled: int | None = None
        self._absent: frozenset[bytes] = frozenset()
        # What the poll before listed without readable counts; None where it may have listed others.
        self._unread: frozenset[bytes] | None = None
        # Rows beside those of a job's present counts, until they are stored.
        self._others: dict[bytes, list[_Row]] = {}

    def __len__(self) -> int:
        return len(self._last)

    @property
    def polled(self) -> int:
        """The time of the last update in epoch seconds, 0 before the first one."""
        return self._polled or 0

    def update(self, text: bytes, time: int) -> Changes:
        """Return what changed since the last call, from a target's whole output at a time in epoch seconds, later than the one before.

        A text that was cut must not be given: jobs after the cut seem to have left.
        """
        lost = _Lost()
        found = blocks(text)
        changed, keys, lines = self._changed(text, found, lost)
        for place in _cut(lines):
            if changed.pop(place, None) is not None:
                lost.add(MALFORMED, _beginning(text, *found[place]))
        if (head := text[: found[0][0] if found else len(text)].strip()) not in _BEGINS:
            lost.add(MALFORMED, head[:EXAMPLE_BYTES])
        counts = parse(text, [found[place] for place in changed], self._operations, lost.counts)
        those = list(changed.values())
        those = [those[row] for row in counts.places.tolist()]
        jobs = [job for job, *_ in those]
        others = [*self._note(those, counts, time, lost), *self._removed(keys, time, lost)]
        for row in others:
            self._others.setdefault(row.job, []).append(row)
        others += self._idle(keys, time)
        self._polled = time
        self._unread = None if lost.counts[MALFORMED] else frozenset(keys - self._last.keys())
        return replace(self._joined(jobs, counts, others, time, len(keys), lost.counts), examples={**counts.examples, **lost.examples})

    def rows(self, jobs: Iterable[bytes], time: int, without: Iterable[tuple[bytes, int]] = ()) -> Changes:
        """Return all rows of jobs that may not be stored again. time: of those of their present counts; without: ids and times."""
        held = [row for job in jobs for row in (*self._others.get(job, ()), *self._present(job, time))]
        known = set(without)
        return self._joined((), None, [row for row in held if (row.job, row.time) not in known], time, 0, Counter())

    def forget(self, jobs: Iterable[bytes]) -> None:
        """Forget the rows of jobs that are stored, beside their present counts."""
        for job in jobs:
            self._others.pop(job, None)

    def _present(self, job: bytes, time: int) -> Iterator[_Row]:
        if last := self._last.get(job):
            yield _Row(job, time, last.ended, last)

    def _changed(
        self, text: bytes, found: list[tuple[int, int]], lost: _Lost
    ) -> tuple[dict[int, tuple[bytes, int, int]], set[bytes], list[int]]:
        """Return the place of each changed block with its job id, hash and lines, the ids of all blocks, and how many lines each has."""
        changed: dict[int, tuple[bytes, int, int]] = {}
        keys: set[bytes] = set()
        lines: list[int] = []
        whole = memoryview(text)
        for place, (start, end) in enumerate(found):
            raw = raw_id(text, start, end)
            if len(raw) > MAX_ID_BYTES:
                lost.add(TOO_LONG, raw.strip()[:EXAMPLE_BYTES])
                lines.append(line_count(text, start, end))
                continue
            job = job_id(raw)
            if job in keys:
                lost.add(TWICE, job or b'""')
                lines.append(line_count(text, start, end))
                continue
            keys.add(job)
            block_hash = hash(whole[start:end])
            last = self._last.get(job)
            if last is None or last.block != block_hash:
                lines.append(line_count(text, start, end))
                changed[place] = job, block_hash, lines[-1]
            else:
                lines.append(last.lines)
        return changed, keys, lines

    def _note(self, changed: Sequence[tuple[bytes, int, int]], counts: Counts, time: int, lost: _Lost) -> Iterator[_Row]:
        """Keep the counts of jobs that changed; yield those before, where the job's last row is so old that readers don't look for it.

        And where the counts began again: the window that had them may not be stored, and no later row covers them. And zeros of a job that
        the poll before did not list, where no start_time says that it did nothing until then.
        """
        kept = counts.values[:, :, (SAMPLES, SUM)]
        times = counts.snapshot.tolist(), counts.start.tolist()
        for (job, block, lines), snapshot, start, values in zip(changed, *times, kept, strict=True):
            before = self._last.get(job)
            self._last[job] = _Last(block, lines, snapshot, start, values.tobytes(), time)
            if self._polled is None:
                continue
            if before is None:
                if start < 0 and self._unread is not None and job not in self._unread:
                    nothing = _Last(block, lines, min(snapshot, self._polled * _BILLION), start, bytes(values.nbytes), self._polled)
                    yield _Row(job, self._polled, 0, nothing)
                continue
            # What was done between the poll before and that is unknown.
            if start > before.start >= 0:
                lost.add(RESTARTED, job)
            if start != before.start and not before.ended:
                yield _Row(job, time - 1, ENDED_REMOVED, before)
            elif time - before.time > BASELINE_SECONDS:
                yield _Row(job, self._polled, 0, before)

    def _removed(self, keys: set[bytes], time: int, lost: _Lost) -> Iterator[_Row]:
        """Forget jobs that the text lacks, where they were idle for long enough. Others are kept: they may only be missing in this text.

        Yield their summaries. Without start_time, it is also what shows that counts begin again, so it is yielded again.
        """
        newest = max((one.snapshot for one in self._last.values()), default=0)
        latest = newest - self.cleanup_interval * _BILLION
        absent = self._last.keys() - keys
        early = frozenset(job for job in absent if self._last[job].snapshot > latest)
        for job in sorted(early - self._absent):
            lost.add(MISSING_EARLY, job)
        self._absent = early
        is_late = self._polled is not None and time - self._polled > self.cleanup_interval
        for job in sorted(absent - early):
            last = self._last.pop(job)
            if is_late:
                lost.add(UNSEEN_END, job)
            if not last.ended or last.start < 0:
                # Before the counts of a job that has returned already.
                yield _Row(job, time - 1, ENDED_REMOVED, last)

    def _idle(self, keys: set[bytes], time: int) -> Iterator[_Row]:
        """Yield a summary of each job that the target still lists although it is idle for longer than job_cleanup_interval."""
        latest = (time - (self.cleanup_interval or IDLE_SECONDS)) * _BILLION
        ended = [job for job, last in self._last.items() if last.snapshot < latest and not last.ended and last.time < time and job in keys]
        for job in ended:
            last = self._last[job] = self._last[job]._replace(time=time, ended=ENDED_IDLE)
            yield _Row(job, time, ENDED_IDLE, last)

    def _joined(  # noqa: PLR0913, PLR0917 - the parts of the result
        self, jobs: Sequence[bytes], counts: Counts | None, others: Sequence[_Row], time: int, listed: int, dropped: Counter[str]
    ) -> Changes:
        """Return parsed counts of a poll, followed by other rows."""
        names = tuple(self._operations.names)
        width = len(names) * 2 * np.dtype(np.int64).itemsize
        # Counts of a time with fewer operations are zero for the others.
        last = np.frombuffer(b"".join(one.last.counts.ljust(width, b"\0") for one in others), np.int64).reshape(len(others), len(names), 2)
        fixed = np.array([(one.last.snapshot, one.last.start, one.time, one.ended) for one in others], np.int64).reshape(-1, 4)
        if counts is not None:
            n = len(jobs)
            last = np.concatenate([counts.values[:, :, (SAMPLES, SUM)], last])
            present = np.stack([counts.snapshot, counts.start, np.full(n, time), np.zeros(n, np.int64)], axis=1)
            fixed = np.concatenate([present, fixed])
        ids = (*jobs, *(one.job for one in others))
        snapshot, start, times, ended = fixed.T
        return Changes(ids, names, last[:, :, 0], last[:, :, 1], snapshot, start, times, ended, listed, dropped)


def _beginning(text: bytes, start: int, end: int) -> bytes:
    return text[start : min(end, start + EXAMPLE_BYTES)].strip()


def _cut(lines: Sequence[int]) -> list[int]:
    """Return which blocks lost lines: Lustre prints every operation of every job of a target, and the next poll will see them whole."""
    if len(set(lines)) <= 1:
        return []
    usual = max(Counter(lines).items(), key=lambda one: one[::-1])[0]
    return [place for place, count in enumerate(lines) if count < usual]
