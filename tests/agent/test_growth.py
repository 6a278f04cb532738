"""The time of every parser of the agent grows with its input, not with the square of it: n and 4n bytes of what was made to be slow."""

import growth
import pytest

from tokiod.agent import job_cgroup
from tokiod.agent.job_patterns import job_of
from tokiod.agent.sensor import Readings
from tokiod.agent.sensors.cpu import Cpu
from tokiod.agent.sensors.disk import Disk
from tokiod.agent.sensors.ipmi import Ipmi
from tokiod.agent.sensors.lustre_client import LustreClient
from tokiod.agent.sensors.lustre_jobs import LustreJobs
from tokiod.agent.sensors.memory import Memory
from tokiod.agent.sensors.network import Network
from tokiod.agent.sensors.paging import Paging
from tokiod.agent.tree import Tree

JOB = b"\n- job_id: %d\n"
TARGET = b"obdfilter.fs-OST0000.job_stats=\njob_stats:"


def sensor(kind, *files):
    """Return what samples a sensor once, in a tree in which the file has a text."""

    def run(root, text):
        tree = Tree(str(root))
        for file in files:
            path = root / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        (root / "sys/class/net/eth0/device").mkdir(parents=True, exist_ok=True)
        one, readings = kind(tree), Readings()
        with readings:
            one.find()
            one.sample(readings, 0.0)
        one.close()

    return run


def command(kind):
    """Return what gives a text to a sensor as the output of its command."""
    return lambda root, text: (one := kind(Tree(str(root))), (getattr(one, "read", None) or one._read)(Readings(), text))


def cgroup(name):
    """Return what parses a text as a file of a job's cgroup."""

    def run(root, text):
        job = job_cgroup.JobCgroup.v2(Tree(str(root)), "slurm:1", "job_1")
        with Readings():
            {file.path.rpartition("/")[2]: parse for file, parse in job._files}[name](text)

    return run


# Name, n, what parses, and the input of a length that n says. The files of a node have at most 4 MiB.
SLOW = [
    ("interrupts", 400_000, sensor(Cpu, "proc/stat"), lambda n: b"cpu 1\nintr" + b" 1" * n + b"\nctxt 1\n"),
    ("lines of proc/stat", 200_000, sensor(Cpu, "proc/stat"), lambda n: b"cpu\n" * n),
    ("disks", 5_000, sensor(Disk, "proc/diskstats"), lambda n: b"".join(b"8 0 disk%d%s\n" % (k, b" 1" * 11) for k in range(n))),
    ("memory without a number", 40_000, sensor(Memory, "proc/meminfo"), lambda n: b"MemTotal:" + b" " * n),
    ("lines of memory", 40_000, sensor(Memory, "proc/meminfo"), lambda n: b"MemTotal: 1 kB\n" * n),
    ("one word of memory", 400_000, sensor(Memory, "proc/meminfo"), lambda n: b"a" * n),
    ("paging", 50_000, sensor(Paging, "proc/vmstat"), lambda n: b"pgfault 1\n" * n),
    ("interfaces", 10_000, sensor(Network, "proc/net/dev", "proc/net/snmp"), lambda n: b"eth0:" + b" 1" * n + b"\neth0: 1\n" * n),
    ("mounts", 10_000, sensor(LustreClient, "sys/fs/lustre/llite/fs-1/stats"), lambda n: b"snapshot_time 1\n" + b"open 1 samples\n" * n),
    ("an answer of newlines", 3_000, command(Ipmi), lambda n: b"\n" * n),
    ("an answer of blanks", 100_000, command(Ipmi), lambda n: b" " * n),
    ("states of the controller", 50_000, command(Ipmi), lambda n: b"Power reading state is" * n),
    ("a job id of blanks", 3_000, command(LustreJobs), lambda n: TARGET + b"\n- job_id:" + b" " * n),
    ("job ids", 5_000, command(LustreJobs), lambda n: TARGET + b"\n- job_id: 1\n" * n),
    ("jobs", 1_000, command(LustreJobs), lambda n: TARGET + b"".join(JOB % k + b"  open: { samples: 1, unit: reqs }" for k in range(n))),
    ("quotes of a job id", 50_000, command(LustreJobs), lambda n: TARGET + b'\n- job_id: "' + b"\\x" * n),
    ("sums without a number", 50_000, command(LustreJobs), lambda n: TARGET + JOB % 1 + b"  open: { samples: 1, unit: r" + b" sum:" * n),
    ("operations without a number", 20_000, command(LustreJobs), lambda n: TARGET + JOB % 1 + b"  open:\n" * n),
    ("targets", 10_000, command(LustreJobs), lambda n: TARGET * n),
    ("a job's CPU time", 50_000, cgroup("cpu.stat"), lambda n: b"usage_usec 1\nuser_usec 1\nsystem_usec 1\n" + b"throttled_usec\n" * n),
    ("a job's memory", 50_000, cgroup("memory.stat"), lambda n: b"anon 1\n" * n),
    ("a job's disks", 1_000, cgroup("io.stat"), lambda n: b"8:0 rbytes=1\n" * n + b"8:0" + b" rios=1" * n),
    ("a job's stalls", 50_000, cgroup("cpu.pressure"), lambda n: b"some " + b" total=1" * n + b"x"),
    ("cgroups", 90, lambda _, path: job_of(path), lambda n: "oar/" * n + "condor_slot" * n),
]  # fmt: skip


@pytest.mark.parametrize(("n", "run", "text"), [pytest.param(*one, id=name) for name, *one in SLOW])
def test_four_times_the_input_takes_less_than_eight_times_as_long(tmp_path, n, run, text):
    growth.check(lambda one: run(tmp_path, one), text(n), text(4 * n))
