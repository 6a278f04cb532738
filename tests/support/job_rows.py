"""Rows of the job table: some to store, and what those that are read add up to."""

import datetime as dt
from collections import Counter, defaultdict

import numpy as np

from tokiod.jobs.activity import activity, by_lives
from tokiod.jobs.rows import JobRows
from tokiod.jobs.table_file import FIXED
from tokiod.window import Window
from tokiod.window_data import JOB_COLUMNS, JOB_TABLE, Collected, TableRows, WindowMeta, job_key

DAY = 1_723_075_200
DATE = dt.date(2024, 8, 8)


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
    found = by_lives(found)
    done, result = activity(found), defaultdict(Counter)
    for name, counts in done.counts.items():
        for row in np.flatnonzero(counts):
            result[found.targets[found.target[row]].decode(), found.jobs[found.job[row]]][name] += int(counts[row])
    return {key: dict(counts) for key, counts in result.items()}


def rows(time, jobs, **counts):
    """Return rows of jobs on two targets at one time; each count is what the job has, times its number."""
    n = 2 * len(jobs)
    keys = np.array([job_key(job, "1000", None, "n1") for job in jobs for _ in range(2)] or [b""], "S")[:n]
    numbers = np.arange(n) // 2 + 1
    fixed = (np.full(n, time), np.array([b"fs-OST0000", b"fs-OST0001"] * len(jobs) or [b""], "S")[:n], keys)
    ends = (np.full(n, DAY * 10**9), np.full(n, time * 10**9), np.zeros(n, int))
    return TableRows(JOB_TABLE, (*JOB_COLUMNS, *counts), (*fixed, *ends, *(numbers * count for count in counts.values())))


def collected(number, table, source="jobs", system="fs"):
    window = Window(DAY + 60 * number, DAY + 60 * number + 60)
    return Collected(WindowMeta(source, "lustre_jobstats", system, window), (), [table])
