"""Jobs in real cgroups of this machine's kernel, in directories of the names that Slurm gives them: no slurmd runs here.

The processes of a job are compared with what the kernel's other account, getrusage, says of them. The hierarchies are made and removed by
the test; it needs root, and is skipped where cgroups cannot be written.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from cgroup_jobs import V1, V2, remove, run_all, run_in, tree_of

from tokiod.agent import wire
from tokiod.agent.job_cgroup import JobCgroup
from tokiod.agent.removed_cgroups import RemovedChildren
from tokiod.agent.rows import Rows
from tokiod.agent.sampler import Sampler
from tokiod.agent.sensors import jobs
from tokiod.agent.sensors.jobs import Jobs
from tokiod.agent.service import NodeRows
from tokiod.agent.tree import Tree
from tokiod.analysis.own_nodes import on_nodes
from tokiod.analysis.top import top
from tokiod.hub import messages
from tokiod.hub.to_rows import JOB_METRICS, job_rows
from tokiod.hub.to_window import jobs_of
from tokiod.jobs.span import Days
from tokiod.jobs.table import JobTable
from tokiod.reader.span import Span
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar, Window
from tokiod.window_data import Collected, WindowMeta

COMPUTING = """
import time
while time.process_time() < 0.1: pass
print("used some", flush=True)
input()
while time.process_time() < 0.3: pass
"""
SECONDS_APART = 0.010
"""What issue 24 allows between the two accounts of a job."""


def make(directory):
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"cannot write {directory}: {error.strerror}")
    return directory


@pytest.fixture
def scope():
    if V2 is None:
        pytest.skip("no cgroup v2 here")
    made = make(V2 / f"tokiod-test-{os.getpid()}" / "n1_slurmstepd.scope")
    yield made
    remove(made.parent)


@pytest.fixture
def tree(tmp_path, scope):
    return tree_of(tmp_path / "node", scope.parent)


@pytest.fixture
def user():
    if V1 is None:
        pytest.skip("no cgroup v1 here")
    made = make(V1 / f"tokiod-test-{os.getpid()}" / "slurm_test" / "uid_1000")
    yield made
    remove(made.parent.parent)


@pytest.fixture
def tree_v1(tmp_path, user):
    return tree_of(tmp_path / "node", user.parent.parent, "cpuacct")


def test_the_cpu_seconds_of_short_jobs_equal_getrusage(scope, tree):
    """The jobs live less than a second: most between two samples."""
    drawn = random.Random(24)
    used, ends, drops = run_all(scope, [drawn.uniform(0.01, 0.15) for _ in range(12)], linger=0.1, at_once=1, tree=tree)
    found = {job: end.values["job_cpu"] for job, end in ends.items()}
    assert {job: round(abs(found[job] - seconds), 4) for job, seconds in used.items() if abs(found[job] - seconds) > SECONDS_APART} == {}
    assert (all(end.is_exact for end in ends.values()), dict(drops)) == (True, {})


def test_a_job_whose_cgroup_is_removed_at_once_is_known_by_its_parent(scope, tree):
    """The kernel gives no more to read of a cgroup once it is removed, but its parent keeps what it used."""
    used, ends, drops = run_all(scope, [0.02] * 20, linger=0.0, tree=tree)
    exact = {job: end.values["job_cpu"] for job, end in ends.items() if end.is_exact}
    assert {job: seconds for job, seconds in exact.items() if abs(seconds - used[job]) > SECONDS_APART} == {}
    # Two that are removed in the same moment are known by their sum alone.
    assert len(exact) + drops["end of a job not sampled"] == len(used)
    assert len(exact) > len(used) / 2


def test_a_job_on_v1_is_known_by_its_parent(user, tree_v1):
    (user / "job_other").mkdir()
    used, ends, drops = run_all(user, [0.05, 0.1, 0.3], linger=0.1, at_once=1, tree=tree_v1)
    assert {job: abs(end.values["job_cpu"] - used[job]) <= SECONDS_APART for job, end in ends.items()} == dict.fromkeys(used, True)
    assert (all(end.is_exact for end in ends.values()), dict(drops)) == (True, {})


def test_a_job_on_v1_whose_parent_is_removed_too_is_inexact_and_counted(user, tree_v1):
    """Slurm removes the directory of a user with the last job."""
    sensor = Jobs(tree_v1)
    sampler = Sampler([sensor])
    (user / "job_1").mkdir()
    sampler.sample(0.0)
    (user / "job_1").rmdir()
    user.rmdir()
    found = sampler.sample(1.0)["jobs"]
    sampler.close()
    user.mkdir()
    assert [(end.job, end.is_exact) for end in found.ended] == [("slurm:1", False)]
    assert dict(found.drops) == {"end of a job not sampled": 1}


def test_what_short_jobs_used_is_in_the_job_table_within_10_ms_of_getrusage(scope, tree, tmp_path):
    """From the kernel's cgroups through the agent's rows, the wire, the hub and the collector's rows to the table and its readers."""
    rows, begun = Rows(Jobs.metrics, step=3600.0), time.time()
    used, _, drops = run_all(scope, [0.02, 0.3, 1.2], linger=0.1, take=lambda found: rows.take(found, time.time()), tree=tree)
    assert dict(drops) == {}
    start = int(begun) // 3600 * 3600
    window = Window(start, start + 3600)
    node_rows = NodeRows({}, rows)
    message = wire.row("nid1", "s", start, time.time(), 0.0, [], {}, node_rows.jobs(float(start)))
    row = messages.decode(message)[1]
    node = SimpleNamespace(job_metrics=tuple(metric.name for metric in rows.job_metrics))
    names, states = jobs_of({start: {"nid1": (node, row)}}, JOB_METRICS, ["nid1"])
    table = JobTable(tmp_path, Calendar("UTC"), FakeClock(start + 3600.0))
    table.apply(Collected(WindowMeta("n", "nodes", "c.nodes", window), (), [job_rows(states, names, ("nid1",), window)]))
    assert table.commit() == []
    days, span = Days((tmp_path,), "c.nodes"), Span(start, start + 3600)
    for job, seconds in used.items():
        keys = on_nodes(days, job.removeprefix("slurm:"), span)
        assert abs(keys["job_cpu_seconds"] - seconds) <= SECONDS_APART
        assert keys["job_nodes"] == 1
    cores = {one.job: one.rate * 3600 for one in top(days, span, "cpu", "names").lines}
    assert {f"slurm:{job}": pytest.approx(cpu, abs=SECONDS_APART) for job, cpu in cores.items()} == used


