"""Jobs in trees of directories that stand in for the kernel's cgroups: each scheduler's forms, v1, v2 and both, and jobs that end."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tokiod.agent import cgroup_watches
from tokiod.agent.hierarchies import OF_USER, UNKNOWN
from tokiod.agent.job_patterns import site_forms
from tokiod.agent.removed_cgroups import ATTEMPTS, RemovedChildren
from tokiod.agent.rows import Rows
from tokiod.agent.sampler import Sampler
from tokiod.agent.sensor import Readings
from tokiod.agent.sensors import jobs as jobs_sensor
from tokiod.agent.sensors.jobs import ELSEWHERE_SECONDS, EMPTY_SECONDS, LEFT_BEHIND, NO_CPU, SECOND_CGROUP, Jobs
from tokiod.agent.tree import HeldFile, Tree

REPOSITORY = Path(__file__).parents[2]
STRANGERS = REPOSITORY.parent / "shared" / "data" / "strangers" / "nodes"
SCOPE = "system.slice/slurmstepd.scope"
SLURM_WITHOUT_CPU = f"{NO_CPU}: JobAcctGatherType is not jobacct_gather/cgroup"
RIGHT = {
    "n05_slurm_v1_no_cpuacct": ({"slurm:13759490": None}, {SLURM_WITHOUT_CPU: 1}),
    "n06_lsf_v1": ({"lsf:1011": 5.0}, {}),
    "n07_pbs_comounted": ({"pbs:0.headnode": 5.0}, {}),
    "n14_pbs_v2": ({"pbs:12345": 5.0, "pbs:12345.2": 5.0}, {}),
    "n19_slurm_multiple": ({"slurm:36": 5.0}, {}),
    "n22_oar_links": ({"oar:1234": 5.0}, {}),
    "n23_slurm_2605": ({"slurm:sEKNKTV3WPV500": 5.0}, {}),
    "n24_slurm_stale": ({"slurm:8001": 5.0}, {LEFT_BEHIND: 3}),
    "n25_slurm_in_pod": ({"slurm:4": 5.0}, {}),
    "n27_condor_static": ({"htcondor:slot1": 5.0, "htcondor:slot1_23": 5.0}, {}),
}
"""CPU seconds of the jobs, and what is counted."""


class Node:
    """A tree of cgroups, and the sensor that reads it, one sample a second."""

    def __init__(self, root, events=(), forms=()):
        self.root, self.now = root, 0.0
        self.sampler = Sampler([Jobs(Tree(str(root)), events, forms)])
        self.rows = Rows(Jobs.metrics)
        self.ends, self.drops, self.seconds = [], Counter(), []

    def v2(self, path, microseconds, populated=1, hierarchy="sys/fs/cgroup", **files):
        """Write the files of a cgroup."""
        self.write(f"{hierarchy}/cgroup.controllers", "")
        self.write(f"{hierarchy}/{path}/cpu.stat", f"usage_usec {microseconds}\nuser_usec {microseconds}\nsystem_usec 0\n")
        self.write(f"{hierarchy}/{path}/cgroup.events", f"populated {populated}\nfrozen 0\n")
        for name, text in files.items():
            self.write(f"{hierarchy}/{path}/{name.replace('_', '.')}", text)

    def v1(self, path, seconds, base="sys/fs/cgroup", controller="cpuacct"):
        self.write(f"{base}/{controller}/{path}/cpuacct.usage", f"{seconds * 10**9:.0f}\n")

    def memory(self, path, octets=7, faults=1):
        self.write(f"sys/fs/cgroup/memory/{path}/memory.usage_in_bytes", f"{octets}\n")
        self.write(f"sys/fs/cgroup/memory/{path}/memory.stat", f"total_pgfault {faults}\n")

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def remove(self, *paths):
        for path in paths:
            shutil.rmtree(self.root / path)

    def sample(self, seconds=1.0):
        """Let time pass in seconds; return the CPU seconds of the jobs in the last sample, None where they have none."""
        for _ in range(max(1, int(seconds))):
            for found in (self.sampler.wait(0.0, lambda: self.now), self.sampler.sample(self.now)):
                self.rows.take(found, self.now)
                readings = found.get("jobs")
                if readings is None:
                    continue
                self.ends += [(end.job, end.values.get("job_cpu"), end.is_exact) for end in readings.ended]
                self.drops.update(readings.drops)
            self.now += 1.0
        names = {job for job, _, _ in readings.jobs}
        return {job: readings.jobs.get((job, "", "job_cpu")) for job in names}

    def charged(self):
        """Return the CPU seconds that a reader of the rows charges to each job: its counts begin at zero with each begin."""
        total, before = Counter(), {}
        for start in self.rows.starts():
            row = self.rows.at(start)
            for state in (*row.ended, *row.jobs.values()):
                value = state.values[self.rows._places["job_cpu"]]
                begin, last = before.get(state.job, (state.begin, 0.0))
                total[state.job] += value - (last if begin == state.begin else 0.0)
                before[state.job] = state.begin, value
        return dict(total)


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    made.sampler.close()
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]  # noqa: PTH208 - names alone
    held = [str(Path(link).readlink()) for link in links if os.path.lexists(link)]
    assert not [file for file in held if file.startswith(f"{tmp_path}/") or "inotify" in file]


@pytest.mark.parametrize("name", RIGHT)
def test_the_agent_reports_of_a_strangers_tree_what_is_right(name, tmp_path):
    tree = STRANGERS / name / "tree.json"
    if not tree.exists():
        pytest.skip("no ../shared here")
    subprocess.run([sys.executable, STRANGERS / "unpack.py", tree, tmp_path], check=True)
    command = [sys.executable, "-m", "tokiod.agent", "--once", "--json", "--root", tmp_path]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, cwd=REPOSITORY).stdout)
    of_jobs = [row for row in said["jobs"] if row["sensor"] == "jobs"]
    cpu = {row["job"]: None for row in of_jobs} | {row["job"]: row["value"] for row in of_jobs if row["metric"] == "job_cpu"}
    drops = {row["reason"]: row["count"] for row in said["dropped"] if row["sensor"] == "jobs"}
    assert (cpu, drops, said["ended"]) == (*RIGHT[name], [])


V1_FORMS = {
    "slurm/uid_1/job_5": "slurm:5",
    "pbspro/5.head": "pbs:5.head",
    "pbspro.slice/pbspro-5.head.slice": "pbs:5.head",
    "pbs_jobs.service/jobid/5[2].head": "pbs:5[2].head",
    "lsf/prod/job.5.77.1452015131": "lsf:5",
    "UGE/5.1": "sge:5.1",
    "oar/alice_5": "oar:5",
    "htcondor/condor_var_lib_condor_execute_slot1_5@n": "htcondor:slot1_5",
    "torque/5.head": "torque:5.head",
}
V2_FORMS = {
    f"{SCOPE}/job_5": "slurm:5",
    f"{SCOPE}/sEKNKTV3WPV500": "slurm:sEKNKTV3WPV500",
    "pbs_jobs.service/jobs/5.2": "pbs:5.2",
    "lsf/prod/job.5.77.1452015131": "lsf:5",
    "ocs8012.slice/ocs8012-jobs.slice/ocs8012.5.1.scope": "sge:5.1",
    "oar.slice/oar-u1.slice/oar-u1-j5.slice": "oar:5",
    "system.slice/htcondor/_var_lib_condor_execute_slot1_5@n": "htcondor:slot1_5",
}


@pytest.mark.parametrize("path", V2_FORMS)
@pytest.mark.parametrize("hierarchy", ["sys/fs/cgroup", "sys/fs/cgroup/unified"])
def test_a_job_on_v2_is_measured(node, path, hierarchy):
    node.v2(path, 2_000_000, hierarchy=hierarchy)
    assert (node.sample(), dict(node.drops)) == ({V2_FORMS[path]: 2.0}, {})


@pytest.mark.parametrize("path", V1_FORMS)
@pytest.mark.parametrize("controller", ["cpuacct", "cpu,cpuacct", "blkio,cpuacct,memory"])
def test_a_job_on_v1_is_measured(node, path, controller):
    node.v1(path, 2, controller=controller)
    assert (node.sample(), dict(node.drops)) == ({V1_FORMS[path]: 2.0}, {})


@pytest.mark.parametrize("path", V1_FORMS)
def test_a_job_that_is_in_no_cgroup_with_cpu_time_is_reported_without_it_and_counted(node, path):
    node.v1("", 9)
    node.memory(path, 7)
    scheduler = V1_FORMS[path].partition(":")[0]
    assert node.sample() == {V1_FORMS[path]: None}
    assert dict(node.drops) == {SLURM_WITHOUT_CPU if scheduler == "slurm" else NO_CPU: 1}
    node.sample(30)
    assert node.drops.total() == 1
    node.remove(f"sys/fs/cgroup/memory/{path}")
    node.sample(2)
    assert (node.ends, node.drops.total()) == ([(V1_FORMS[path], None, False)], 1)


def test_a_job_of_which_nothing_is_counted_is_a_reason(node):
    node.v1("", 9)
    node.write("sys/fs/cgroup/freezer/slurm/uid_1/job_5/cgroup.procs", "1\n")
    node.write("sys/fs/cgroup/cpuset/slurm/uid_1/job_5/cgroup.procs", "1\n")
    assert node.sample(30) == {}
    assert dict(node.drops) == {SLURM_WITHOUT_CPU: 1}
    node.remove("sys/fs/cgroup/freezer/slurm/uid_1/job_5", "sys/fs/cgroup/cpuset/slurm/uid_1/job_5")
    node.sample(2)
    assert node.ends == []
    assert not any(vars(node.sampler.sensors[0])[name] for name in ("_named", "_bare", "_counted", "_elsewhere"))


@pytest.mark.parametrize("late", [0, 2, 5, 6, 9])
def test_a_job_whose_cgroup_in_cpuacct_comes_last_has_its_cpu_time_and_one_end(node, late):
    """Slurm makes the ones in freezer, cpuset and memory first."""
    node.v1("slurm", 0)
    node.memory("slurm", 0)
    node.sample()
    node.memory("slurm/uid_1/job_5", 7)
    for _ in range(late):
        node.sample()
    node.v1("slurm/uid_1/job_5", 3)
    assert node.sample(2) == {"slurm:5": 3.0}
    assert dict(node.drops) == ({SLURM_WITHOUT_CPU: 1} if late > ELSEWHERE_SECONDS else {})
    node.remove("sys/fs/cgroup/cpuacct/slurm/uid_1", "sys/fs/cgroup/memory/slurm/uid_1")
    node.sample(2)
    assert [(job, cpu) for job, cpu, _ in node.ends] == [("slurm:5", 3.0)]


def test_memory_that_comes_after_cpuacct_is_read(node):
    """LSF makes the one in cpuacct first."""
    node.v1("lsf/prod", 0)
    node.memory("lsf/prod", 0)
    node.sample()
    node.v1("lsf/prod/job.5.7.1", 0)
    node.sample()
    node.memory("lsf/prod/job.5.7.1", 7)
    node.v1("lsf/prod/job.5.7.1", 1)
    node.sample(12)
    places = {name: node.rows._places[name] for name in ("job_cpu", "job_mem", "job_page_faults")}
    assert [node.rows.at(0.0).jobs["lsf:5", ""].values[place] for place in places.values()] == [1.0, 7.0, 1.0]


def test_a_job_of_oar_is_met_once_through_its_links(node):
    for controller in ("cpuacct", "cpuset"):
        node.write(f"sys/fs/cgroup/{controller}/tasks", "")
        link = node.root / "dev/oar_cgroups_links" / controller
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(node.root / "sys/fs/cgroup" / controller)
    node.sample()
    node.write("sys/fs/cgroup/cpuset/oar/alice_5/tasks", "1\n")
    node.v1("oar/alice_5", 3)
    assert node.sample(3) == {"oar:5": 3.0}
    node.v1("oar/alice_5", 11)
    node.sample(3)
    node.remove("sys/fs/cgroup/cpuacct/oar", "sys/fs/cgroup/cpuset/oar")
    node.sample(3)
    assert [(job, cpu) for job, cpu, _ in node.ends] == [("oar:5", 11.0)]
    assert (node.charged(), node.drops.keys() <= {"end of a job not sampled"}) == ({"oar:5": 11.0}, True)


def test_oars_links_to_a_part_of_a_hierarchy_or_to_the_only_mount_are_met_once(node):
    node.v1("oardocker/n1/oar/alice_5", 3)
    (node.root / "dev/oar_cgroups_links").mkdir(parents=True)
    (node.root / "dev/oar_cgroups_links/cpuacct").symlink_to(node.root / "sys/fs/cgroup/cpuacct/oardocker/n1")
    assert (node.sample(), dict(node.drops)) == ({"oar:5": 3.0}, {})


def test_hierarchies_that_oar_alone_mounted_are_found(node):
    node.v1("oar/alice_5", 3, base="dev", controller="oar_cgroups")
    (node.root / "dev/oar_cgroups_links").mkdir(parents=True)
    for controller in ("cpuacct", "cpuset"):
        (node.root / "dev/oar_cgroups_links" / controller).symlink_to("../oar_cgroups")
    assert (node.sample(), dict(node.drops)) == ({"oar:5": 3.0}, {})


@pytest.mark.parametrize("first", ["v1", "v2", "at the start"])
def test_a_job_in_both_hierarchies_of_a_hybrid_node_is_one_job_with_all_its_figures(node, first):
    node.write("sys/fs/cgroup/unified/cgroup.controllers", "")
    node.v1("grid.slice/grid-jobs.slice", 0)
    node.memory("grid.slice/grid-jobs.slice", 0)
    path = "grid.slice/grid-jobs.slice/grid.5.scope"

    def in_v1(seconds):
        node.memory(path, 7, faults=3)
        node.v1(path, seconds)

    def in_v2(seconds):
        node.v2(path, int(seconds * 10**6), hierarchy="sys/fs/cgroup/unified")

    if first != "at the start":
        node.sample()
    for make in (in_v1, in_v2) if first == "v1" else (in_v2, in_v1):
        make(0.0)
        if first != "at the start":
            node.sample()
    for seconds in (50.0, 130.0):
        in_v1(seconds)
        in_v2(seconds)
        assert node.sample(12) == {"sge:5": seconds}
    state = node.rows.at(0.0).jobs["sge:5", ""]
    assert [state.values[node.rows._places[name]] for name in ("job_mem", "job_page_faults")] == [7.0, 3.0]
    node.v2(path, 130 * 10**6, populated=0, hierarchy="sys/fs/cgroup/unified")
    node.sample()
    node.remove(*(f"sys/fs/cgroup/{one}/{path}" for one in ("unified", "cpuacct", "memory")))
    node.sample(3)
    assert node.ends == [("sge:5", 130.0, True)]
    assert (node.charged(), dict(node.drops)) == ({"sge:5": 130.0}, {})
    assert not any(vars(node.sampler.sensors[0])[name] for name in ("jobs", "_ended", "_named", "_bare", "_counted", "_elsewhere"))


def test_the_second_cgroup_of_a_job_in_one_hierarchy_is_counted_once(node):
    for scope in ("n1", "n2"):
        node.v2(f"system.slice/{scope}_slurmstepd.scope/job_5", 2_000_000)
    assert [node.sample() for _ in range(12)] == [{"slurm:5": 2.0}] * 12
    assert dict(node.drops) == {SECOND_CGROUP: 1}


@pytest.mark.parametrize("is_blind", [False, True])
def test_a_job_that_ran_and_is_empty_has_one_end_and_no_more_rows(node, is_blind, monkeypatch):
    """Slurm left its cgroup behind, which keeps memory."""
    if is_blind:
        monkeypatch.setattr(cgroup_watches, "Inotify", no_inotify)
    node.v2(f"{SCOPE}/job_5", 2_000_000, memory_current="7\n")
    node.v2(f"{SCOPE}/job_6", 0, populated=0)
    assert node.sample().keys() == {"slurm:5", "slurm:6"}
    node.v2(f"{SCOPE}/job_5", 3_000_000, populated=0, memory_current="7\n")
    node.sample(EMPTY_SECONDS + 3)
    assert node.ends == [("slurm:5", 3.0, True)]
    # One that is empty and has used nothing has not begun.
    assert [node.sample().keys() for _ in range(120)] == [{"slurm:6"}] * 120
    node.remove(f"sys/fs/cgroup/{SCOPE}/job_5")
    node.sample(11)
    assert (node.ends, node.drops.keys() <= {"unreadable"}) == ([("slurm:5", 3.0, True)], True)
    assert [job for job, _ in node.rows.at(60.0).jobs] == ["slurm:6"]
    assert "slurm:5" not in vars(node.sampler.sensors[0])["_named"]


def no_inotify():
    raise OSError(24, "no inotify")


def test_without_inotify_a_job_is_found_by_the_search_of_each_ten_seconds(node, monkeypatch):
    monkeypatch.setattr(cgroup_watches, "Inotify", no_inotify)
    node.v2(f"{SCOPE}/job_4", 0)
    node.sample()
    node.v2(f"{SCOPE}/job_5", 2_000_000)
    assert ["slurm:5" in node.sample() for _ in range(12)] == [False] * 9 + [True] * 3
    node.remove(f"sys/fs/cgroup/{SCOPE}/job_5")
    # The kernel gives no more to read of an open file, which a directory on disk does.
    node.sampler.sensors[0].jobs[f"sys/fs/cgroup/{SCOPE}/job_5"].close()
    assert (node.sample().keys(), [job for job, *_ in node.ends]) == ({"slurm:4"}, ["slurm:5"])


def test_a_directory_that_cannot_be_watched_is_counted_and_searched(node, monkeypatch):
    def no_watch(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cgroup_watches.Inotify, "watch", no_watch)
    node.v2(f"{SCOPE}/job_5", 2_000_000)
    found = node.sampler.sample(0.0)["jobs"]
    assert (found.drops["no inotify watch"], found.examples["no inotify watch"]) == (3, "sys/fs/cgroup: No space left on device")
    assert (found.drops["unreadable"], found.jobs["slurm:5", "", "job_cpu"]) == (1, 2.0)
    node.now = 1.0
    node.v2(f"{SCOPE}/job_6", 3_000_000)
    assert node.sample(10)["slurm:6"] == 3.0


@pytest.mark.parametrize(("levels", "found"), [(8, {"slurm:5": 2.0}), (9, {})])
def test_a_job_is_looked_for_in_ten_levels_of_directories(node, levels, found):
    node.v2("/".join(["d"] * levels) + "/slurmstepd.scope/job_5", 2_000_000)
    assert node.sample() == found


def test_the_files_that_change_slowly_are_read_by_every_ninth_sample_or_by_those_of_each_ten_seconds(node, monkeypatch):
    """Samples may come a little early."""
    reads, read = [], HeldFile.read
    monkeypatch.setattr(HeldFile, "read", lambda self: (reads.append((Path(self.path).name, node.now)), read(self))[1])
    node.v2(f"{SCOPE}/job_5", 2_000_000, memory_current="7\n", memory_stat="pgfault 1\n")
    node.sample(30)
    assert [now for name, now in reads if name == "memory.stat"] == [0, 9, 18, 27]
    assert [now for name, now in reads if name == "memory.current"] == [0, *range(30)]
    reads.clear()
    for now in (40.0, 48.5, 56.9, 65.5):
        node.now = now
        node.sample()
    assert [now for name, now in reads if name == "memory.stat"] == [40, 48.5, 65.5]


@pytest.mark.parametrize("is_blind", [False, True])
def test_a_job_has_ended_when_it_is_empty_for_five_seconds(node, is_blind, monkeypatch):
    if is_blind:
        monkeypatch.setattr(cgroup_watches, "Inotify", no_inotify)
    node.v2(f"{SCOPE}/job_5", 2_000_000)
    node.sample()
    node.v2(f"{SCOPE}/job_5", 2_000_000, populated=0)
    assert [(len(node.sample()), len(node.ends)) for _ in range(7)] == [(1, 0)] * 5 + [(0, 1)] * 2


def test_jobs_are_read_ahead_unless_one_ends_or_begins_soon(node):
    (sensor,) = node.sampler.sensors

    def is_ahead(*, is_rare=False):
        return sensor.read_ahead(node.now, is_rare=is_rare)

    node.v2(SCOPE, 3_000_000)
    node.v2(f"{SCOPE}/job_5", 2_000_000)
    sensor.find()
    assert not is_ahead()
    node.sample()
    assert (is_ahead(), is_ahead(is_rare=True)) == (True, False)
    node.v2(f"{SCOPE}/job_5", 3_000_000)
    assert is_ahead()
    readings = Readings()
    sensor.understand(readings)
    assert readings.jobs == {("slurm:5", "", f"job_{name}"): value for name, value in (("cpu", 3), ("cpu_user", 3), ("cpu_system", 0))}
    sensor._removed["a parent"] = []
    assert not is_ahead()
    sensor._removed.clear()
    sensor._watches.is_blind = True
    assert not is_ahead()
    sensor._watches.is_blind = False
    assert is_ahead()
    node.v2(f"{SCOPE}/job_5", 3_000_000, populated=0)
    node.sample()
    assert not is_ahead()
    node.remove(f"sys/fs/cgroup/{SCOPE}/job_5")
    node.sample(3)
    assert (node.ends, is_ahead()) == ([("slurm:5", 3.0, True)], True)


def test_a_job_that_says_nothing_of_its_processes_goes_on(node):
    node.v2(f"{SCOPE}/job_5", 2_000_000)
    node.sample()
    node.write(f"sys/fs/cgroup/{SCOPE}/job_5/cgroup.events", "populated x\n")
    (readings,) = node.sampler.wait(1.0, lambda: node.now).values()
    assert readings.examples == {"malformed": "cgroup.events of slurm:5: invalid literal for int() with base 10: b'x'"}
    assert (node.sample(EMPTY_SECONDS + 3), node.ends) == ({"slurm:5": 2.0}, [])


def test_a_job_that_is_empty_for_a_moment_has_not_ended(node):
    node.v2(f"{SCOPE}/job_5", 2_000_000)
    for populated in [1, 0, 0, 0, 1] * 8:
        node.v2(f"{SCOPE}/job_5", 2_000_000, populated=populated)
        assert node.sample() == {"slurm:5": 2.0}
    assert node.ends == []


@pytest.mark.parametrize("is_seen", [True, False])
def test_what_runs_in_a_cgroup_that_was_left_behind_is_charged_once(node, is_seen):
    """PBS runs tasks of a job on its other nodes one after the other. Between two looks they come and are gone."""
    node.v2(SCOPE, 0)
    node.sample()
    node.v2(f"{SCOPE}/job_5", 0, populated=0)
    for seconds in (3, 3, 10):
        if is_seen:
            node.v2(f"{SCOPE}/job_5", seconds * 10**6 - 1000, populated=1)
            node.sample(3)
        node.v2(f"{SCOPE}/job_5", seconds * 10**6, populated=0)
        node.sample(EMPTY_SECONDS + 3)
    assert [cpu for _, cpu, _ in node.ends] == ([3.0, 0.0, 7.0] if is_seen else [3.0, 7.0])
    assert node.charged() == {"slurm:5": 10.0}


@pytest.mark.parametrize(("used", "lives"), [(2.0, [2.0]), (0.003, [0.003]), (0.0015, [])])
def test_what_ran_in_a_cgroup_that_was_left_behind_and_is_removed_before_a_look_is_known_by_its_parent(node, used, lives):
    """Less is what the reading of the others may be off by."""
    node.v2(SCOPE, 3_000_000)
    node.v2(f"{SCOPE}/job_5", 3_000_000)
    node.v2(f"{SCOPE}/job_6", 0)
    node.sample()
    node.v2(f"{SCOPE}/job_5", 3_000_000, populated=0)
    node.sample(EMPTY_SECONDS + 3)
    node.v2(f"{SCOPE}/job_5", 3_000_000 + int(used * 10**6), populated=0)
    node.v2(SCOPE, 3_000_000 + int(used * 10**6))
    node.remove(f"sys/fs/cgroup/{SCOPE}/job_5")
    node.sample()
    expected = [("slurm:5", pytest.approx(seconds), True) for seconds in (3.0, *lives)]
    assert (node.ends, dict(node.drops)) == (expected, {})
    assert node.charged()["slurm:5"] == pytest.approx(3.0 + sum(lives))


def test_a_job_on_v1_that_ran_and_is_empty_has_one_end_and_what_runs_later_is_charged_once(node):
    """Univa's Grid Engine leaves such cgroups behind."""
    node.v1("UGE", 0)
    node.sample()
    for seconds, processes in ((0, "1\n"), (3, ""), (3, ""), (8, "")):
        node.v1("UGE/5.1", seconds)
        node.write("sys/fs/cgroup/cpuacct/UGE/5.1/cgroup.procs", "")
        node.write("sys/fs/cgroup/cpuacct/UGE/5.1/77/cgroup.procs", processes)
        node.sample(40)
    assert [(job, cpu) for job, cpu, _ in node.ends] == [("sge:5.1", 3.0), ("sge:5.1", 5.0)]
    assert node.sample() == {}
    assert node.charged() == {"sge:5.1": 8.0}


