"""What the rows of jobs add up to."""

from collections import Counter, defaultdict

import numpy as np

from tokiod.jobs.activity import activity


def totals(found):
    """Return {(target, key of a job): {count: sum}} of all activity in rows, without zeros."""
    done, result = activity(found), defaultdict(Counter)
    for name, counts in done.counts.items():
        for row in np.flatnonzero(counts):
            result[found.targets[found.target[row]].decode(), found.jobs[found.job[row]]][name] += int(counts[row])
    return {key: dict(counts) for key, counts in result.items()}
