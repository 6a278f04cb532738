"""Perf events: what this machine's kernel counts (software events; most virtual machines count nothing else), and reads of garbage.

The tests of the kernel need CAP_PERFMON and are skipped without it, those of jobs also where cgroups cannot be written.
"""

import errno
import json
import mmap
import os
import resource
import shutil
import struct
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from cgroup_jobs import V2, remove, run_in, tree_of

from tokiod.agent import perf_event
from tokiod.agent.configured_events import ConfiguredEvents
from tokiod.agent.perf_event import EVENTS, EventCounts, GroupCount, fitting
from tokiod.agent.rows import Rows
from tokiod.agent.sampler import Sampler
from tokiod.agent.sensor import Readings
from tokiod.agent.sensors.jobs import Jobs
from tokiod.agent.sensors.perf import Perf
from tokiod.agent.tree import Tree

ROOT = Path(__file__).parents[2]
SOFTWARE = ("page_faults", "context_switches", "cpu_migrations")
SECONDS_APART = 0.010
"""What issue 24 allows between two accounts of a job."""


def reading(enabled, ran, *counts):
    """Return what the kernel returns for a read of a group of events."""
    return struct.pack(f"={3 + len(counts)}Q", len(counts), enabled, ran, *counts)


@pytest.fixture(scope="module")
def missing():
    """The events that this machine does not count."""
    try:
        return fitting(EVENTS.values(), 0)[1]
    except OSError as error:
        pytest.skip(f"no perf events here: {error}")


@pytest.fixture
def scope():
    if V2 is None:
        pytest.skip("no cgroup v2 here")
    made = V2 / f"tokiod-perf-{os.getpid()}" / "n1_slurmstepd.scope"
    try:
        made.mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"cannot write {made}: {error.strerror}")
    yield made
    remove(made.parent)


@pytest.fixture
def tree(tmp_path, scope):
    return tree_of(tmp_path / "node", scope.parent)


@pytest.fixture
def once(tmp_path):
    def run(before, **lists):
        keys = [f"{name} = {json.dumps(value)}\n" for name, value in lists.items()]
        config = tmp_path / "agent.toml"
        config.write_text(f'hub = "tcp://a:1"\nhub_key_file = "h"\nkey_file = "k"\n{"".join(keys)}')
        line = [*before, sys.executable, "-S", "-m", "tokiod.agent", "--once", "--json", "--config", str(config), "--seconds", "2"]
        return json.loads(subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout)

    return run


def touch(pages):
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 1


def test_the_numbers_of_events_and_of_the_call_are_those_of_the_kernels_headers(monkeypatch):
    """linux/perf_event.h: perf_hw_id, perf_sw_ids; asm/unistd.h."""
    hardware = {
        "cycles": 0, "instructions": 1, "cache_references": 2, "cache_misses": 3, "branches": 4, "branch_misses": 5, "ref_cycles": 9,
    }  # fmt: skip
    software = {"task_clock": 1, "page_faults": 2, "context_switches": 3, "cpu_migrations": 4}
    assert {name: (event.kind, event.number) for name, event in EVENTS.items()} == {
        **{name: (0, number) for name, number in hardware.items()}, **{name: (1, number) for name, number in software.items()},
    }  # fmt: skip
    assert {name: (event.unit, event.factor) for name, event in EVENTS.items() if event.unit != "1"} == {"task_clock": ("s", 1e-9)}
    assert {event.factor for event in EVENTS.values() if event.unit == "1"} == {1}
    asked = []

    class Libc:
        def syscall(self, number, attributes, *others):
            asked.append((number.value, attributes.raw, *(one.value for one in others)))
            return 5

    monkeypatch.setattr(perf_event, "_libc", Libc)
    calls = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "loongarch64": 241, "ppc64le": 319, "ppc64": 319, "s390x": 331}
    for machine in calls:
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        assert perf_event._open_event(EVENTS["page_faults"], 3, 7 if machine == "x86_64" else -1, 6) == 5
    # Its first version has 64 bytes; read format: both times and the group; flags: closed on exec, of a cgroup.
    attributes = struct.pack("=IIQQQQQIIQ", 1, 64, 2, 0, 0, 1 | 2 | 8, 0, 0, 0, 0) + b"\0"
    assert asked == [(number, attributes, *((7, 3, 6, 12) if number == 298 else (-1, 3, 6, 8))) for number in calls.values()]
    monkeypatch.setattr("platform.machine", lambda: "vax")
    with pytest.raises(OSError, match="unknown number of perf_event_open on vax"):
        perf_event._open_event(EVENTS["page_faults"], 0, -1, -1)


