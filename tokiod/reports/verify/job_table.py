"""What a job table should not have: names that the site does not show, and counts that can't be true. Earlier versions stored both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokiod.jobs.groups import shown
from tokiod.jobs.rows import table_files
from tokiod.jobs.table_file import opened, read
from tokiod.window_data import job_parts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokiod.jobs.identity import Users
    from tokiod.jobs.span import Days

MAX_COUNT = 2**62
"""A row has no larger count: docs/format.md."""


class OddDay(msgspec.Struct, frozen=True):
    """A day of a job table. path: its directory; private: job ids with a name that is not shown; implausible: rows with a large count."""

    date: str
    path: str
    private: int
    implausible: int


def odd_days(days: Days, start: int, end: int, users: Users) -> Iterator[OddDay]:
    """Yield the days of a span that have what they should not. users: what the site shows. Raises OSError, NotAJobTable."""
    near = set(days.of(start, end))
    for date, path in days.dates().items():
        found = [_odd(file.path, users) for file in table_files(path) if start < file.end and file.start < end] if path in near else []
        private, implausible = (sum(numbers) for numbers in zip(*found, strict=True)) if found else (0, 0)
        if private or implausible:
            yield OddDay(date.isoformat(), str(path), private, implausible)


def _odd(path: Path, users: Users) -> tuple[int, int]:
    with opened(path) as (file, index):
        keys = index.jobs.tolist()
        private = sum(one != job_parts(key) for one, key in zip(shown(index.jobs, users), keys, strict=True))
        is_large = np.zeros(int(index.first[-1]), bool)
        for name in index.counts:
            is_large |= read(file, f"rows/{name}") >= MAX_COUNT
        return private, int(is_large.sum())
