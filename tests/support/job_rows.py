"""What the rows of jobs add up to."""

from collections import Counter, defaultdict

import numpy as np

from tokiod.jobs.activity import activity
from tokiod.jobs.rows import JobRows
from tokiod.jobs.table_file import FIXED


def joined(tables):
    """Return rows of the table as reading them returns them, without a file."""
    parts = [dict(zip(table.columns, table.values, strict=True)) for table in tables]
    names = dict.fromkeys(name for part in parts for name in part)
    length = [len(part["time"]) for part in parts]
    whole = {name: np.concatenate([part.get(name, np.zeros(n, np.int64)) for part, n in zip(parts, length, strict=True)]) for name in names}
    jobs, job = np.unique(whole.pop("job"), return_inverse=True)
    targets, target = np.unique(whole.pop("target"), return_inverse=True)
    order = np.lexsort((whole["time"], target, job))
    whole = {name: values[order] for name, values in whole.items()}
    fixed = {name: whole.pop(name) for name in FIXED}
    return JobRows(jobs, targets, job[order], target[order], fixed, whole)


def totals(found):
    """Return {(target, key of a job): {count: sum}} of all activity in rows, without zeros."""
    done, result = activity(found), defaultdict(Counter)
    for name, counts in done.counts.items():
        for row in np.flatnonzero(counts):
            result[found.targets[found.target[row]].decode(), found.jobs[found.job[row]]][name] += int(counts[row])
    return {key: dict(counts) for key, counts in result.items()}