def test_events_of_the_processor_are_counted_three_at_a_time_and_those_of_the_kernel_together(monkeypatch):
    """Of a machine that has all but one, which this one need not be."""

    def opened(event, *_):
        if event.name == "ref_cycles":
            raise OSError(2, "no such event")
        return os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(perf_event, "_open_event", opened)
    before = open_descriptors()
    groups, missing = fitting(EVENTS.values(), 0)
    assert ([[event.name for event in group] for group in groups], missing) == (
        [
            ["cycles", "instructions", "cache_references"], ["cache_misses", "branches", "branch_misses"],
            ["task_clock", "page_faults", "context_switches", "cpu_migrations"],
        ],
        ["ref_cycles"],
    )  # fmt: skip
    assert open_descriptors() == before


@pytest.mark.parametrize(("text", "cpus"), [("0\n", [0]), ("0-2,5,7-8\n", [0, 1, 2, 5, 7, 8]), ("3", [3]), ("", None), ("a-b\n", None)])
def test_the_cpus_that_are_online_are_those_of_the_kernels_list(tmp_path, text, cpus):
    with nullcontext() if cpus else pytest.raises(ValueError, match="invalid literal"):
        assert ConfiguredEvents(tree_of_cpus(tmp_path, text), []).cpus() == cpus


def tree_of_cpus(root, text="0\n"):
    path = root / "sys/devices/system/cpu/online"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return Tree(str(root))


def test_why_an_event_is_not_counted_is_said_once(tmp_path, monkeypatch):
    codes = {}

    def opened(event, *_):
        if code := codes.get(event.name):
            raise OSError(code, os.strerror(code), f"perf event {event.name}")
        return os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(perf_event, "_open_event", opened)
    events, said = ConfiguredEvents(tree_of_cpus(tmp_path), ["cycles", "instructions"]), []
    assert (events.absent, ConfiguredEvents(Tree(), []).absent) == ("not configured", "not configured")
    for refused in (
        {"cycles": errno.EACCES}, {"cycles": errno.ENOSYS}, {"cycles": errno.ENOSYS}, dict.fromkeys(EVENTS, errno.ENOENT),
        {"instructions": errno.EOPNOTSUPP}, {"instructions": errno.EACCES},
    ):  # fmt: skip
        codes.clear()
        codes.update(refused)
        events.find()
        readings = Readings()
        events.report(readings)
        said.append((events.absent, readings.examples))
    denied = "perf event cycles: Permission denied: it needs CAP_PERFMON, as in dropins/agent-perf.conf"
    none, both = "perf event cycles: Function not implemented", "this machine does not count cycles, instructions"
    assert said == [
        (denied, {"no perf events": denied}), (none, {"no perf events": none}), (none, {}), (both, {"no perf events": both}),
        ("", {"event not supported": "this machine does not count instructions"}), ("", {}),
    ]  # fmt: skip


def test_events_that_cannot_be_opened_leave_nothing_open_and_a_cpu_that_went_offline_is_left_out(monkeypatch, tmp_path):
    code = errno.EMFILE

    def opened(event, cpu, *_):
        if (event.name, cpu) == ("cpu_migrations", 1):
            raise OSError(code, os.strerror(code))
        return os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(perf_event, "_open_event", opened)
    before, groups = open_descriptors(), [[EVENTS["page_faults"]], [EVENTS["context_switches"], EVENTS["cpu_migrations"]]]
    with pytest.raises(OSError, match="Too many open files"):
        EventCounts(groups, [1, 0], str(tmp_path))
    assert open_descriptors() == before
    code = errno.ENODEV
    counts = EventCounts(groups, [1, 0], str(tmp_path))
    assert len(open_descriptors()) == len(before) + 3
    counts.close()
    assert open_descriptors() == before


def test_counts_are_what_was_added_since_the_reading_before():
    group = GroupCount([3, 4])
    assert [group.take(reading(10, 10, 5, 7)), group.take(reading(20, 20, 6, 7))] == [[5, 7], [1, 0]]


