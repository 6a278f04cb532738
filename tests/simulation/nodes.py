"""Compute nodes of a simulated site: a made tree of cgroups for each, what its jobs really used, and the real agent on it.

The sensors, rows and link are the agent's own; what it wires in a process of its own is wired here, because that has a thread of ZeroMQ and
waits. It samples every TICK_SECONDS, when all files of a job are due, and at once what inotify reports.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import shutil
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tests.simulation.job_sums import Days, Truth, check_sums
from tests.simulation.oracle import Wrong
from tests.simulation.plan import NODE_SECONDS
from tokiod.agent.clock_offset import clock_offset
from tokiod.agent.keys import AgentKeys
from tokiod.agent.link import Link
from tokiod.agent.recorder import Recorder
from tokiod.agent.rows import ROW_SECONDS, Rows
from tokiod.agent.sampler import Sampler
from tokiod.agent.sensors import SENSORS, sensors_of
from tokiod.agent.service import NodeRows
from tokiod.agent.tree import Tree
from tokiod.job_columns import CPU, UNKNOWN, is_state
from tokiod.jobs.rows import read
from tokiod.simulator.jobs.expected import id_of
from tokiod.window import iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.simulation.clock import MachineClock
    from tests.simulation.hub import HubMachine
    from tests.simulation.loop import SimulatedLoop
    from tokiod.jobs.rows import JobRows
    from tokiod.window import Calendar
    from tokiod.window_data import Collected

NAME, SYSTEM = "fs0-nodes", "fs0.nodes"
METRICS = ("load_1min",)
WINDOW, RECOUNT = 1800, 1200
"""Seconds; short windows would cost more than all nodes."""
TICK_SECONDS, IDLE_TICK_SECONDS = 20.0, 60.0
"""Of a node with jobs, and without. Nodes cost much, so jobs begin in the first NODE_SECONDS alone."""
ANSWER_SECONDS = 1.0
"""After a message of the hub, when all answers to it are due."""
LAST_SECOND = 0.3
"""The share of jobs that begin in the last second of a minute."""
USED = ("load", "jobs")
"""Sensors that run."""
DISKS = ("8:0", "8:16")
"""The second one is detached from the node, and attached again."""
COUNTS = ("disk_read.bytes", "disk_written.bytes", "disk_reads.samples", "disk_writes.samples")
FORMS = ("v2", "v2", "v1", "oar", "oar")
BILLION = 10**9

Counts = tuple[int, int, int, int]
NO_COUNTS: Counts = (0, 0, 0, 0)


@dataclass(eq=False)
class Life:
    """A job on a node.

    cpu: microseconds; disks: what it did on each, since the disk was attached; seen: of each CPU time that its cgroup ever showed, the
    other counts that an agent may have read with it. has_ended: no process is left.
    """

    job: str
    cores: float
    cpu: int = 0
    disks: dict[str, Counts] = field(default_factory=dict)
    has_ended: bool = False
    seen: defaultdict[int, dict[str, set[int]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))

    def use(self, seconds: float, rng: random.Random) -> None:
        """Let it compute, and read and write."""
        self.cpu += 1000 * (1 + int(self.cores * seconds * 1000 * rng.random()))
        for disk, counts in self.disks.items():
            reads, writes = rng.randrange(5), rng.randrange(5)
            more = reads * 4096, writes * 512, reads, writes
            self.disks[disk] = tuple(map(sum, zip(counts, more, strict=True)))  # type: ignore[assignment]


class Kernel:
    """The cgroups of a node's jobs, as files below a directory. form: one of FORMS."""

    def __init__(self, root: Path, form: str, rng: random.Random) -> None:
        self.root, self.form, self.rng = root, form, rng
        self.lives: dict[str, Life] = {}
        self.disks = list(DISKS)
        self._removed = 0
        (root / "proc").mkdir(parents=True)
        (root / "proc/loadavg").write_text("1.00 1.00 1.00 1/100 4711\n")
        (root / "proc/uptime").write_text("100.00 100.00\n")
        group = root / "sys/fs/cgroup"
        if form == "v2":
            self.parents = {"": group / "system.slice/slurmstepd.scope"}
            group.mkdir(parents=True)
            (group / "cgroup.controllers").write_text("cpu io memory pids\n")
        else:
            below = "oar" if form == "oar" else "slurm/uid_1000"
            self.parents = {name: group / name / below for name in ("cpuacct", "memory", "blkio")}
        for parent in self.parents.values():
            parent.mkdir(parents=True)
        if form == "oar":
            links = root / "dev/oar_cgroups_links"
            links.mkdir(parents=True)
            for name in self.parents:
                (links / name).symlink_to(group / name)
        self._write_parent()

    def advance(self, seconds: float) -> None:
        """Let all jobs work."""
        for life in self.lives.values():
            if not life.has_ended:
                life.use(seconds, self.rng)
                self._write(life)
        self._write_parent()

    def begin(self, life: Life) -> None:
        """Make the cgroups of a job, whose first process has done a little before an agent can see it."""
        life.disks = dict.fromkeys(self.disks, NO_COUNTS)
        self.lives[life.job] = life
        life.use(0.5, self.rng)
        for directory in self._directories(life).values():
            directory.mkdir()
        self._write(life)
        self._write_parent()

    def end(self, life: Life, seconds: float) -> None:
        """Let the last process end."""
        life.use(seconds, self.rng)
        life.has_ended = True
        self._write(life)
        self._write_parent()

    def remove(self, life: Life) -> None:
        """Remove the cgroups of a job: what reads a file that is still open finds nothing in it."""
        self._removed += life.cpu
        del self.lives[life.job]
        for directory in self._directories(life).values():
            for file in directory.iterdir():
                file.write_bytes(b"")
            shutil.rmtree(directory)
        self._write_parent()

    def attach(self, disk: str) -> None:
        """Detach a disk, with all that jobs did there, or attach it again."""
        (self.disks.remove if disk in self.disks else self.disks.append)(disk)
        for life in self.lives.values():
            if not life.has_ended:
                life.disks = {one: life.disks.get(one, NO_COUNTS) for one in self.disks}
                self._write(life)

    def _directories(self, life: Life) -> dict[str, Path]:
        name = f"user_{life.job}" if self.form == "oar" else f"job_{life.job}"
        return {controller: parent / name for controller, parent in self.parents.items()}

    def _write(self, life: Life) -> None:
        of, disks = self._directories(life), life.disks.items()
        if self.form == "v2":
            directory = of[""]
            (directory / "cpu.stat").write_text(_cpu_stat(life.cpu))
            (directory / "memory.current").write_text("4096\n")
            lines = (f"{disk} rbytes={one[0]} wbytes={one[1]} rios={one[2]} wios={one[3]} dbytes=0 dios=0\n" for disk, one in disks)
            (directory / "io.stat").write_text("".join(lines))
            (directory / "cgroup.events").write_text(f"populated {int(not life.has_ended)}\nfrozen 0\n")
            return
        (of["cpuacct"] / "cpuacct.usage").write_text(f"{life.cpu * 1000}\n")
        (of["memory"] / "memory.usage_in_bytes").write_text("4096\n")
        for name, first in (("io_service_bytes", 0), ("io_serviced", 2)):
            lines = (f"{disk} Read {one[first]}\n{disk} Write {one[first + 1]}\n" for disk, one in disks)
            (of["blkio"] / f"blkio.throttle.{name}_recursive").write_text("".join(lines))

    def _write_parent(self) -> None:
        used = self._removed + sum(life.cpu for life in self.lives.values())
        if self.form == "v2":
            (self.parents[""] / "cpu.stat").write_text(_cpu_stat(used))
        else:
            (self.parents["cpuacct"] / "cpuacct.usage").write_text(f"{used * 1000}\n")


