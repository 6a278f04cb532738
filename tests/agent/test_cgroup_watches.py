"""Watches of cgroups, by this machine's inotify: what is made, removed and populated, of what is watched now."""

import pytest

from tokiod.agent import cgroup_watches
from tokiod.agent.cgroup_watches import LOST, MADE, POPULATION, REMOVED, CgroupWatches
from tokiod.agent.hierarchies import Hierarchy
from tokiod.agent.inotify import OVERFLOW
from tokiod.agent.sensor import Readings
from tokiod.agent.tree import Tree

V2 = Hierarchy(2, "cgroup")


@pytest.fixture
def watches(tmp_path):
    (tmp_path / "cgroup/job").mkdir(parents=True)
    (tmp_path / "cgroup/job/cgroup.events").write_text("populated 1\n")
    made = CgroupWatches(Tree(str(tmp_path)))
    made.begin(Readings())
    yield made
    made.close()
    assert made.fileno() is None
    made.close()


def test_a_directory_is_watched_once_until_it_is_left(watches, tmp_path):
    readings = Readings()
    for _ in range(2):
        watches.enter(readings, V2, "cgroup")
    assert [watches.has(one) for one in ("cgroup", "cgroup/job")] == [True, False]
    (tmp_path / "cgroup/a").mkdir()
    (tmp_path / "cgroup/a").rmdir()
    assert list(watches.changes()) == [(MADE, V2, "cgroup/a"), (REMOVED, V2, "cgroup/a")]
    watches.leave("cgroup")
    # At once, also before the kernel reports the end of the watch.
    assert watches._directories == {}
    watches.leave("cgroup")
    (tmp_path / "cgroup/a").mkdir()
    assert (list(watches.changes()), watches.has("cgroup"), watches.is_blind, readings.drops) == ([], False, False, {})
    watches.enter(readings, V2, "cgroup")
    (tmp_path / "cgroup/a").rmdir()
    assert list(watches.changes()) == [(REMOVED, V2, "cgroup/a")]


def test_a_directory_that_is_removed_is_not_watched_any_more(watches, tmp_path):
    readings = Readings()
    (tmp_path / "cgroup/a").mkdir()
    watches.enter(readings, V2, "cgroup/a")
    (tmp_path / "cgroup/a").rmdir()
    assert list(watches.changes()) == []
    assert not watches.has("cgroup/a")
    watches.enter(readings, V2, "cgroup/a")
    assert (watches.has("cgroup/a"), watches.is_blind, readings.drops) == (False, False, {})
    (tmp_path / "cgroup/a").mkdir()
    watches.enter(readings, V2, "cgroup/a")
    assert watches.has("cgroup/a")


def test_the_population_of_a_cgroup_is_reported_of_the_path_that_was_given_until_it_is_unfollowed(watches, tmp_path):
    readings = Readings()
    number = watches.follow(readings, V2, "cgroup/job", "another/path")
    (tmp_path / "cgroup/job/cgroup.events").write_text("")
    changes = list(watches.changes())
    assert set(changes) == {(POPULATION, V2, "another/path")}
    watches.unfollow(number)
    assert watches._populations == {}
    watches.unfollow(None)
    (tmp_path / "cgroup/job/cgroup.events").write_text("x")
    assert list(watches.changes()) == []
    assert watches.follow(readings, V2, "cgroup/none", "x") is None
    assert (readings.drops, watches.is_blind) == ({"vanished": 1}, False)


def test_events_that_the_kernel_dropped_are_a_change_of_no_cgroup(watches, monkeypatch):
    monkeypatch.setattr(watches._inotify, "events", lambda: [(-1, OVERFLOW, "")])
    assert list(watches.changes()) == [(LOST, None, "")]


def test_without_inotify_nothing_is_watched(tmp_path, monkeypatch):
    def no_inotify():
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(cgroup_watches, "Inotify", no_inotify)
    watches, readings = CgroupWatches(Tree(str(tmp_path))), Readings()
    assert not watches.is_blind
    watches.begin(readings)
    assert (watches.is_blind, watches.fileno(), readings.drops) == (True, None, {"unreadable": 1})
    watches.enter(readings, V2, "")
    watches.leave("")
    assert (watches.has(""), watches.follow(readings, V2, "cgroup/job", "x"), list(watches.changes())) == (False, None, [])
    watches.unfollow(3)
    watches.close()
    assert readings.drops == {"unreadable": 1}
