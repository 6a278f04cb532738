"""The hierarchies of a node, each once, and what a cgroup is."""

import os

import pytest

from tokiod.agent.hierarchies import FIRST_USER, OF_USER, UNKNOWN, Found, Hierarchy, found_in, hierarchies
from tokiod.agent.tree import Tree

ROOT = "sys/fs/cgroup"


def tree_of(root, *directories, links=(), v2=()):
    for directory in directories:
        (root / directory).mkdir(parents=True)
    for directory in v2:
        (root / directory).mkdir(parents=True, exist_ok=True)
        (root / directory / "cgroup.controllers").touch()
    for link, to in links:
        (root / link).parent.mkdir(parents=True, exist_ok=True)
        (root / link).symlink_to(root / to)
    return Tree(str(root))


def test_v2_alone_is_one_hierarchy(tmp_path):
    assert hierarchies(tree_of(tmp_path, f"{ROOT}/memory.slice", v2=[ROOT])) == ([Hierarchy(2, ROOT)], {})


def test_the_one_with_cpu_time_is_first_and_v1_comes_before_v2(tmp_path):
    tree = tree_of(tmp_path, f"{ROOT}/memory", f"{ROOT}/freezer", f"{ROOT}/cpuacct", f"{ROOT}/perf_event", v2=[f"{ROOT}/unified"])
    assert hierarchies(tree) == (
        [
            Hierarchy(1, f"{ROOT}/cpuacct"), Hierarchy(2, f"{ROOT}/unified"), Hierarchy(1, f"{ROOT}/memory", has_cpu=False),
            Hierarchy(1, f"{ROOT}/freezer", has_cpu=False),
        ],
        {name: f"{ROOT}/{name}" for name in ("cpuacct", "memory", "freezer", "perf_event")},
    )  # fmt: skip
    assert [one.is_v2 for one in hierarchies(tree)[0]] == [False, True, False, False]


def test_controllers_that_are_mounted_together_are_one_hierarchy_under_its_shortest_name(tmp_path):
    together = f"{ROOT}/cpu,cpuacct,memory"
    links = [(f"{ROOT}/cpuacct", together), (f"{ROOT}/memory", together), ("dev/oar_cgroups_links/cpuacct", together)]
    tree = tree_of(tmp_path, together, f"{ROOT}/pids", links=links)
    assert hierarchies(tree) == (
        [Hierarchy(1, f"{ROOT}/cpuacct"), Hierarchy(1, f"{ROOT}/pids", has_cpu=False)],
        {"cpuacct": f"{ROOT}/cpuacct", "memory": f"{ROOT}/memory", "pids": f"{ROOT}/pids"},
    )


@pytest.mark.parametrize("base", ["cgroup", "dev/cgroup", "dev/oar_cgroups_links"])
def test_mounts_of_other_places_are_found_where_the_usual_one_has_none(tmp_path, base):
    tree = tree_of(tmp_path, f"{base}/cpuacct", f"{base}/blkio", f"{ROOT}/blkio")
    (tmp_path / ROOT / "cpuset").touch()
    assert hierarchies(tree)[1] == {"cpuacct": f"{base}/cpuacct", "blkio": f"{ROOT}/blkio"}


def test_a_node_without_cgroups_has_none(tmp_path):
    assert hierarchies(tree_of(tmp_path, ROOT)) == ([], {})


@pytest.mark.parametrize(
    ("path", "owner", "found"),
    [
        ("slurmstepd.scope/job_1", 0, Found(job="slurm:1")),
        ("slurmstepd.scope/job_1", FIRST_USER - 1, Found(job="slurm:1")),
        ("slurmstepd.scope/job_1", FIRST_USER, Found(reason=OF_USER)),
        ("slurmstepd.scope/x", 0, Found(may_have_jobs=True, reason=UNKNOWN)),
        ("slurmstepd.scope/x", FIRST_USER, Found()),
        ("user.slice", 0, Found(may_have_jobs=True)),
        ("user.slice", FIRST_USER, Found()),
        ("htcondor/x_slot1@n", FIRST_USER, Found(job="htcondor:slot1")),
    ],
)
def test_a_cgroup_is_a_job_a_directory_or_a_users(tmp_path, path, owner, found):
    tree = tree_of(tmp_path, path)
    try:
        os.chown(tmp_path / path, owner, owner)
    except PermissionError:
        pytest.skip("only root gives files to users")
    assert found_in(tree, path) == found


def test_a_cgroup_that_is_gone_is_no_users(tmp_path):
    assert found_in(Tree(str(tmp_path)), "slurmstepd.scope/job_1") == Found(job="slurm:1")