def _cpu_stat(cpu: int) -> str:
    return f"usage_usec {cpu}\nuser_usec {cpu - cpu // 4}\nsystem_usec {cpu // 4}\n"


class Agent:
    """The agent of a node, from a start to the next one."""

    def __init__(self, node: Node, session: str) -> None:
        names = tuple(sensor.name for sensor in SENSORS if sensor.name not in USED)
        self._sampler = Sampler(sensors_of(Tree(str(node.kernel.root)), None, names))
        metrics = {metric.name: metric for sensor in self._sampler.sensors for metric in sensor.metrics}
        rows = Rows(metrics.values())
        self._node = node
        self._recorder = Recorder(
            self._sampler, rows, lambda _found: None, lambda: clock_offset(node.time, node.monotonic, lambda: 0.0), self._clock_set
        )
        self.link = Link(
            node.hub.context(self._heard), "tcp://hub:5561", AgentKeys(b"", b"", b""), node.name, session, "1.0", ROW_SECONDS,  # type: ignore[arg-type]
            [metric for metric in metrics.values() if not metric.is_of_job], rows.job_metrics, NodeRows(metrics, rows, self._settle),
            node.time, node.monotonic, node.rng,
        )  # fmt: skip
        self._sums: dict[Life, tuple[dict[str, Counts], Counts]] = {}
        self._is_called = self.is_closed = False

    def sample(self) -> None:
        """Sample as the agent's loop does."""
        self._recorder.follow_clock()
        self._recorder.sample(self._node.monotonic(), self._node.time())
        self._note()
        self.link.turn()

    def heed(self) -> None:
        """Take what inotify reports."""
        self._recorder.wait(0.0, self._node.monotonic, self._node.time, ())
        self._note()

    def close(self) -> None:
        """End the process."""
        self.is_closed = True
        self._sampler.close()
        self.link.close()

    def _note(self) -> None:
        """Note what the agent may report of each job: what it reads now, or the disks as it read them before."""
        for life in self._node.kernel.lives.values():
            parts, sums = self._sums.get(life, ({}, NO_COUNTS))
            grown = [
                # A disk that was detached and attached again between two samples has counted less.
                tuple(max(now - before, 0) for now, before in zip(counts, parts.get(disk, NO_COUNTS), strict=True))
                for disk, counts in life.disks.items()
            ]
            now: Counts = tuple(map(sum, zip(sums, *grown, strict=True)))  # type: ignore[assignment]
            self._sums[life] = dict(life.disks), now
            for name, values in zip(COUNTS, zip(sums, now, strict=True), strict=True):
                life.seen[life.cpu][name].update(values)

    def note_end(self, life: Life) -> None:
        """Note what the agent may report of a job whose cgroup is removed."""
        _, sums = self._sums.get(life, ({}, NO_COUNTS))
        for name, value in zip(COUNTS, sums, strict=True):
            life.seen[life.cpu][name].add(value)

    def _heard(self) -> None:
        """Turn the link once a message has come, and once all answers to it are due."""
        if not self._is_called:
            self._is_called = True
            self._node.loop.call_later(0.0, self._turn, True)

    def _turn(self, again: bool) -> None:  # noqa: FBT001 - a callback's
        if self.is_closed:
            return
        self.link.turn()
        self._is_called = again
        if again:
            self._node.loop.call_later(ANSWER_SECONDS, self._turn, False)

    def _settle(self) -> None:
        self._recorder.follow_clock()
        self._recorder.settle()

    def _clock_set(self, _seconds: float) -> None:
        self.link.greet_again()