def test_a_job_that_begins_while_the_agent_looks_for_its_end_is_not_taken_as_ended(scope, tree, monkeypatch):
    """On a busy node the job's whole life passes between the agent's look at its processes and the next one."""
    directory, processes = scope / "job_1", []

    class Late(JobCgroup):
        def is_populated(self):
            found = super().is_populated()
            if self.job == "slurm:1" and not processes:
                joining = f"echo $$ > {directory}/cgroup.procs && exec {sys.executable} -ISc '{COMPUTING}'"
                processes.append(subprocess.Popen(["sh", "-c", joining], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
                assert processes[0].stdout.readline() == b"used some\n"
            return found

    monkeypatch.setattr(jobs, "JobCgroup", Late)
    sensor = Jobs(tree)
    sampler = Sampler([sensor])
    sampler.sample(0.0)
    (scope / "job_0").mkdir()
    sampler.sample(1.0)
    directory.mkdir()
    begun = sampler.heed([sensor.fileno()], 1.1)["jobs"]
    assert (begun.begun, begun.ended) == ({"slurm:1"}, [])
    with processes[0] as process:
        process.stdin.write(b"on\n")
    used = int(next(line for line in (directory / "cpu.stat").read_text().splitlines() if "usage" in line).split()[1]) / 1e6
    directory.rmdir()
    found = sampler.heed([sensor.fileno()], 1.2)["jobs"]
    sampler.close()
    assert [(end.job, end.is_exact, end.values["job_cpu"]) for end in found.ended] == [
        ("slurm:1", True, pytest.approx(used, abs=SECONDS_APART))
    ]
    assert used > 0.2


@pytest.mark.parametrize("late", [1, 2])
def test_an_agent_that_waits_for_a_core_reads_the_children_of_a_parent_again(tmp_path, late):
    """A child that runs uses half a second between two of the three readings of the first attempt."""
    used = {"scope": 1.0, "scope/other": 1.0}
    for name in used:
        (tmp_path / name).mkdir()

    class Waits(RemovedChildren):
        asked = 0

        def _of(self, directory):
            if Waits.asked == late:
                used.update(dict.fromkeys(used, used["scope"] + 0.5))
            Waits.asked += 1
            return used[directory]

    children = Waits(Tree(str(tmp_path)), "scope", 2)
    children.read({"other"})
    children.growth()
    children.read({"other"})
    assert children.growth() == 0.0


def test_a_job_in_both_hierarchies_has_one_end_with_its_seconds(scope, user, tmp_path):
    """A hybrid node: v1 counts memory, v2 reports the end."""
    tree = tree_of(tmp_path / "node", user.parent.parent, "cpuacct")
    (tmp_path / "node/sys/fs/cgroup/unified").symlink_to(scope.parent)
    sampler = Sampler([Jobs(tree)])
    sampler.sample(0.0)
    directories = [user / "job_1", scope / "job_1"]
    for directory in directories:
        directory.mkdir()
    sampler.sample(1.0)
    joining = f"echo $$ > {directories[0]}/cgroup.procs; echo $$ > {directories[1]}/cgroup.procs; exec {sys.executable} -ISc '{COMPUTING}'"
    with subprocess.Popen(["sh", "-c", joining], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        found = sampler.sample(2.0)["jobs"]
        process.stdin.write(b"on\n")
    ended = [*found.ended, *ends_of(sampler, 3.0)]
    used = int((directories[0] / "cpuacct.usage").read_text()) / 1e9
    for directory in directories:
        directory.rmdir()
    ended += ends_of(sampler, 4.0)
    sampler.close()
    assert [(end.job, end.is_exact, end.values["job_cpu"]) for end in ended] == [("slurm:1", True, pytest.approx(used, abs=0.001))]
    assert used > 0.2


def ends_of(sampler, now):
    """Return the ends that a sampler reports until its next sample."""
    return [end for found in (sampler.wait(0.1, lambda: now), sampler.sample(now)) if "jobs" in found for end in found["jobs"].ended]


def test_a_job_whose_cgroup_stays_has_one_end_and_what_runs_there_later_another(scope, tree):
    sampler = Sampler([Jobs(tree)])
    sampler.sample(0.0)
    directory, used, ended = scope / "job_1", [], []
    directory.mkdir()
    for begin in (1.0, 101.0):
        ended += ends_of(sampler, begin)
        used.append(run_in(directory, 0.2))
        for second in range(1, 30):
            ended += ends_of(sampler, begin + second)
    assert [(end.job, end.is_exact, end.values["job_cpu"]) for end in ended] == [
        ("slurm:1", True, pytest.approx(seconds, abs=SECONDS_APART)) for seconds in used
    ]
    assert not sampler.sample(150.0)["jobs"].jobs
    directory.rmdir()
    assert ends_of(sampler, 151.0) == []
    sampler.close()


def test_new_parents_are_found_by_inotify(scope, tree):
    """A scheduler that starts after the agent makes its directories then."""
    sensor = Jobs(tree)
    sampler = Sampler([sensor])
    sampler.sample(0.0)
    later = scope.parent / "later_slurmstepd.scope"
    (later / "job_7").mkdir(parents=True)
    sampler.wait(5.0, time.monotonic)
    names = {job.job for job in sensor.jobs.values()}
    sampler.close()
    assert "slurm:7" in names


def test_nothing_is_left_of_jobs_that_ended(scope, tree):
    sensor = Jobs(tree)
    sampler = Sampler([sensor])
    sampler.sample(0.0)
    held = sizes(sensor)
    for number in range(50):
        made = [scope / f"job_{number}", scope.parent / f"session-{number}.scope"]
        for directory in made:
            directory.mkdir()
        sampler.sample(2.0 * number + 1)
        assert sizes(sensor) != held
        for directory in made:
            directory.rmdir()
        sampler.sample(2.0 * number + 2)
    # The account of the jobs' parent stays as long as the parent.
    assert sizes(sensor) == {**held, "_parents": held["_parents"] + 1}
    sampler.close()


def sizes(sensor):
    """Return the sizes of all that the sensor keeps, and the number of descriptors."""
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        **{
            name: len(value) for of in (sensor, sensor._watches) for name, value in vars(of).items() if isinstance(value, dict | set | list)
        },
    }


def test_nothing_is_left_open(scope, tree):
    before = set(Path("/proc/self/fd").iterdir())
    run_all(scope, [0.01] * 5, linger=0.02, tree=tree)
    assert set(Path("/proc/self/fd").iterdir()) <= before
