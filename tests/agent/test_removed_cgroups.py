"""The parent's own sum, less the sums of present children, is what its removed children used."""

from types import SimpleNamespace

import pytest

from tokiod.agent.job_cgroup import CPU
from tokiod.agent.removed_cgroups import ChildRemoved, RemovedChildren
from tokiod.agent.tree import Tree


def put(root, path, seconds):
    (root / path).mkdir(parents=True, exist_ok=True)
    (root / path / "cpuacct.usage").write_text(f"{seconds * 10**9:.0f}\n")


def grown(children, known):
    children.read(known)
    return children.growth()


def test_the_growth_is_what_children_used_that_are_gone(tmp_path):
    put(tmp_path, "p", 10)
    put(tmp_path, "p/a", 3)
    put(tmp_path, "p/b", 2)
    (tmp_path / "p/link").symlink_to(tmp_path / "p/a")
    children = RemovedChildren(Tree(str(tmp_path)), "p", 1)
    assert (grown(children, {"a", "b"}), children.seconds) == (None, 5.0)
    put(tmp_path, "p", 14)
    put(tmp_path, "p/b", 5)
    assert (grown(children, {"a", "b"}), children.seconds) == (1.0, 6.0)
    (tmp_path / "p/a/cpuacct.usage").unlink()
    (tmp_path / "p/a").rmdir()
    with pytest.raises(ChildRemoved):
        children.read({"a", "b"})
    assert grown(children, {"b"}) == 3.0
    (tmp_path / "p/cpuacct.usage").unlink()
    assert grown(children, {"b"}) is None
    put(tmp_path, "p", 14)
    assert grown(children, {"b"}) is None


@pytest.mark.parametrize(
    ("sums", "own", "attempts"),
    [
        ([0.0, 0.002], 10 - 0.001, 1),
        ([0.0, 1.0, 1.001], 10 - 1.0005, 2),
        ([0.0, 1.0, 1.5, 1.503, 1.603, 1.803], 10 - 1.5015, 5),
        ([0.0, 0.5, 1.5, 2.5, 3.5, 4.5, 4.5], 10 - 0.25, 5),
    ],
)
def test_the_children_are_read_again_until_they_used_little_meanwhile_and_the_best_of_five_readings_counts(tmp_path, sums, own, attempts):
    put(tmp_path, "p", 10)
    children, left, reads = RemovedChildren(Tree(str(tmp_path)), "p", 1), iter(sums), []
    children._of_children = lambda: {"a": next(left)}
    of = children._of
    children._of = lambda directory: (reads.append(directory), of(directory))[1]
    children.read({"a"})
    children.growth()
    assert (children.seconds, reads) == (pytest.approx(own, abs=1e-9), ["p"] * attempts)


def test_a_child_that_comes_or_goes_while_they_are_read_is_waited_for(tmp_path):
    put(tmp_path, "p", 10)
    children, found = RemovedChildren(Tree(str(tmp_path)), "p", 1), iter([{"a": 1.0}, {"a": 1.0, "b": 0.0}])
    children._of_children = lambda: next(found)
    with pytest.raises(ChildRemoved):
        children.read({"a"})


def job(seconds, *, is_exact=False, is_sure=False):
    return SimpleNamespace(last={CPU: seconds}, is_exact=is_exact, is_sure=is_sure)


@pytest.mark.parametrize(
    ("removed", "is_reported", "seconds"),
    [
        ([job(1.0)], True, [(5.0, True)]),
        ([job(7.0)], True, [(7.0, True)]),
        ([job(1.0)], False, [(1.0, False)]),
        ([job(1.0), job(2.0)], True, [(1.0, False), (2.0, False)]),
        ([job(1.0), None], True, [(1.0, False)]),
        ([job(1.5, is_exact=True, is_sure=True), job(1.0)], True, [(1.5, True), (3.5, True)]),
        ([job(1.5, is_exact=True), job(1.0, is_exact=True, is_sure=True)], True, [(4.0, True), (1.0, True)]),
        ([job(1.5, is_exact=True, is_sure=True)], True, [(1.5, True)]),
    ],
)
def test_what_was_used_is_of_the_one_that_was_not_read_after_its_end(tmp_path, removed, is_reported, seconds):
    put(tmp_path, "p", 10)
    children = RemovedChildren(Tree(str(tmp_path)), "p", 1)
    assert not children.knows([])
    grown(children, set())
    put(tmp_path, "p", 17)
    assert [children.knows(some) for some in ([job(2.0, is_sure=True)], [job(3.0, is_sure=True), None], [job(3.0)])] == [True, False, False]
    children.read(set())
    children.divide(removed, is_reported=is_reported)
    assert [(one.last[CPU], one.is_exact) for one in removed if one is not None] == seconds
    # What is known is part of one growth alone.
    assert children._known == 0