class Node:
    """A node: its kernel, its agent and its clock. ahead: by how many seconds that is wrong."""

    def __init__(self, name: str, loop: SimulatedLoop, clock: MachineClock, hub: HubMachine, directory: Path, seed: int) -> None:
        self.name, self.loop, self.hub = name, loop, hub
        self.rng = random.Random(f"{name}/{seed}")
        self.ahead = 0.0
        self._clock, self._directory = clock, directory
        self.form, self.boots, self.jobs = self.rng.choice(FORMS), 0, 0
        self.lives: dict[str, Life] = {}
        self.agent: Agent | None = None
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._agent_at = self._advanced = 0.0

    def time(self) -> float:
        """Return the time of the node's clock."""
        return self._clock.true_time() + self.ahead

    def monotonic(self) -> float:
        """Return seconds that never jump."""
        return self.loop.now

    async def run(self) -> None:
        """Let jobs come and go, and the agent sample, until it is cancelled. Restarts of the agent or the node come between."""
        self.boot()
        while True:
            await asyncio.sleep(max(0.0, self._due[0][0] - self.loop.now))
            while self._due and self._due[0][0] <= self.loop.now:
                heapq.heappop(self._due)[2]()

    def boot(self) -> None:
        """Start the node: no job has outlived it."""
        self.stop_agent()
        self.boots += 1
        self._due.clear()
        self.kernel = Kernel(self._directory / f"{self.name}-{self.boots}", self.form, self.rng)
        self._agent_at = self.loop.now + self.rng.uniform(1.0, 60.0)
        self._at(1.0, self._tick)
        # Some jobs run before the agent does.
        self._at(self.rng.choice((0.5, self._until_next())), self._begin)
        self._advanced = self.loop.now

    def stop_agent(self) -> None:
        """Kill the agent."""
        if self.agent is not None:
            self.agent.close()
        self.agent = None

    def restart_agent(self) -> None:
        """Kill the agent, and start another one after a while."""
        self.stop_agent()
        self._agent_at = self.loop.now + self.rng.uniform(0.0, 90.0)

    def _at(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.loop.now + seconds, self.rng.randrange(2**32), what))

    def _until_next(self) -> float:
        """Return the seconds until the next job begins: for some until the last second of a minute."""
        seconds = self.rng.expovariate(1 / 500)
        if self.rng.random() < LAST_SECOND:
            at = self._clock.true_time() + seconds
            seconds += at // 60 * 60 + 59 + self.rng.random() - at
        return max(seconds, 0.5)

    def _tick(self) -> None:
        seconds, self._advanced = self.loop.now - self._advanced, self.loop.now
        self.kernel.advance(seconds)
        if self.agent is None and self.loop.now >= self._agent_at:
            self.agent = Agent(self, f"{self.rng.randrange(2**32):08x}")
        if self.agent is not None:
            self.agent.sample()
        self._at(TICK_SECONDS if self.kernel.lives else IDLE_TICK_SECONDS, self._tick)

    def _begin(self) -> None:
        if self.loop.now > NODE_SECONDS:
            return
        self.jobs += 1
        life = self.lives[str(1000 + self.jobs)] = Life(str(1000 + self.jobs), self.rng.choice((0.5, 2, 30)))
        self.kernel.begin(life)
        self._heed(0.9)
        self._at(self.rng.choice((0.2, 5.0, 60.0, 1000.0, 4000.0)) * (0.5 + self.rng.random()), lambda: self._end(life))
        self._at(self._until_next(), self._begin)

    def _end(self, life: Life) -> None:
        self.kernel.end(life, self.rng.random())
        if self._heed(0.7):
            self._at(self.rng.uniform(0.1, 40.0), lambda: self._remove(life))
        else:
            self._remove(life)

    def _remove(self, life: Life) -> None:
        if self.agent is not None:
            self.agent.note_end(life)
        self.kernel.remove(life)
        self._heed(1.0)

    def _heed(self, share: float) -> bool:
        """Let the agent take what inotify reports, or leave it for later."""
        heeds = self.rng.random() < share
        if heeds and self.agent is not None:
            self.agent.heed()
        return heeds