def test_cgroups_that_were_left_behind_take_no_job_its_place(node, monkeypatch):
    monkeypatch.setattr(jobs_sensor, "MAX_JOBS", 2)
    for number in range(5):
        node.v2(f"{SCOPE}/job_{number}", 1_000_000, populated=0)
    assert node.sample() == {}
    for number in range(10, 13):
        node.v2(f"{SCOPE}/job_{number}", 1_000_000)
    assert len(node.sample(3)) == 2
    assert dict(node.drops) == {LEFT_BEHIND: 5, "too many jobs": 1}


def test_what_a_scheduler_made_and_is_no_known_job_is_counted_once_with_one_example(node):
    node.v1("", 1)
    node.v1("lsf/prod/4711", 3)
    node.memory("lsf/prod/4711")
    assert node.sample(30) == {}
    assert dict(node.drops) == {UNKNOWN: 1}
    node.v1("lsf/prod/4712", 3)
    node.sample()
    assert dict(node.drops) == {UNKNOWN: 2}
    node.remove("sys/fs/cgroup/cpuacct/lsf/prod/4711", "sys/fs/cgroup/cpuacct/lsf/prod/4712", "sys/fs/cgroup/memory/lsf/prod/4711")
    node.sample()
    assert not node.sampler.sensors[0]._counted


