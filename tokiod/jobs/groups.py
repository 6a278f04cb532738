"""Whose activity it was: keys of jobs to jobs and users, with no more of a person than the site shows.

A job on a hundred nodes has a hundred keys where jobid_name names the node. A process outside of jobs is known by its user and command, and
where these are not shown by the hash of its id.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tokiod.job_columns import is_of_nodes
from tokiod.jobs.identity import USER_DIGITS, without_users
from tokiod.jobs.unknown import sums_at
from tokiod.window_data import job_parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tokiod.jobs.identity import Users
    from tokiod.jobs.span import Series

By = Literal["job", "user", "target"]
_HASH = re.compile(rf"[0-9a-f]{{{USER_DIGITS}}}")


def shown(keys: NDArray[np.bytes_], users: Users) -> list[dict[str, str]]:
    """Return the parts of keys as a site shows them, also where an earlier configuration stored more."""
    if users == "names":
        return [*map(job_parts, keys.tolist())]
    found = [*map(job_parts, without_users(keys.tolist()))]
    if users == "hashed":
        for one, key in zip(found, keys.tolist(), strict=True):
            one |= {name: text for name, text in job_parts(key).items() if name in {"user", "command"} and _HASH.fullmatch(text)}
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """What n groups of series did, sorted by their names.

    names: of each job, user, command and id, "" for what does not distinguish it; nodes, targets: i8[n], how many, 0 nodes where
    job ids name none; compute nodes are both; jobs: i8[n], how many job names; since, until, counts: as in Series; place: i8[series], the
    group of each.
    """

    names: Sequence[tuple[str, str, str, str]]
    nodes: NDArray[np.int64]
    targets: NDArray[np.int64]
    jobs: NDArray[np.int64]
    since: NDArray[np.int64]
    until: NDArray[np.int64]
    counts: Mapping[str, NDArray[np.int64] | NDArray[np.float64]]
    place: NDArray[np.int64]


def grouped(series: Series, by: Literal["job", "user"], users: Users) -> Groups:
    """Return the sums of jobs, or of users."""
    used, key = np.unique(series.job, return_inverse=True)
    parts = shown(series.jobs[used], users)
    labels = [("", one["user"], "", "") if by == "user" else _label(one) for one in parts]
    names = sorted(set(labels))
    number = {label: i for i, label in enumerate(names)}
    of_key = np.array([number[label] for label in labels], np.int64)
    place, n, width = of_key[key], len(names), len(series.targets)
    since, until = np.full(n, np.iinfo(np.int64).max), np.zeros(n, np.int64)
    np.minimum.at(since, place, series.since)
    np.maximum.at(until, place, series.until)
    targets = np.bincount(np.unique(place * width + series.target) // width, minlength=n)
    return Groups(
        names,
        targets if is_of_nodes(series.counts) else _distinct(of_key, [one["node"] for one in parts], n),
        targets,
        _distinct(of_key, [one["job"] for one in parts], n),
        since,
        until,
        {name: sums_at(place, values, n) for name, values in series.counts.items()},
        place,
    )


def _label(parts: dict[str, str]) -> tuple[str, str, str, str]:
    if parts["job"]:
        return parts["job"], parts["user"], "", ""
    if parts["user"] or parts["command"]:
        return "", parts["user"], parts["command"], ""
    return "", "", "", parts["id"]


def _distinct(place: NDArray[np.int64], texts: list[str], n: int) -> NDArray[np.int64]:
    """Return i8[n]: how many different texts, that are not empty, each place has."""
    pairs = {(at, text) for at, text in zip(place.tolist(), texts, strict=True) if text}
    return np.bincount(np.array([at for at, _ in pairs], np.int64), minlength=n)
