"""What is read ahead and parsed later makes the same rows as what is parsed at once."""

import random
import shutil
from types import SimpleNamespace

import pytest

from tokiod.agent.recorder import Recorder
from tokiod.agent.rows import Rows
from tokiod.agent.sampler import Sampler
from tokiod.agent.sensors import SENSORS
from tokiod.agent.tree import Tree

BEGIN = 1_800_000_000
SCOPE = "sys/fs/cgroup/system.slice/slurmstepd.scope"


class Node:
    """The files of a node, on which jobs come, compute and end."""

    def __init__(self, root, seed):
        self.root, self.draw = root, random.Random(seed)
        self.cpu, self.counts, self.jobs, self.removed, self.number = [1000] * 10, [10_000, 5_000, 300], {}, 0, 0
        self.octets = 0
        (root / SCOPE).mkdir(parents=True)
        (root / "proc/net").mkdir(parents=True)
        (root / "sys/class/net/eth0/device").mkdir(parents=True)
        (root / "sys/fs/cgroup/cgroup.controllers").touch()
        self.passes()

    def passes(self):
        """Let a second pass."""
        chance = self.draw
        self.cpu = [ticks + chance.randrange(200) for ticks in self.cpu]
        if chance.random() < 0.1:
            # The kernel corrects idle.
            self.cpu[3] -= chance.randrange(200)
        self.counts = [count + chance.randrange(1000) for count in self.counts]
        interrupts, switches, forks = self.counts
        running, blocked = chance.randrange(1, 9), chance.randrange(3)
        text = f"cpu  {' '.join(map(str, self.cpu))}\nintr {interrupts} 1 2\nctxt {switches}\nbtime 1\nprocesses {forks}\n"
        text += f"procs_running {running}\nprocs_blocked {blocked}\nsoftirq 1\n"
        self.write("proc/stat", text if chance.random() > 0.05 else text[: chance.randrange(len(text))])
        self.octets += chance.randrange(10**6)
        self.write("proc/net/dev", f"a\nb\neth0: {self.octets} {' '.join(['7'] * 15)}\n")
        if chance.random() < 0.3 and len(self.jobs) < 5:
            self.number += 1
            self.jobs[self.number] = 0
        for number in list(self.jobs):
            self.computes(number)

    def computes(self, number):
        chance, directory = self.draw, f"{SCOPE}/job_{number}"
        self.jobs[number] += chance.randrange(2 * 10**6)
        fate = chance.random()
        self.write(f"{directory}/memory.current", f"{chance.randrange(10**9)}\n" if chance.random() > 0.05 else "garbage\n")
        self.write(f"{directory}/cpu.stat", self.stat(self.jobs[number]))
        self.write(f"{directory}/cgroup.events", f"populated {int(fate > 0.1)}\n")
        self.write(f"{SCOPE}/cpu.stat", self.stat(self.removed + sum(self.jobs.values())))
        if fate < 0.05:
            self.removed += self.jobs.pop(number)
            shutil.rmtree(self.root / directory)

    @staticmethod
    def stat(used):
        return f"usage_usec {used}\nuser_usec {used}\nsystem_usec 0\n"

    def write(self, path, text):
        (self.root / path).parent.mkdir(exist_ok=True)
        (self.root / path).write_text(text)


def rows_of(tree, names=("cpu", "network", "jobs")):
    sampler = Sampler([sensor(tree) for sensor in SENSORS if sensor.name in names])
    return SimpleNamespace(sampler=sampler, rows=Rows([metric for sensor in sampler.sensors for metric in sensor.metrics]))


def plain(row):
    """Return a row's values and jobs with as many digits as are the same in any order of adding them up."""
    jobs = [(state.job, state.begin, state.time, state.has_ended, state.is_exact, str(list(state.values))) for state in row.jobs.values()]
    jobs += [(state.job, state.begin, state.time, state.has_ended, state.is_exact, str(list(state.values))) for state in row.ended]
    return {key: pytest.approx(value, rel=1e-9, abs=1e-6) for key, value in row.values.items()}, sorted(jobs), row.unknown


@pytest.mark.parametrize("ahead", [300.0, -300.0])
def test_what_was_read_ahead_before_the_clock_was_set_is_in_no_row_after_it(tmp_path, ahead):
    node, of_node, offsets, found = Node(tmp_path, 1), rows_of(Tree(str(tmp_path))), [BEGIN + ahead], []
    recorder = Recorder(of_node.sampler, of_node.rows, offset=lambda: offsets[-1], clock_set=found.append)
    for second in range(200):
        if second == 75:
            offsets.append(float(BEGIN))
        recorder.wait(0.0, lambda now=second: now, lambda now=second: now + offsets[-1], ())
        recorder.follow_clock()
        recorder.sample(float(second), second + offsets[-1])
        node.passes()
    recorder.follow_clock()
    recorder.settle()
    assert found == [-ahead]
    rows = [of_node.rows.at(start) for start in of_node.rows.starts()]
    whole = [row.start for row in rows if ("cpu_user", "") in row.values]
    assert whole == [BEGIN + 120, BEGIN + 180]
    assert {row.start - BEGIN for row in rows if row.values} == {60, 120, 180}
    assert sum(row._counts["processes_running", ""] for row in rows) <= 200 - 75
    of_node.sampler.close()


@pytest.mark.parametrize("seed", range(6))
def test_the_rows_are_those_of_samples_that_are_parsed_at_once(tmp_path, seed):
    """Also where no other sensor ends what is read ahead when a row does, and devices are looked for at other times."""
    node, names, shift = Node(tmp_path, seed), ("cpu",) if seed == 4 else ("cpu", "network", "jobs"), 30 if seed == 4 else 0
    at_once, ahead = rows_of(Tree(str(tmp_path)), names), rows_of(Tree(str(tmp_path)), names)
    drops = []
    recorder = Recorder(ahead.sampler, ahead.rows, lambda found: drops.extend(readings.drops for readings in found.values()))
    for second in range(200):
        now = float(second)
        time = BEGIN + shift + now + (0.0 if seed % 2 else 0.4)
        for found in (at_once.sampler.wait(0.0, lambda now=now: now), at_once.sampler.sample(now)):
            at_once.rows.take(found, time)
        recorder.wait(0.0, lambda now=now: now, lambda time=time: time, ())
        recorder.sample(now, time)
        node.passes()
    recorder.settle()
    assert ahead.rows.starts() == at_once.rows.starts()
    for start in at_once.rows.starts():
        expected, found = plain(at_once.rows.at(start)), plain(ahead.rows.at(start))
        assert {key: of.expected for key, of in found[0].items()} == expected[0]
        assert found[1:] == expected[1:]
    assert sum(len(at_once.rows.at(start).ended) for start in at_once.rows.starts()) > 5 or seed == 4
    assert any(drop["malformed"] for drop in drops)
    at_once.sampler.close()
    ahead.sampler.close()