def test_a_sites_own_form_is_a_job(tmp_path):
    node = Node(tmp_path, forms=site_forms([r"lsf=lsf/[^/]+/(\d+)"]))
    node.v1("lsf/prod/4711", 3)
    assert (node.sample(), dict(node.drops)) == ({"lsf:4711": 3.0}, {})
    node.sampler.close()


def test_a_cgroup_that_condor_gave_to_the_jobs_user_is_a_job_and_another_ones_is_not(node):
    path = "system.slice/htcondor/_var_lib_condor_execute_slot1_5@n"
    node.v2(path, 2_000_000)
    node.v2("user.slice/session/htcondor/x_slot1_6@n", 2_000_000)
    try:
        for one in (path, "user.slice/session", "user.slice/session/htcondor", "user.slice/session/htcondor/x_slot1_6@n"):
            os.chown(node.root / "sys/fs/cgroup" / one, 1000, 1000)
    except PermissionError:
        pytest.skip("only root gives files to users")
    assert (node.sample(), node.drops.keys() <= {OF_USER}) == ({"htcondor:slot1_5": 2.0}, True)


def test_the_files_of_a_cgroup_that_was_left_behind_are_read_once_at_the_start(node, monkeypatch):
    """But for the two that show whether something ran before it is known to be empty. Nodes have thousands of them."""
    reads = Counter()
    read = HeldFile.read
    monkeypatch.setattr(HeldFile, "read", lambda self: (reads.update([Path(self.path).name]), read(self))[1])
    files = {"memory_current": "7\n", "memory_stat": "pgfault 1\n", "pids_current": "0\n"}
    for number in range(20):
        node.v2(f"{SCOPE}/job_{number}", 1_000_000, populated=0, **files)
    node.v2(f"{SCOPE}/job_20", 1_000_000, **files)
    node.v2(SCOPE, 21_000_000)
    assert (node.sample(), node.drops) == ({"slurm:20": 1.0}, {LEFT_BEHIND: 20})
    assert (reads["memory.stat"], reads["pids.current"], reads["memory.current"], reads["cgroup.events"]) == (21, 21, 42, 21)
    before = +reads
    assert node.sample(20) == {"slurm:20": 1.0}
    assert reads["cgroup.events"] == before["cgroup.events"]
    assert node.ends == []


