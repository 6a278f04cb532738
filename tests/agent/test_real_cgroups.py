"""Jobs in real cgroups of this machine's kernel, in directories of the names that Slurm gives them: no slurmd runs here.

The processes of a job are compared with what the kernel's other account, getrusage, says of them. The hierarchies are made and removed by
the test; it needs root, and is skipped where cgroups cannot be written.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tokiod.agent.sampler import Sampler
from tokiod.agent.sensors.jobs import Jobs
from tokiod.agent.tree import Tree

V2 = next((root for root in map(Path, ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")) if (root / "cgroup.controllers").exists()), None)
V1 = Path("/sys/fs/cgroup/cpuacct") if Path("/sys/fs/cgroup/cpuacct/tasks").exists() else None
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
    _remove(made.parent)


@pytest.fixture
def user():
    if V1 is None:
        pytest.skip("no cgroup v1 here")
    made = make(V1 / f"slurm_test{os.getpid()}" / "uid_1000")
    yield made
    _remove(made.parent)


def _remove(directory):
    for path in [*sorted((path for path in directory.rglob("*") if path.is_dir()), reverse=True), directory]:
        path.rmdir()


def run(directory, seconds, *, linger):
    """Run one job, and return its name and the CPU seconds of its processes by getrusage.

    Its parent, as slurmstepd, removes the cgroup after it. `linger`: seconds until then, in which the agent can read.
    """
    directory.mkdir()
    computing = f"import time\nwhile time.process_time() < {seconds}: pass"
    joining = f"echo $$ > {directory}/cgroup.procs && exec {sys.executable} -ISc '{computing}'"
    process = subprocess.Popen(["sh", "-c", joining])
    _, process.returncode, usage = os.wait4(process.pid, 0)
    assert process.returncode == 0
    time.sleep(linger)
    directory.rmdir()
    return f"slurm:{directory.name.removeprefix('job_')}", usage.ru_utime + usage.ru_stime


def run_all(scope, durations, *, linger, at_once=2):
    """Run jobs beside a running agent; return CPU seconds by getrusage, the agent's job ends by name, and what it dropped."""
    sensor = Jobs(Tree())
    sampler = Sampler([sensor])
    ends, drops, following = {}, Counter(), time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        sampler.sample(time.monotonic())
        running = [pool.submit(run, scope / f"job_{number}", seconds, linger=linger) for number, seconds in enumerate(durations)]
        give_up = time.monotonic() + 120
        while len(ends) + drops["job ended before its first sample"] < len(durations) and time.monotonic() < give_up:
            found = [sampler.wait(following - time.monotonic(), time.monotonic)]
            if time.monotonic() >= following:
                following += 1.0
                found.append(sampler.sample(time.monotonic()))
            for readings in (readings for some in found for readings in some.values()):
                drops.update(readings.drops)
            ends.update({end.job: end for end in sensor.ended})
            sensor.ended.clear()
        used = dict(job.result() for job in running)
    sampler.close()
    return used, ends, drops


def test_the_cpu_seconds_of_short_jobs_equal_getrusage(scope):
    """The jobs live less than a second: most between two samples."""
    drawn = random.Random(24)
    used, ends, drops = run_all(scope, [drawn.uniform(0.01, 0.15) for _ in range(20)], linger=0.05)
    found = {job: {metric.name: value for metric, value in end.values.items()}["job_cpu"] for job, end in ends.items()}
    assert {job: round(abs(found[job] - seconds), 4) for job, seconds in used.items() if abs(found[job] - seconds) > SECONDS_APART} == {}
    assert (all(end.is_exact for end in ends.values()), dict(drops)) == (True, {})


def test_a_job_whose_cgroup_is_removed_at_once_is_exact_or_is_counted(scope):
    """The kernel gives no more to read once a cgroup is removed: what was read before is reported as inexact, never as the whole."""
    used, ends, drops = run_all(scope, [0.02] * 20, linger=0.0)
    exact = {job: end for job, end in ends.items() if end.is_exact}
    inexact = drops["end of a job not sampled"] + drops["job ended before its first sample"]
    assert len(exact) + inexact == len(used)
    for job, end in exact.items():
        assert abs({metric.name: value for metric, value in end.values.items()}["job_cpu"] - used[job]) <= SECONDS_APART


def test_a_job_on_v1_is_measured_until_its_last_sample(user):
    used, ends, drops = run_all(user, [1.2], linger=0.0)
    assert dict(drops) == {"end of a job not sampled": 1}
    for job, end in ends.items():
        values = {metric.name: value for metric, value in end.values.items()}
        assert used[job] - 1.1 * len(used) <= values["job_cpu"] <= used[job] + SECONDS_APART
        assert not end.is_exact


def test_new_parents_are_found_by_inotify(scope):
    """A scheduler that starts after the agent makes its directories then."""
    sensor = Jobs(Tree())
    sampler = Sampler([sensor])
    sampler.sample(0.0)
    later = scope.parent / "later_slurmstepd.scope"
    (later / "job_7").mkdir(parents=True)
    sampler.wait(5.0, time.monotonic)
    names = {job.job for job in sensor.jobs.values()}
    sampler.close()
    assert "slurm:7" in names


def test_nothing_is_left_open(scope):
    before = set(Path("/proc/self/fd").iterdir())
    run_all(scope, [0.01] * 5, linger=0.02)
    assert set(Path("/proc/self/fd").iterdir()) <= before
