"""Groups of jobs and users have no more of a person than the site shows, and add up what their keys did."""

import numpy as np
import pytest

from tokiod.job_columns import UNKNOWN
from tokiod.jobs.groups import grouped, shown
from tokiod.jobs.span import Series
from tokiod.window_data import job_key, job_parts

HASH, OTHER, IDS = "0123456789abcdef", "fedcba9876543210", ("aa0000000000", "bb0000000000")
KEYS = np.array([
    job_key("4711", "alice", None, "n1", IDS[0]),
    job_key("", "alice", "bash", None, IDS[1]),
    job_key("", HASH, OTHER, None, "cc0000000000"),
    job_key("4711", "alice", None, "n2", "dd0000000000"),
], "S")  # fmt: skip


def test_names_are_shown_as_they_are_stored():
    assert shown(KEYS, "names") == [*map(job_parts, KEYS.tolist())]


@pytest.mark.parametrize("users", ["hashed", "no"])
def test_names_of_days_before_are_shown_to_nobody_and_hashes_where_the_site_has_them(users):
    found = shown(KEYS, users)
    assert not any("alice" in text or text == "bash" for one in found for text in one.values())
    assert [(one["user"], one["command"]) for one in found] == [
        ("", ""),
        ("", ""),
        (HASH, OTHER) if users == "hashed" else ("", ""),
        ("", ""),
    ]
    assert [one["job"] for one in found] == ["4711", "", "", "4711"]


def series(counts):
    job, target = np.array([0, 0, 1, 2, 3]), np.array([0, 1, 1, 0, 1])
    since, until = np.array([50, 40, 30, 20, 10]), np.array([100, 200, 300, 400, 500])
    return Series(KEYS, np.array([b"fs-OST0000", b"fs-OST0001"]), job, target, since, until, counts)


def test_a_group_has_its_keys_sums_times_nodes_and_targets():
    counts = {"open.samples": np.array([1, 2, 4, 8, 16]), "read_bytes.sum": np.array([1, UNKNOWN, UNKNOWN, UNKNOWN, 5])}
    jobs = grouped(series(counts), "job", "names")
    assert list(jobs.names) == [("", HASH, OTHER, ""), ("", "alice", "bash", ""), ("4711", "alice", "", "")]
    assert (jobs.since.tolist(), jobs.until.tolist()) == ([20, 30, 10], [400, 300, 500])
    assert (jobs.nodes.tolist(), jobs.targets.tolist(), jobs.jobs.tolist()) == ([0, 0, 2], [1, 1, 2], [0, 0, 1])
    assert {name: values.tolist() for name, values in jobs.counts.items()} == {"open.samples": [8, 4, 19], "read_bytes.sum": [-1, -1, 6]}
    assert jobs.place.tolist() == [2, 2, 1, 0, 2]
    users = grouped(series(counts), "user", "names")
    assert ([*users.names], users.counts["open.samples"].tolist()) == ([("", HASH, "", ""), ("", "alice", "", "")], [8, 23])
    hidden = grouped(series(counts), "job", "no")
    assert list(hidden.names) == [("", "", "", IDS[1]), ("", "", "", "cc0000000000"), ("4711", "", "", "")]


def test_on_compute_nodes_the_targets_are_the_nodes():
    assert grouped(series({"cpu.sum": np.array([1, 2, 4, 8, 16])}), "job", "names").nodes.tolist() == [1, 1, 2]