def test_the_children_of_a_parent_that_are_busy_are_read_once_more_for_each_attempt(node, monkeypatch):
    """The reading after one attempt is that before the next one."""
    node.v2(SCOPE, 100_000_000)
    passes = []

    def busy(self, name):
        if name.endswith("/job_5"):
            passes.append(name)
            node.v2(f"{SCOPE}/job_5", 1_000_000 * len(passes))
        return of(self, name)

    of = RemovedChildren._of
    node.v2(f"{SCOPE}/job_5", 1_000_000)
    monkeypatch.setattr(RemovedChildren, "_of", busy)
    node.sample()
    assert len(passes) == ATTEMPTS + 1


def test_the_children_of_a_parent_are_read_only_for_the_end_of_a_job_that_was_not_read_after_it(node, monkeypatch):
    """With thousands of cgroups that were left behind they take seconds, in which other jobs end."""
    reads = []
    read = RemovedChildren.read
    monkeypatch.setattr(RemovedChildren, "read", lambda self, known: (reads.append(1), read(self, known)))
    for number in (5, 6, 7):
        node.v2(f"{SCOPE}/job_{number}", 1_000_000)
    node.v2(SCOPE, 3_000_000)
    node.sample()
    assert len(reads) == 1
    for number in (5, 6):
        node.v2(f"{SCOPE}/job_{number}", 2_000_000, populated=0)
        node.sample()
        node.remove(f"sys/fs/cgroup/{SCOPE}/job_{number}")
        node.sample()
    assert (len(reads), node.ends) == (1, [("slurm:5", 2.0, True), ("slurm:6", 2.0, True)])
    # It used 5 s of its own after its last sample: the sum has those of the others, too.
    node.v2(SCOPE, 10_000_000)
    node.remove(f"sys/fs/cgroup/{SCOPE}/job_7")
    node.sample()
    assert (len(reads), node.ends[2:], dict(node.drops)) == (2, [("slurm:7", 6.0, True)], {})