class Nodes:
    """The nodes of a site, and what the job table must hold of their jobs. jumps: how often a node's clock was set."""

    def __init__(self, loop: SimulatedLoop, clock: MachineClock, hub: HubMachine, directory: Path, calendar: Calendar, seed: int) -> None:
        rng = random.Random(f"nodes/{seed}")
        self.hub, self.seed, self.jumps, self._loop, self._calendar = hub, seed, 0, loop, calendar
        self.all = [Node(f"nid{number:03d}", loop, clock, hub, directory / "nodes", seed) for number in range(rng.choice((1, 2)))]
        self.newest: dict[tuple[bytes, bytes], int] = {}

    def run(self) -> Iterator[object]:
        """Yield the coroutines of the hub and of all nodes."""
        yield self.hub.keep()
        yield from (node.run() for node in self.all)

    def close(self) -> None:
        """Give what agents hold back."""
        for node in self.all:
            node.stop_agent()

    def settle(self) -> None:
        """Set all clocks right."""
        for node in self.all:
            node.ahead = 0.0

    def set_clock(self, node: Node, seconds: float, after: float) -> None:
        """Let the clock of a node jump, and put it right after a while."""
        self.jumps += 1
        node.ahead += seconds
        self._loop.call_later(after, self.put_right, node)

    def put_right(self, node: Node) -> None:
        """Set a clock to the right time."""
        node.ahead = 0.0

    def note(self, collected: Collected) -> None:
        """Note what is acknowledged."""
        for rows in collected.tables:
            values = dict(zip(rows.columns, (one.tolist() for one in rows.values), strict=True))
            for target, job, cpu in zip(values["target"], values["job"], values.get(CPU, ()), strict=False):
                key = target, job
                self.newest[key] = max(self.newest.get(key, 0), cpu)

    def check(self, root: Path, *, with_sums: bool, is_ordered: bool, scratch: Path | None) -> tuple[int, int]:
        """Compare the table with what was acknowledged and what jobs used. Raises Wrong; as JobServers.check()."""
        days = Days((root,), SYSTEM)
        found = read(days.dates().values(), 0, 2**40)
        self._check_acknowledged(found)
        truth = self._truth(found)
        rng = random.Random(f"sums/{self.seed}/{len(found)}")
        return len(found), with_sums and check_sums(days, truth, rng, is_ordered=is_ordered and not self.jumps, scratch=scratch)

    def _check_acknowledged(self, found: JobRows) -> None:
        there: dict[tuple[bytes, bytes], int] = {}
        for job, target, cpu in zip(found.job.tolist(), found.target.tolist(), found.counts.get(CPU, np.empty(0)).tolist(), strict=False):
            key = found.targets[target], found.jobs[job]
            there[key] = max(there.get(key, UNKNOWN), cpu)
        for key, cpu in self.newest.items():
            if there.get(key, UNKNOWN - 1) < cpu:
                raise Wrong(f"acknowledged, but not in the job table: {cpu} us of {key}; there is {there.get(key)}")

    def _truth(self, found: JobRows) -> Truth:
        """Return the rows of a table as the nodes counted them. Raises Wrong."""
        names = {name for name in found.counts if not is_state(name)}
        lives = {(node.name, job): life for node in self.all for job, life in node.lives.items()}
        keys, targets = found.jobs.tolist(), [target.decode() for target in found.targets.tolist()]
        cpu, kept = found.counts.get(CPU, np.empty(0, np.int64)), []
        for row in range(len(found)):
            job, target = id_of(keys[found.job[row]]).partition(":")[0], targets[found.target[row]]
            values = {name: int(found.counts[name][row]) for name in names}
            if values[CPU] == UNKNOWN:
                continue
            known = lives.get((target, job))
            if known is None or values[CPU] not in known.seen or not _is_right(known.seen[values[CPU]], values):
                allowed = known and {name: sorted(of) for name, of in known.seen.get(values[CPU], {}).items()}
                raise Wrong(f"the job table: {target} {job}, {iso(int(found.columns['time'][row]))}: {values}, where it had {allowed}")
            kept.append(row)
        pairs, number = np.unique(found.job * max(len(targets), 1) + found.target, return_inverse=True)
        truth = Truth(
            [(keys[one // len(targets)], targets[one % len(targets)]) for one in pairs.tolist()],
            number, np.zeros_like(cpu), cpu, found.columns["time"], found.columns["begin"] // BILLION,
            {name: found.counts[name] for name in names}, self._seen(found),
        )  # fmt: skip
        return truth.taken(np.array(kept, np.int64))

    def _seen(self, found: JobRows) -> NDArray[np.int64]:
        """Return the end of the window in which a node was last heard of before each row."""
        time, seen = found.columns["time"], np.zeros(len(found), np.int64)
        for target in np.unique(found.target).tolist():
            of = found.target == target
            times = np.unique(time[of])
            ends = [self._calendar.window(one, WINDOW).end for one in times.tolist()]
            seen[of] = np.array([0, *ends], np.int64)[np.searchsorted(times, time[of])]
        return seen


def _is_right(allowed: dict[str, set[int]], values: dict[str, int]) -> bool:
    return all(value == UNKNOWN or value in allowed[name] for name, value in values.items() if name in COUNTS)
