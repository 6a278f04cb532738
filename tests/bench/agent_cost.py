"""`make agent-cost`: what the agent costs at 1 Hz with 8 jobs in this kernel's cgroup v2: share of a core, RSS.

Prints one line, with a day of samples accelerated; exit 1 if memory or descriptors grow. Run as root where cgroups can be written, and
alone: on a machine that is busy, caches are cold at each sample.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from cgroup_jobs import V2, remove

JOBS, SECONDS = 8, 60
MEASURED = """
import json, os, resource, sys, time
from tokiod.agent.rows import Rows
from tokiod.agent.sampler import Sampler
from tokiod.agent.sensors import SENSORS
from tokiod.agent.tree import Tree

def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime

seconds = int(sys.argv[1])
sampler = Sampler([sensor(Tree()) for sensor in SENSORS])
rows = Rows(metric for sensor in sampler.sensors for metric in sensor.metrics)
rows.take(sampler.sample(0.0), 0.0)
begin = used()
for second in range(1, seconds + 1):
    time.sleep(1.0)
    rows.take(sampler.sample(float(second)), float(second))
at_1_hz = (used() - begin) / seconds
begin, held = used(), []
for second in range(seconds + 1, seconds + 86401):
    rows.take(sampler.sample(float(second)), float(second))
    if second - seconds in (7200, 86400):
        resident = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
        held.append((resident, len(os.listdir("/proc/self/fd"))))
jobs = len({job for job, *_ in rows.at(float(second)).jobs})
print(json.dumps([at_1_hz, (used() - begin) / 86400, held, jobs]))
"""


def main(seconds: int = SECONDS) -> int:
    """Run it."""
    scope = V2 / f"tokiod-bench-{os.getpid()}" / "slurmstepd.scope"
    scope.mkdir(parents=True)
    sleeping = []
    for number in range(JOBS):
        (directory := scope / f"job_{number}").mkdir()
        sleeping.append(subprocess.Popen(["sleep", "100000"]))
        (directory / "cgroup.procs").write_text(str(sleeping[-1].pid))
    try:
        line = [sys.executable, "-S", "-c", MEASURED, str(seconds)]
        done = subprocess.run(line, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    finally:
        for process in sleeping:
            process.kill()
            process.wait()
        remove(scope.parent)
    at_1_hz, back_to_back, ((resident, descriptors), (resident_later, descriptors_later)), jobs = json.loads(done.stdout)
    print(
        f"{jobs} jobs: {at_1_hz * 100:.3f} % of a core at 1 Hz over {seconds} s, {back_to_back * 100:.3f} % with warm caches; after 2 and "
        f"24 h of samples {resident / 1e6:.1f} and {resident_later / 1e6:.1f} MB RSS, {descriptors} and {descriptors_later} descriptors"
    )
    return 0 if resident_later - resident < GROWTH_BYTES and descriptors_later <= descriptors else 1


GROWTH_BYTES = 1 << 20
"""Between two hours and a day: an hour of rows is in memory at both."""


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