def test_a_job_on_v1_that_came_and_is_gone_before_a_look_has_its_cpu_time_by_its_parent(node):
    node.v1("slurm/uid_1", 1)
    node.v1("slurm/uid_1/job_4", 1)
    node.memory("slurm/uid_1/job_4")
    node.sample()
    node.v1("slurm/uid_1/job_5", 2)
    node.v1("slurm/uid_1", 3)
    node.memory("slurm/uid_1/job_5")
    node.remove("sys/fs/cgroup/cpuacct/slurm/uid_1/job_5", "sys/fs/cgroup/memory/slurm/uid_1/job_5")
    node.sample()
    assert (node.ends, dict(node.drops)) == ([("slurm:5", 2.0, True)], {})
    assert node.charged()["slurm:5"] == 2.0


def test_what_ran_unseen_in_a_cgroup_of_v1_that_was_left_behind_is_its_own_and_not_the_next_jobs(node):
    """Nothing reports that processes come into it. The next job ends unread, so the sum of their parent is what is known of it."""
    node.v1("UGE", 3)
    for job, processes in (("5.1", ""), ("6.1", "1\n")):
        node.v1(f"UGE/{job}", 3 if job == "5.1" else 0)
        node.write(f"sys/fs/cgroup/cpuacct/UGE/{job}/cgroup.procs", processes)
    node.sample(12)
    assert dict(node.drops) == {LEFT_BEHIND: 1}
    for job, total in (("5.1", 10), ("6.1", 12)):
        node.v1("UGE", total)
        node.remove(f"sys/fs/cgroup/cpuacct/UGE/{job}")
        node.sample()
    assert node.ends == [("sge:5.1", 7.0, True), ("sge:6.1", 2.0, True)]


