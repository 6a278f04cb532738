"""Jobs in real cgroups of this machine's kernel, run beside a running agent."""

import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tokiod.agent.sampler import Sampler
from tokiod.agent.sensors.jobs import Jobs
from tokiod.agent.tree import Tree

V2 = next((root for root in map(Path, ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")) if (root / "cgroup.controllers").exists()), None)
V1 = Path("/sys/fs/cgroup/cpuacct") if Path("/sys/fs/cgroup/cpuacct/tasks").exists() else None


def tree_of(root, hierarchy, controller=""):
    """Return a node's tree, in an empty directory, with the cgroups below one of this machine's alone: other tests run jobs beside."""
    link = root / "sys/fs/cgroup" / controller
    link.parent.mkdir(parents=True)
    link.symlink_to(hierarchy)
    (root / "sys/devices").symlink_to("/sys/devices")
    return Tree(str(root))


def remove(directory):
    """Remove a cgroup and those in it, which have no processes any more."""
    for path in [*sorted((path for path in directory.rglob("*") if path.is_dir()), reverse=True), directory]:
        path.rmdir()


def run(directory, seconds, *, linger, asleep=0.0, looks=None):
    """Run one job, and return its name and the CPU seconds of its processes by getrusage.

    Its parent, as slurmstepd, removes the cgroup after it. `linger`: seconds until then, in which
    the agent can read; `asleep`: seconds that it does not compute. looks: a Looks, for an agent that
    a busy machine lets wait for longer than that.
    """
    directory.mkdir()
    used = run_in(directory, seconds, asleep)
    time.sleep(linger)
    if linger and looks is not None:
        looks.wait()
    directory.rmdir()
    return f"slurm:{directory.name.removeprefix('job_')}", used


class Looks:
    """How often an agent has looked at its cgroups."""

    def __init__(self):
        self.count = 0

    def wait(self, seconds=60):
        """Wait for a look that begins from now on."""
        wanted, give_up = self.count + 2, time.monotonic() + seconds
        while self.count < wanted and time.monotonic() < give_up:
            time.sleep(0.01)


def run_in(directory, seconds, asleep=0.0):
    """Run the processes of a job in its cgroup, and return their CPU seconds by getrusage."""
    computing = f"import time\ntime.sleep({asleep})\nwhile time.process_time() < {seconds}: pass"
    # What the shell used until it joined, in nanoseconds, is not the job's.
    joining = f"read -r before rest < /proc/$$/schedstat; echo $$ > {directory}/cgroup.procs && echo $before && exec "
    joining += f"{sys.executable} -ISc '{computing}'"
    with subprocess.Popen(["sh", "-c", joining], stdout=subprocess.PIPE) as process:
        before = int(process.stdout.readline()) / 1e9
        _, process.returncode, usage = os.wait4(process.pid, 0)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime - before


def run_all(scope, durations, *, linger, at_once=2, asleep=lambda: 0.0, pool=ThreadPoolExecutor, take=lambda _found: None, tree=None):
    """Run jobs beside a running agent; return CPU seconds by getrusage, the agent's job ends by name, and what it dropped.

    take: is called with the readings of each sample. tree: of the node, this machine's own by default.
    """
    sampler = Sampler([Jobs(tree or Tree())])
    ends, drops, following = {}, Counter(), time.monotonic()
    looks = Looks() if pool is ThreadPoolExecutor else None
    with pool(at_once) as parents:
        take(sampler.sample(time.monotonic()))
        # Numbers of this process: other jobs of the machine have others.
        directories = [(scope / f"job_{os.getpid()}{number:04}", seconds) for number, seconds in enumerate(durations)]
        running = [parents.submit(run, *one, linger=linger, asleep=asleep(), looks=looks) for one in directories]
        give_up = time.monotonic() + 600
        while len(ends) < len(durations) and time.monotonic() < give_up:
            found = [sampler.wait(following - time.monotonic(), time.monotonic)]
            if time.monotonic() >= following:
                following += 1.0
                found.append(sampler.sample(time.monotonic()))
            if looks is not None:
                looks.count += 1
            for some in found:
                take(some)
            for readings in (readings for some in found for readings in some.values()):
                drops.update(readings.drops)
                ends.update({end.job: end for end in readings.ended})
        used = dict(job.result() for job in running)
    sampler.close()
    return used, ends, drops
