"""`make agent-jobs`: 1,000 jobs of 0.2 to 5 s in this kernel's cgroup v2, their CPU seconds by the agent beside those by getrusage.

No slurmd runs: the directories have the names that Slurm gives them. Prints one line; exit 1 if a job differs by more than 10 ms. Run as
root where cgroups can be written.
"""

from __future__ import annotations

import os
import random
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from cgroup_jobs import V2, remove, run_all

JOBS, AT_ONCE = 1000, 24
SECONDS_APART = 0.010
LINGER_SECONDS = 0.05
"""Between the end of a job's last process and the removal of its cgroup."""


AGENT_NICE = -10
"""As a service would have it: an agent that waits for its turn on a busy node measures late. It uses less than 0.1 % of a core."""


def pool_of_parents(workers: int) -> ProcessPoolExecutor:
    """Return processes of normal priority that run the jobs."""
    return ProcessPoolExecutor(workers, initializer=os.setpriority, initargs=(os.PRIO_PROCESS, 0, 0))


def main(jobs: int = JOBS) -> int:
    """Run them."""
    os.setpriority(os.PRIO_PROCESS, 0, AGENT_NICE)
    drawn = random.Random(24)
    scope = V2 / f"tokiod-bench-{os.getpid()}" / "slurmstepd.scope"
    scope.mkdir(parents=True)
    try:
        computing = [drawn.uniform(0.01, 0.08) for _ in range(jobs)]
        used, ends, drops = run_all(
            scope, computing, linger=LINGER_SECONDS, at_once=AT_ONCE, asleep=lambda: drawn.uniform(0.15, 4.8), pool=pool_of_parents
        )
    finally:
        remove(scope.parent)
    found = {job: end.values["job_cpu"] for job, end in ends.items()}
    apart = {job: found.get(job, 0.0) - seconds for job, seconds in used.items()}
    late = sum(abs(difference) > SECONDS_APART for difference in apart.values())
    largest = max(apart, key=lambda job: abs(apart[job]))
    print(
        f"{len(used)} jobs, {sum(used.values()):.1f} CPU seconds: {sum(end.is_exact for end in ends.values())} exact, largest difference "
        f"{apart[largest] * 1e3:+.1f} ms, {late} above {SECONDS_APART * 1e3:.0f} ms, dropped {dict(drops)}"
    )
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