def test_the_removal_of_a_cgroup_that_was_left_behind_is_found_where_its_event_is_lost(node):
    node.v2(f"{SCOPE}/job_5", 2_000_000, populated=0)
    node.v2(f"{SCOPE}/job_6", 0)
    node.sample()
    (sensor,) = node.sampler.sensors
    node.remove(f"sys/fs/cgroup/{SCOPE}/job_5")
    list(sensor._watches.changes())
    sensor._watches.changes = lambda: [(cgroup_watches.LOST, None, "")]
    readings = Readings()
    sensor.heed(readings, 2.0)
    assert readings.examples == {"events lost": "inotify's queue was full"}
    assert (list(sensor._ended), list(sensor._named)) == ([], ["slurm:6"])


def test_what_an_unseen_job_used_is_not_another_ones_where_inotify_has_no_watches_left(node, monkeypatch):
    monkeypatch.setattr(cgroup_watches, "Inotify", no_inotify)
    node.v2(SCOPE, 3_000_000)
    node.v2(f"{SCOPE}/job_5", 3_000_000)
    node.sample()
    # A job came and went, which used 7 s.
    node.v2(SCOPE, 10_000_000)
    node.remove(f"sys/fs/cgroup/{SCOPE}/job_5")
    # The kernel gives no more to read of an open file, which a directory on disk does.
    node.sampler.sensors[0].jobs[f"sys/fs/cgroup/{SCOPE}/job_5"].close()
    node.sample(12)
    assert node.ends == [("slurm:5", 3.0, False)]
    assert node.drops["end of a job not sampled"] == 1


@pytest.mark.parametrize(("settled", "asked"), [([True], 1), ([False, False, True], 3), ([False] * 20, 10)])
def test_events_that_came_while_removed_jobs_were_divided_are_taken_before_the_next_sample(tmp_path, settled, asked):
    sensor = Jobs(Tree(str(tmp_path)), ())
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").touch()
    sensor.find()
    sensor.heed(Readings(), 1.0)
    answers = iter(settled)
    sensor._settle = lambda *_: next(answers)
    sensor.heed(Readings(), 2.0)
    assert len(settled) - len(list(answers)) == asked
    sensor.close()