def test_a_count_that_wraps_goes_on():
    group = GroupCount([3])
    group.take(reading(1, 1, 2**63 - 1))
    group.take(reading(2, 2, 2**64 - 3))
    assert group.take(reading(3, 3, 5)) == [8]


def test_the_time_in_which_others_had_the_counters_is_made_up_for():
    group = GroupCount([3])
    assert [group.take(reading(100, 25, 10)), group.take(reading(200, 25, 10)), group.take(reading(300, 125, 40))] == [[40], [0], [60]]


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\0" * 31, b"\xff" * 32, bytes(range(32)), reading(20, 20, 101, 5), reading(20, 20), reading(20, 20, 99), reading(9, 9, 101)],
)
def test_what_no_kernel_returns_is_refused_and_counting_goes_on(garbage):
    group = GroupCount([3])
    group.take(reading(10, 10, 100))
    with pytest.raises(ValueError, match="perf events: "):
        group.take(garbage)
    group.take(reading(30, 30, 105))
    assert group.take(reading(40, 40, 109)) == [4]


def test_garbage_of_one_cpu_takes_a_reading_and_the_next_one_goes_on():
    counts, writers = EventCounts([[EVENTS["instructions"]]], []), []
    for cpu in range(2):
        fd, writer = os.pipe()
        counts._on[cpu] = [GroupCount([fd])]
        writers.append(writer)
    for first, second in ((reading(1, 1, 5), b"garbage"), (reading(2, 2, 6), reading(2, 2, 10))):
        os.write(writers[0], first)
        os.write(writers[1], second)
        if second == b"garbage":
            with pytest.raises(ValueError, match="7 bytes"):
                counts.read()
    assert counts.read() == {"instructions": 16}
    counts.close()
    for writer in writers:
        os.close(writer)


def test_an_event_that_got_no_counter_has_no_value_until_it_gets_one():
    fd, writer = os.pipe()
    counts = EventCounts([[EVENTS["instructions"]]], [])
    counts._on[0] = [GroupCount([fd])]
    os.write(writer, reading(100, 0, 0))
    assert (counts.read(), counts.waiting) == ({}, ["instructions"])
    os.write(writer, reading(200, 50, 10))
    assert (counts.read(), counts.waiting) == ({"instructions": 40}, [])
    counts.close()
    os.close(writer)


@pytest.mark.parametrize("cpus", [1, 2])
def test_the_node_has_no_count_of_time_in_which_another_program_had_the_counters_of_a_cpu(cpus):
    """From second 300 to 900 the first CPU counts nothing; the others have 1e9 cycles each second."""
    counts, writers, perf = EventCounts([[EVENTS["cycles"]]], []), [], Perf(Tree(), ["cycles"])
    for cpu in range(cpus):
        fd, writer = os.pipe()
        counts._on[cpu] = [GroupCount([fd])]
        writers.append(writer)
    perf._counts = counts
    rows, metrics, ran = Rows(perf.metrics), {metric.name: metric for metric in perf.metrics}, [0] * cpus
    for second in range(0, 1320, 10):
        for cpu, writer in enumerate(writers):
            ran[cpu] += 10 * 10**9 if second and not (cpu == 0 and 300 < second <= 900) else 0
            os.write(writer, reading(second * 10**9, ran[cpu], ran[cpu]))
        readings = Readings()
        perf.sample(readings, second)
        assert dict(readings.drops) == ({"no free counter": 1} if 300 < second <= 900 else {})
        rows.take({"perf": readings}, float(second))
    found = [rows.at(60.0 * minute).of_node(metrics).get("perf_cycles") for minute in range(21)]
    assert found == [*[cpus * 60 * 10**9] * 5, *[None] * 11, *[cpus * 60 * 10**9] * 5]
    perf.close()
    for writer in writers:
        os.close(writer)


def test_the_nodes_events_are_counted_on_all_cpus(missing):
    assert set(missing).isdisjoint(SOFTWARE)
    sampler = Sampler([Perf(Tree(), SOFTWARE)])
    before = sampler.sample(0.0)["perf"].values
    touch(2000)
    # A process that waits for another gives the CPU away.
    subprocess.run(["true"], check=True)
    after = sampler.sample(10.0)["perf"]
    sampler.close()
    grown = {name: after.values[name, ""] - before[name, ""] for name, _ in before}
    assert grown["perf_page_faults"] >= 2000
    assert grown["perf_context_switches"] >= 1
    assert grown["perf_cpu_migrations"] >= 0
    assert dict(after.drops) == {}


