"""Cgroups that users own and name as jobs. A tree of directories stands in for the kernel's, whose delegated cgroups are owned so too."""

import os

import pytest

from tokiod.agent.sensor import Readings
from tokiod.agent.sensors import jobs as jobs_sensor
from tokiod.agent.sensors.jobs import Jobs
from tokiod.agent.tree import Tree

USER = 1000


def cgroup(root, path, microseconds):
    directory = root / "sys/fs/cgroup" / path
    directory.mkdir(parents=True)
    (directory / "cpu.stat").write_text(f"usage_usec {microseconds}\nuser_usec {microseconds}\nsystem_usec 0\n")
    (directory / "cgroup.events").write_text("populated 1\n")
    return directory


@pytest.fixture
def root(tmp_path):
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").touch()
    cgroup(tmp_path, "system.slice/slurmstepd.scope/job_1", 1_000_000)
    return tmp_path


def of_user(root):
    """Let a user own a session, in which another one's job seems to run, and a job of the same name as the first one."""
    session = root / "sys/fs/cgroup/user.slice/user@1000.service"
    for job in ("job_1", "job_2"):
        cgroup(root, f"user.slice/user@1000.service/slurmstepd.scope/{job}", 9_000_000)
    try:
        for path in (session, *session.rglob("*")):
            os.chown(path, USER, USER)
    except PermissionError:
        pytest.skip("only root gives files to users")


def sampled(sensor, now):
    readings = Readings()
    sensor.sample(readings, now)
    return {(job, name): value for (job, _, name), value in readings.jobs.items() if name == "job_cpu"}, dict(readings.drops)


@pytest.mark.parametrize("is_running", [False, True])
def test_a_user_adds_nothing_to_jobs_and_invents_none(root, is_running):
    sensor = Jobs(Tree(str(root)))
    sensor.find()
    if is_running:
        sampled(sensor, 0.0)
    of_user(root)
    cpu, drops = sampled(sensor, 1.0)
    sensor.close()
    assert cpu == {("slurm:1", "job_cpu"): 1.0}
    assert drops.keys() <= {"cgroup of a user"}


def test_the_agents_own_cgroups_are_read_where_it_is_no_system_user(root, monkeypatch):
    of_user(root)
    monkeypatch.setattr(jobs_sensor.os, "geteuid", lambda: USER)
    sensor = Jobs(Tree(str(root)))
    sensor.find()
    cpu, _ = sampled(sensor, 0.0)
    sensor.close()
    assert ("slurm:2", "job_cpu") in cpu


def test_a_job_that_a_user_owns_is_counted(root):
    of_user(root)
    os.chown(root / "sys/fs/cgroup/system.slice/slurmstepd.scope/job_1", USER, USER)
    sensor = Jobs(Tree(str(root)))
    sensor.find()
    assert sampled(sensor, 0.0) == ({}, {"cgroup of a user": 1})
    sensor.close()
