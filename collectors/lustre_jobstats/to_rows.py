"""Counts of jobs to rows of the job table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.lustre_jobstats.changes import MISSING_EARLY, TWICE, UNSEEN_END
from collectors.lustre_jobstats.job_names import JobNames
from collectors.lustre_jobstats.parse import IMPLAUSIBLE, MALFORMED, NO_TARGET, shown
from tokiod.dropped import Dropped, shape
from tokiod.window_data import ENDED_REMOVED, JOB_COLUMNS, JOB_LOOKBACK_SECONDS, JOB_TABLE, TableRows, job_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from collectors.lustre_jobstats.changes import Changes
    from tokiod.collector import Site


UNKNOWN_ID = "job id that matches no format"
OTHER_FILESYSTEM = "target of another file system"
SAME_TIME = "target with two outputs of one time"
TOO_EARLY = "output whose time is before operations that it counts"
TWO_SERVERS = "target that two servers list"
CUT_ID = "job id of 31 bytes, whose last part Lustre cut"
REMEDIES = {
    UNKNOWN_ID: "set jobid_name (--jobid-name) as `lctl get_param jobid_var jobid_name` prints it on clients",
    OTHER_FILESYSTEM: "a source with another filesystem collects it",
    CUT_ID: "make ids shorter by jobid_name on clients",
    IMPLAUSIBLE: "`lctl set_param *.*.job_stats=clear` on its server begins all counts again",
    MALFORMED: "save whole outputs of `lctl get_param`, with all lines of each job",
    NO_TARGET: "save whole outputs of `lctl get_param`, with the two lines that begin each target",
    TWO_SERVERS: "of outputs of several times, each needs a line BEGIN EPOCH_SECONDS before it",
    TOO_EARLY: "set its time: --time, or a line BEGIN EPOCH_SECONDS before it",
    TWICE: "the first one counts: a target lists each job once, so look there",
    UNSEEN_END: "set window, or the time between saved outputs, below job_cleanup_interval",
    MISSING_EARLY: "its target restarted, or `job_stats=clear` or job_cleanup_interval was set there",
    SAME_TIME: "each output needs a line BEGIN EPOCH_SECONDS before it, or a file of its own",
}

OF_TARGETS = {OTHER_FILESYSTEM, SAME_TIME, TOO_EARLY, TWO_SERVERS}
"""Reasons whose examples are names of targets."""


@dataclass(frozen=True, slots=True)
class TargetCounts:
    """What changed on a target. time: epoch seconds of the poll; answered: whether the target's server did."""

    target: str
    time: int
    changes: Changes
    answered: bool = True


class JobKeys:
    """What identifies each job id in the table: what its format names, and the id itself, printable. site: decides what examples show."""

    def __init__(self, formats: Sequence[str], site: Site | None = None) -> None:
        self._names = JobNames(formats)
        self._site = site
        self.of = lru_cache(maxsize=1 << 14)(self._of)

    def _of(self, identity: bytes) -> bytes:
        name = self._names.of(identity)
        # A text that may be a job stands in both places (tokiod.jobs.identity).
        command = name.command or (name.may_be_job if name.job else None)
        return job_key(name.may_be_job or name.job, name.user, command, name.node, shown(identity))

    def dropped(self, found: Sequence[TargetCounts]) -> Dropped:
        """Return what was not used of all targets, and the job ids of a window that could not be read whole, with examples and remedies."""
        dropped = Dropped()
        for one in found:
            self.note(dropped, one.changes.dropped, one.changes.examples)
        for job in dict.fromkeys(job for one in found for job in one.changes.jobs):
            name = self._names.of(job)
            if name.is_cut or not name.is_known:
                self._add(dropped, CUT_ID if name.is_cut else UNKNOWN_ID, 1, job or b'""')
        return dropped

    def note(self, dropped: Dropped, counts: Mapping[str, int], examples: Mapping[str, bytes]) -> None:
        """Add counts by reason with their examples, as the site may show them, and remedies."""
        for reason, count in counts.items():
            self._add(dropped, reason, count, examples.get(reason, b""))

    def _add(self, dropped: Dropped, reason: str, count: int, example: bytes) -> None:
        shows_users = reason in OF_TARGETS or (self._site is not None and self._site.shows_users)
        dropped.add(reason, count, example if shows_users else shape(example), REMEDIES.get(reason, ""))


def rows(found: Sequence[TargetCounts], keys: JobKeys, start: int) -> TableRows:
    """Return the rows of all targets; a count that a target does not have is 0.

    start: of the window, epoch seconds; summaries of removed jobs are not before it. Counts at the poll before are: readers look for them
    no farther before their window than JOB_LOOKBACK_SECONDS.
    """
    polled = tuple(sorted({one.target.encode() for one in found if one.answered}))
    found = [one for one in found if one.changes.jobs]
    lengths = [len(one.changes.jobs) for one in found]
    time, ended = (_joined([getattr(one.changes, name) for one in found], np.int64) for name in ("time", "ended"))
    fixed = (
        np.maximum(time, np.where(ended == ENDED_REMOVED, start, start - JOB_LOOKBACK_SECONDS)),
        _text([one.target.encode() for one in found]).repeat(lengths),
        _text([keys.of(job) for one in found for job in one.changes.jobs]),
        _joined([one.changes.start for one in found], np.int64),
        _joined([one.changes.snapshot for one in found], np.int64),
        ended,
    )
    names = dict.fromkeys(name for one in found for name in one.changes.operations)
    counts = {f"{name}.{part}": _count(found, name, part) for name in names for part in ("samples", "sum")}
    kept = {name: values for name, values in counts.items() if name.endswith(".samples") or values.any()}
    return TableRows(JOB_TABLE, (*JOB_COLUMNS, *kept), (*fixed, *kept.values()), polled)


def _count(found: Sequence[TargetCounts], name: str, part: str) -> NDArray[np.int64]:
    def of(changes: Changes) -> NDArray[np.int64]:
        if name not in changes.operations:
            return np.zeros(len(changes.jobs), np.int64)
        values: NDArray[np.int64] = (changes.samples if part == "samples" else changes.sums)[:, changes.operations.index(name)]
        return values

    return _joined([of(one.changes) for one in found], np.int64)


def _joined(parts: list[Any], dtype: Any) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *parts])


def _text(texts: list[bytes]) -> NDArray[np.bytes_]:
    return np.array(texts or [b""], "S")[: len(texts)]