@pytest.fixture
def jobless(tmp_path):
    """This machine without what runs in its cgroups."""
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").touch()
    return tree_of_cpus(tmp_path)


def test_what_this_machine_does_not_count_is_reported_once_and_the_rest_goes_on(missing, jobless):
    if "instructions" not in missing:
        pytest.skip("this machine counts instructions")
    sampler = Sampler([Perf(Tree(), ["instructions", "page_faults"]), Jobs(jobless, ["cycles", "page_faults"])])
    first, second = (sampler.sample(now) for now in (0.0, 70.0))
    sampler.close()
    assert [dict(found[name].drops) for found in (first, second) for name in ("perf", "jobs")] == [
        {"event not supported": 1}, {"event not supported": 1}, {}, {},
    ]  # fmt: skip
    assert first["perf"].examples == {"event not supported": "this machine does not count instructions"}
    assert [{name for name, _ in found["perf"].values} for found in (first, second)] == [{"perf_page_faults"}] * 2
    assert sampler.absent == {}


def test_a_machine_that_counts_no_event_has_no_such_sensor_and_its_jobs_are_read(missing, jobless):
    if not {"instructions", "cycles"} <= set(missing):
        pytest.skip("this machine counts them")
    jobs = Jobs(jobless, ["cycles"])
    sampler = Sampler([Perf(Tree(), ["cycles", "instructions"]), jobs])
    first, second = (sampler.sample(now)["jobs"] for now in (0.0, 70.0))
    assert jobs.fileno() is not None
    sampler.close()
    assert sampler.absent == {"perf": "this machine does not count cycles, instructions"}
    assert [first.drops["no perf events"], second.drops["no perf events"]] == [1, 0]


def test_the_node_without_its_list_of_cpus_has_no_such_sensor(tmp_path):
    sampler = Sampler([Perf(Tree(str(tmp_path)), SOFTWARE)])
    sampler.sample(0.0)
    assert sampler.absent == {"perf": f"{tmp_path}/sys/devices/system/cpu/online: No such file or directory"}


@pytest.mark.usefixtures("missing")
def test_a_cpu_that_goes_offline_keeps_what_it_has_counted(tmp_path):
    online = tmp_path / "sys/devices/system/cpu/online"
    online.parent.mkdir(parents=True)
    online.write_text(f"0-{os.cpu_count() - 1}\n")
    perf = Perf(Tree(str(tmp_path)), SOFTWARE)
    sampler = Sampler([perf])
    before = sampler.sample(0.0)["perf"].values
    touch(100)
    held = open_descriptors()
    online.write_text("0\n")
    after = sampler.sample(70.0)["perf"].values
    assert len(held) - len(open_descriptors()) == len(SOFTWARE) * (os.cpu_count() - 1)
    sampler.close()
    assert {name: after[name] >= before[name] for name in before} == dict.fromkeys(before, True)


@pytest.mark.usefixtures("missing")
def test_the_cpu_time_of_a_job_by_its_events_equals_getrusage(scope, tree):
    """Measured from the job's first process on, because the agent has met the cgroup before it."""
    sampler, directory = Sampler([Jobs(tree, ["task_clock", "page_faults"])]), scope / "job_7"
    sampler.sample(0.0)
    directory.mkdir()
    sampler.wait(5.0, time.monotonic)
    used = run_in(directory, 0.2)
    sampler.sample(1.0)
    directory.rmdir()
    (end,) = ends_of(sampler, "slurm:7")
    sampler.close()
    assert end.values["job_perf_task_clock"] == pytest.approx(used, abs=SECONDS_APART)
    assert end.values["job_perf_task_clock"] == pytest.approx(end.values["job_cpu"], abs=SECONDS_APART)
    assert end.values["job_perf_page_faults"] > 100


@pytest.mark.usefixtures("missing")
def test_a_job_whose_cgroup_is_removed_before_it_is_read_has_all_its_events(scope, tree):
    sampler, directory = Sampler([Jobs(tree, ["task_clock"])]), scope / "job_8"
    sampler.sample(0.0)
    directory.mkdir()
    sampler.wait(5.0, time.monotonic)
    used = run_in(directory, 0.1)
    directory.rmdir()
    (end,) = ends_of(sampler, "slurm:8")
    sampler.close()
    assert end.values["job_perf_task_clock"] == pytest.approx(used, abs=SECONDS_APART)


