"""`make agent-cost`: what the agent costs at 1 Hz with 8 jobs in this kernel's cgroup v2: share of a core, RSS.

The agent runs as on a node, with a real hub that asks for each minute over CURVE. Its jobs wake up ten times a second and compute a little.
Prints two lines:

    agent     processor time of the kernel's account of all its threads, from its second minute on, and of its whole life by rusage
    a day     86,400 samples one after another, in a second process: memory and descriptors do not grow

Exit 1 if one of them is above what issue 24 allows. Run as root where cgroups can be written.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from cgroup_jobs import V2, remove
from node_hub import HubOutside

ROOT = Path(__file__).parents[2]
JOBS, SECONDS, WARM_SECONDS = 8, 60, 60
MAX_SHARE, MAX_RESIDENT = 0.0005, 25e6
"""Of a core, and in bytes: issue 24."""
GROWTH_BYTES = 1 << 20
"""Between two hours and a day: an hour of rows is in memory at both."""
JOB = "import time\nwhile True:\n time.sleep(0.1)\n sum(range(2000))"
DAY = """
import json, os, resource, sys, time
from tokiod.agent.recorder import Recorder
from tokiod.agent.rows import Rows
from tokiod.agent.sampler import Sampler
from tokiod.agent.sensors import SENSORS
from tokiod.agent.tree import Tree

sampler = Sampler([sensor(Tree()) for sensor in SENSORS])
rows = Rows(metric for sensor in sampler.sensors for metric in sensor.metrics)
recorder = Recorder(sampler, rows)
begun, held = time.process_time(), []
for second in range(86401):
    recorder.sample(float(second), float(second))
    if second in (7200, 86400):
        resident = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
        held.append((resident, len(os.listdir("/proc/self/fd"))))
recorder.settle()
print(json.dumps([(time.process_time() - begun) / 86400, held, len({job for job, *_ in rows.at(86400.0).jobs})]))
"""


def used(pid: int) -> float:
    """Return the seconds that the threads of a process have run, by the scheduler's account."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9


def resident(pid: int) -> int:
    """Return the most memory that a process had, in bytes."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


def agent(directory: Path, seconds: int) -> tuple[float, float, int, int]:
    """Run the agent; return its share of a core, that of its whole life, its memory, and how many rows the hub received."""
    hub = HubOutside(directory)
    try:
        keys = hub.ring.directory
        (directory / "agent.toml").write_text(
            f'hub = "tcp://127.0.0.1:{hub.port}"\nhub_key_file = "{keys}/server.key"\nkey_file = "{keys}/compute.key_secret"\n'
            'node = "nid1"\n'
        )
        line = [sys.executable, "-m", "tokiod.agent", "--config", str(directory / "agent.toml")]
        begun, received = time.monotonic(), 0
        process = subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        before, since = 0.0, begun
        while (now := time.monotonic()) - begun < WARM_SECONDS + seconds:
            if not before and now - begun >= WARM_SECONDS:
                before, since = used(process.pid), now
            minute = int(time.time()) // 60 * 60
            time.sleep(min(minute + 61 - time.time(), begun + WARM_SECONDS + seconds - now, WARM_SECONDS if before else begun + 60 - now))
            if time.time() >= minute + 60 and minute >= begun_at(begun):
                received += hub.collect(minute).records
        share = (used(process.pid) - before) / (time.monotonic() - since)
        memory = resident(process.pid)
        process.send_signal(signal.SIGTERM)
        print(process.stderr.read(), file=sys.stderr, end="")
        _, _, usage = os.wait4(process.pid, 0)
        return share, (usage.ru_utime + usage.ru_stime) / (time.monotonic() - begun), memory, received
    finally:
        hub.close()


def begun_at(monotonic: float) -> float:
    """Return the time since the epoch of a monotonic one."""
    return time.time() - time.monotonic() + monotonic


def jobs_in(scope: Path) -> list[subprocess.Popen]:
    """Start the jobs, each in its cgroup."""
    running = []
    for number in range(JOBS):
        (directory := scope / f"job_{os.getpid()}{number:04}").mkdir()
        running.append(subprocess.Popen([sys.executable, "-ISc", JOB]))
        (directory / "cgroup.procs").write_text(str(running[-1].pid))
    return running


def main(seconds: int = SECONDS) -> int:
    """Run it."""
    scope = V2 / f"tokiod-bench-{os.getpid()}" / "slurmstepd.scope"
    scope.mkdir(parents=True)
    running = jobs_in(scope)
    try:
        with tempfile.TemporaryDirectory(prefix="agent-cost") as directory:
            share, whole, memory, received = agent(Path(directory), seconds)
        print(
            f"agent: {share * 100:.4f} % of a core at 1 Hz over {seconds} s, {whole * 100:.4f} % with its start; "
            f"{memory / 1e6:.1f} MB RSS at most; {received} rows to the hub",
            flush=True,
        )
        done = subprocess.run([sys.executable, "-S", "-c", DAY], capture_output=True, text=True, check=True, cwd=ROOT)
    finally:
        for process in running:
            process.kill()
            process.wait()
        remove(scope.parent)
    back_to_back, ((at_2_h, descriptors), (at_24_h, descriptors_later)), jobs = json.loads(done.stdout)
    print(
        f"a day: {jobs} jobs, {back_to_back * 100:.4f} % with warm caches; after 2 and 24 h of samples {at_2_h / 1e6:.1f} and "
        f"{at_24_h / 1e6:.1f} MB RSS, {descriptors} and {descriptors_later} descriptors"
    )
    is_flat = at_24_h - at_2_h < GROWTH_BYTES and descriptors_later <= descriptors
    return 0 if is_flat and share <= MAX_SHARE and memory <= MAX_RESIDENT and jobs >= JOBS and received else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