def ends_of(sampler, job):
    """Return the end of a job, and fail if it is not reported soon."""
    give_up, found = time.monotonic() + 10, []
    while not found and time.monotonic() < give_up:
        for readings in sampler.wait(1.0, time.monotonic).values():
            found += [end for end in readings.ended if end.job == job]
    return found


@pytest.mark.usefixtures("missing")
def test_nothing_is_left_open(scope, tree):
    before = open_descriptors()
    sampler, directory = Sampler([Perf(Tree(), SOFTWARE), Jobs(tree, SOFTWARE)]), scope / "job_9"
    sampler.sample(0.0)
    held = open_descriptors()
    directory.mkdir()
    sampler.wait(5.0, time.monotonic)
    assert len(open_descriptors()) >= len(held) + len(SOFTWARE) * os.cpu_count()
    directory.rmdir()
    ends_of(sampler, "slurm:9")
    # The files of the account of the parent are opened for each reading.
    assert open_descriptors() == held
    sampler.close()
    assert open_descriptors() == before


@pytest.mark.usefixtures("missing")
def test_a_job_that_finds_no_descriptors_is_counted_and_read_without_its_events(scope, tree):
    sampler, directory = Sampler([Jobs(tree, SOFTWARE)]), scope / "job_10"
    sampler.sample(0.0)
    before, limits = open_descriptors(), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(set(range(limits[0])) - set(map(int, before))) + 3, limits[1]))
    try:
        directory.mkdir()
        drops = sampler.wait(5.0, time.monotonic)["jobs"].drops
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        found = sampler.sample(20.0)["jobs"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        directory.rmdir()
    sampler.close()
    assert drops["unreadable"] >= 1
    assert {name for job, _, name in found.jobs if job == "slurm:10"} >= {"job_cpu"}
    assert not [name for job, _, name in found.jobs if job == "slurm:10" and "perf" in name]


def open_descriptors():
    return set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone


def test_the_agent_waits_for_descriptors_beyond_those_that_select_knows():
    own, other = os.pipe()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most[1] < 2000:
        pytest.skip("this machine allows fewer descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(most[0], 2000), most[1]))
    try:
        os.dup2(own, 1999)
        os.write(other, b"x")
        begun = time.monotonic()
        assert Sampler([]).wait(30.0, time.monotonic, [1999]) == {}
        assert time.monotonic() - begun < 10
    finally:
        os.close(1999)
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
        os.close(own)
        os.close(other)


def test_a_report_has_the_configured_events_and_starts_no_process(missing, once, tmp_path):
    trace = tmp_path / "trace"
    calls = "trace=fork,vfork,clone,clone3,execve"
    before = ["strace", "-f", "-e", calls, "-o", str(trace)] if shutil.which("strace") else []
    found = once(before, perf_node=["instructions", "page_faults"], perf_jobs=["page_faults"], without=["load"])
    expected = {"perf_page_faults"} | ({"perf_instructions"} - {f"perf_{name}" for name in missing})
    assert {row["metric"] for row in found["values"] if row["sensor"] == "perf"} == expected
    assert "load" not in {row["sensor"] for row in [*found["values"], *found["absent"]]}
    if before:
        assert [line.split("(")[0].split()[-1] for line in trace.read_text().splitlines() if "(" in line] == ["execve"]


@pytest.mark.usefixtures("missing")
def test_an_agent_without_the_right_says_which_and_goes_on(once):
    if not shutil.which("setpriv") or os.geteuid():
        pytest.skip("root takes the right away with setpriv")
    found = once(["setpriv", "--bounding-set=-perfmon,-sys_admin"], perf_node=["page_faults"], perf_jobs=["page_faults"])
    absent = {row["sensor"]: row["reason"] for row in found["absent"]}
    assert absent["perf"] == "perf event page_faults: Permission denied: it needs CAP_PERFMON, as in dropins/agent-perf.conf"
    assert [(row["sensor"], row["reason"]) for row in found["dropped"] if "perf" in row["reason"]] == [("jobs", "no perf events")]
    assert {"cpu", "memory"} <= {row["sensor"] for row in found["values"]}
