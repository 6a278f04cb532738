"""What is read of a job's cgroup: each byte of a disk once, and counters that never fall."""

import os
from types import SimpleNamespace

import pytest

from tokiod.agent.job_cgroup import METRICS, JobCgroup, cpu_parser
from tokiod.agent.sensor import Readings
from tokiod.agent.tree import Tree

SDA, SDB = "8:0 rbytes={} wbytes=20 rios=3 wios=4 dbytes=0 dios=0\n", "8:16 rbytes={} wbytes=1 rios=1 wios=1 dbytes=0 dios=0\n"
LOOP = "7:0 rbytes={} wbytes=0 rios=5 wios=0 dbytes=0 dios=0\n"
BYTES, OPERATIONS = "blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_serviced_recursive"
MEMORY_V1 = "total_cache 1\ntotal_rss 2\ntotal_pgfault {}\ntotal_pgmajfault {}\n"


@pytest.fixture
def v2(tmp_path):
    """Return what writes a file of a job's cgroup, reads all, and returns its values by name with what was dropped."""
    job = tmp_path / "job_1"
    job.mkdir()
    (job / "cpu.stat").write_text("usage_usec 3\nuser_usec 2\nsystem_usec 1\n")
    cgroup = JobCgroup.v2(Tree(str(tmp_path)), "slurm:1", "job_1")
    yield lambda name, text: read(cgroup, job / name, text)
    cgroup.close()


@pytest.fixture
def v1(tmp_path):
    for controller in ("cpuacct", "memory", "blkio"):
        (tmp_path / controller / "job_1").mkdir(parents=True)
    (tmp_path / "cpuacct/job_1/cpuacct.usage").write_text("3\n")
    for name in (BYTES, OPERATIONS):
        (tmp_path / "blkio/job_1" / name).write_text("")
    (tmp_path / "memory/job_1/memory.stat").write_text(MEMORY_V1.format(0, 0))
    cgroup = JobCgroup.v1(Tree(str(tmp_path)), "slurm:1", ".", "job_1")
    yield lambda name, text: read(cgroup, tmp_path / name.partition(".")[0] / "job_1" / name, text)
    cgroup.close()


def read(cgroup, path, text):
    path.write_text(text)
    readings = Readings()
    cgroup.read(readings, is_full=True)
    return {metric.name: value for metric, value in cgroup.fresh.items()}, readings.examples


def disks(values):
    return {name.removeprefix("job_disk_"): value for name, value in values.items() if name.startswith("job_disk_")}


WHOLE_V2 = {
    "cpu.stat": "usage_usec 5000000\nuser_usec 3000000\nsystem_usec 2000000\nnr_throttled 1\nthrottled_usec 7000000\n",
    "memory.current": "11\n", "memory.peak": "12\n", "memory.stat": "anon 13\nfile 14\npgfault 15\npgmajfault 16\n",
    "memory.events": "oom 1\noom_kill 17\n", "io.stat": SDA.format(18), "pids.current": "19\n",
    **{f"{name}.pressure": f"some avg10=0 total={s}000000\nfull total=9\n" for name, s in (("cpu", 20), ("memory", 21), ("io", 22))},
}  # fmt: skip
WHOLE_V1 = {
    "cpuacct.usage": "5000000000\n", "cpuacct.stat": "user 300\nsystem 200\n", "memory.usage_in_bytes": "11\n",
    "memory.max_usage_in_bytes": "12\n", "memory.oom_control": "under_oom 0\noom_kill 17\n",
    "memory.stat": "cache 1\n" + "total_cache 14\ntotal_rss 13\ntotal_pgfault 15\ntotal_pgmajfault 16\n",
    "blkio.throttle.io_service_bytes_recursive": "8:0 Read 18\n8:0 Write 20\n",
    "blkio.throttle.io_serviced_recursive": "8:0 Read 3\n8:0 Write 4\n", "pids.current": "19\n",
}  # fmt: skip
OF_BOTH = {
    "job_cpu": 5.0, "job_cpu_user": 3.0, "job_cpu_system": 2.0, "job_mem": 11, "job_mem_peak": 12, "job_mem_anon": 13, "job_mem_cache": 14,
    "job_page_faults": 15, "job_major_page_faults": 16, "job_oom_kills": 17, "job_disk_read": 18, "job_disk_written": 20,
    "job_disk_reads": 3, "job_disk_writes": 4, "job_processes": 19,
}  # fmt: skip


def whole(tmp_path, version):
    """Return a job's cgroup that has all files, and where they are by name."""
    places = {}
    for name, text in (WHOLE_V2 if version == 2 else WHOLE_V1).items():
        places[name] = tmp_path / ("" if version == 2 else name.partition(".")[0]) / "job_1" / name
        places[name].parent.mkdir(parents=True, exist_ok=True)
        places[name].write_text(text)
    tree = Tree(str(tmp_path))
    return (JobCgroup.v2(tree, "slurm:1", "job_1") if version == 2 else JobCgroup.v1(tree, "slurm:1", ".", "job_1", ticks=100)), places


@pytest.mark.parametrize("version", [1, 2])
def test_all_files_of_a_job_are_read_in_the_units_of_their_metrics(tmp_path, version):
    cgroup, _ = whole(tmp_path, version)
    readings = Readings()
    cgroup.read(readings, is_full=True)
    cgroup.close()
    stalls = {"job_cpu_throttled": 7.0, "job_cpu_stalled": 20.0, "job_memory_stalled": 21.0, "job_io_stalled": 22.0}
    assert {metric.name: value for metric, value in cgroup.last.items()} == {**OF_BOTH, **(stalls if version == 2 else {})}
    assert (cgroup.fresh, cgroup.is_gone, dict(readings.drops)) == (cgroup.last, False, {})


@pytest.mark.parametrize("version", [1, 2])
def test_between_full_readings_the_quick_files_alone_are_read(tmp_path, version):
    cgroup, _ = whole(tmp_path, version)
    cgroup.read(Readings(), is_full=False)
    cgroup.close()
    assert {"job_cpu", "job_mem"} <= {metric.name for metric in cgroup.fresh} <= {*OF_BOTH, "job_cpu_throttled"} - {"job_mem_peak"}


@pytest.mark.parametrize("is_full", [True, False])
def test_perf_events_are_read_with_all_files(tmp_path, is_full):
    cgroup, _ = whole(tmp_path, 2)
    closed, readings = [], Readings()
    cgroup.counts = SimpleNamespace(read=lambda: {"instructions": 23}, waiting=["cycles"], close=lambda: closed.append(1))
    cgroup.read(readings, is_full=is_full)
    cgroup.close()
    assert closed == [1]
    assert {metric.name: value for metric, value in cgroup.last.items()}.get("job_perf_instructions") == (23 if is_full else None)
    assert cgroup.fresh.keys() == cgroup.last.keys()
    assert readings.examples == ({"no free counter": "cycles"} if is_full else {})


def test_a_life_of_a_cgroup_counts_from_where_the_one_before_it_ended(tmp_path):
    cgroup, _ = whole(tmp_path, 2)
    cgroup.read(Readings(), is_full=True)
    values = dict.fromkeys(cgroup.last, 100.0)
    assert cgroup.since_begin(values) is values
    cgroup.rest()
    assert (cgroup.has_ended, cgroup.has_files, cgroup.events, cgroup.counts) == (True, False, None, None)
    gauges = {"job_mem", "job_mem_peak", "job_mem_anon", "job_mem_cache", "job_processes"}
    stalls = {"job_cpu_throttled": 7.0, "job_cpu_stalled": 20.0, "job_memory_stalled": 21.0, "job_io_stalled": 22.0}
    assert {metric.name: value for metric, value in cgroup.since_begin(values).items()} == {
        name: 100 - (0 if name in gauges else value) for name, value in (OF_BOTH | stalls).items()
    }
    assert set(cgroup.since_begin(dict.fromkeys(cgroup.base, 1)).values()) == {0}


@pytest.mark.parametrize(
    ("is_exact", "has_ended", "watch", "is_sure"),
    [(True, False, None, True), (True, True, 5, True), (True, True, None, False), (False, False, 5, False)],
)
def test_all_that_was_used_is_known_of_a_job_that_is_watched_or_has_not_ended_before(tmp_path, is_exact, has_ended, watch, is_sure):
    cgroup, _ = whole(tmp_path, 2)
    cgroup.is_exact, cgroup.has_ended, cgroup.watch = is_exact, has_ended, watch
    assert cgroup.is_sure is is_sure


@pytest.mark.parametrize(("has_cpu", "name", "value", "has_used"), [
    (True, "job_cpu", 0, False), (True, "job_cpu", 0.1, True), (True, "job_page_faults", 9, False),
    (False, "job_page_faults", 9, True), (False, "job_cpu", 9, False),
])  # fmt: skip
def test_a_job_has_run_by_its_cpu_time_or_its_page_faults_where_it_has_none(tmp_path, has_cpu, name, value, has_used):
    cgroup, _ = whole(tmp_path, 2)
    cgroup.has_cpu = has_cpu
    cgroup.last = {metric: value for metric in METRICS if metric.name == name}
    assert cgroup.has_used() is has_used


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_that_is_missing_is_no_value_and_a_job_without_its_first_is_gone(tmp_path, version):
    cgroup, places = whole(tmp_path, version)
    files = iter(places.items())
    first, path = next(files)
    for name, other in files:
        other.unlink()
        readings = Readings()
        cgroup.read(readings, is_full=True)
        assert (cgroup.is_gone, dict(readings.drops)) == (False, {}), name
    cgroup.close()
    path.unlink()
    cgroup.read(Readings(), is_full=False)
    assert (cgroup.is_gone, cgroup.fresh) == (True, {}), first


@pytest.mark.parametrize("name", [name for name in WHOLE_V2 if name != "memory.events"])
def test_a_file_of_other_words_is_counted_and_changes_no_value_of_others(tmp_path, name):
    cgroup, places = whole(tmp_path, 2)
    cgroup.read(Readings(), is_full=True)
    before, readings = dict(cgroup.last), Readings()
    places[name].write_text("other words\n")
    cgroup.read(readings, is_full=True)
    cgroup.close()
    missing = before.keys() - cgroup.fresh.keys()
    assert cgroup.last == before
    assert (bool(missing) or name == "memory.stat", set(readings.drops)) == (True, set() if name == "memory.stat" else {"malformed"})


@pytest.mark.parametrize(("text", "populated"), [("populated 1\nfrozen 0\n", True), ("populated 0\n", False), ("frozen 0\n", True)])
def test_a_job_runs_while_its_cgroup_is_populated(tmp_path, text, populated):
    cgroup, _ = whole(tmp_path, 2)
    (tmp_path / "job_1/cgroup.events").write_text(text)
    assert cgroup.is_populated() is populated
    cgroup.close()


def test_a_job_of_v1_does_not_say_whether_it_runs(tmp_path):
    assert whole(tmp_path, 1)[0].is_populated()


@pytest.mark.parametrize(("version", "name", "texts"), [(2, "cpu.stat", WHOLE_V2), (1, "cpuacct.usage", WHOLE_V1)])
def test_the_cpu_time_of_any_cgroup_is_read_by_its_version(version, name, texts):
    found, parse = cpu_parser(version)
    assert (found, parse(texts[name].encode())) == (name, 5.0)


def test_the_time_in_programs_of_v1_is_in_ticks_of_this_machine(tmp_path):
    whole(tmp_path, 1)
    cgroup = JobCgroup.v1(Tree(str(tmp_path)), "slurm:1", ".", "job_1")
    cgroup.read(Readings(), is_full=True)
    cgroup.close()
    assert {metric.name: value for metric, value in cgroup.last.items()}["job_cpu_user"] == 300 / os.sysconf("SC_CLK_TCK")


def test_what_is_read_ahead_is_understood_with_the_most_memory(tmp_path):
    cgroup, places = whole(tmp_path, 2)
    for memory in (30, 50, 40):
        places["memory.current"].write_text(f"{memory}\n")
        cgroup.read_ahead()
    cgroup.understand(Readings())
    of = {metric.name: value for metric, value in cgroup.fresh.items()}
    assert (of["job_cpu"], of["job_mem"], {metric.name: value for metric, value in cgroup.last.items()}["job_mem"]) == (5.0, 50, 40)
    cgroup.understand(Readings())
    assert {metric.name: value for metric, value in cgroup.fresh.items()} == of
    cgroup.read_ahead()
    cgroup.understand(Readings())
    cgroup.close()
    assert {metric.name: value for metric, value in cgroup.fresh.items()}["job_mem"] == 40


def test_a_job_that_uses_no_memory_has_none_whatever_was_read_before(tmp_path):
    cgroup, places = whole(tmp_path, 2)
    places["memory.current"].write_text("0\n")
    for is_read in (False, False, True):
        if is_read:
            cgroup.read(Readings(), is_full=False)
        cgroup.read_ahead()
        cgroup.understand(Readings())
        assert {metric.name: value for metric, value in cgroup.fresh.items()}["job_mem"] == 0
    cgroup.close()


def test_a_job_without_memory_is_read_ahead_too(tmp_path):
    cgroup, places = whole(tmp_path, 2)
    places["memory.current"].unlink()
    cgroup.read(Readings(), is_full=True)
    cgroup.read_ahead()
    cgroup.understand(Readings())
    cgroup.close()
    assert {metric.name: value for metric, value in cgroup.fresh.items()} == {
        "job_cpu": 5.0, "job_cpu_user": 3.0, "job_cpu_system": 2.0, "job_cpu_throttled": 7.0,
    }  # fmt: skip


def test_a_device_that_leaves_the_list_keeps_its_bytes_in_the_jobs_sums(v2):
    read_of = [disks(v2("io.stat", text)[0])["read"] for text in (
        SDA.format(100) + SDB.format(1000), SDA.format(110), "", SDA.format(5) + SDB.format(7),
    )]  # fmt: skip
    assert read_of == [1100, 1110, 1110, 1122]


def test_files_and_memory_are_no_disks(v2):
    assert disks(v2("io.stat", SDA.format(100) + LOOP.format(50))[0]) == {"read": 100, "written": 20, "reads": 3, "writes": 4}
    assert disks(v2("io.stat", LOOP.format(60))[0])["read"] == 100


def test_a_job_that_used_no_disk_has_zeros(v2):
    assert disks(v2("io.stat", "")[0]) == {"read": 0, "written": 0, "reads": 0, "writes": 0}
    assert disks(v2("io.stat", LOOP.format(60))[0]) == {"read": 0, "written": 0, "reads": 0, "writes": 0}


@pytest.mark.parametrize("torn", ["8:0 ", "8:0 \n", "8:0", "8:0 rbytes=1", "8:0 rbytes=1 wbytes=2 rios=3"])
def test_a_line_without_all_its_keys_is_no_reading(v2, torn):
    assert disks(v2("io.stat", SDA.format(100))[0])["read"] == 100
    values, dropped = v2("io.stat", torn)
    assert (disks(values), dropped) == ({}, {"malformed": "ValueError: no counts of device 8:0"})
    assert disks(v2("io.stat", SDA.format(130))[0])["read"] == 130


def test_devices_that_the_kernel_prints_without_numbers_stand_before_the_one_that_has_some(v2):
    values, dropped = v2("io.stat", "7:2 8:16 " + SDA.format(100))
    assert (disks(values)["read"], dropped) == (100, {})


def test_a_path_of_nvme_is_no_device(v2):
    assert disks(v2("io.stat", "(unknown) rbytes=0 wbytes=0 rios=3 wios=0 dbytes=0 dios=0\n" + SDA.format(100))[0])["reads"] == 3
    assert disks(v2("io.stat", "(unknown) 8:16 " + SDA.format(110))[0])["read"] == 110


def test_counts_of_no_device_are_not_zeros(v2):
    values, dropped = v2("io.stat", "(unknown) rbytes=9 wbytes=0 rios=3 wios=0 dbytes=0 dios=0\n")
    assert (disks(values), dropped) == ({}, {"malformed": "ValueError: no device has a number"})


def test_a_job_that_used_no_device_has_zeros_on_v1_too(v1):
    assert disks(v1(BYTES, "\nTotal 0\n")[0]) == {"read": 0, "written": 0, "reads": 0, "writes": 0}


def test_a_device_of_v1_without_its_numbers_is_no_reading(v1):
    assert disks(v1(BYTES, "8:0 Read 70\n8:0 Write 7\n")[0])["read"] == 70
    values, dropped = v1(BYTES, "8:0 Read\n8:0 Total 77\n")
    assert ("read" in disks(values), dropped) == (False, {"malformed": "ValueError: no counts of device 8:0"})
    assert disks(v1(BYTES, "8:0 Read 80\n8:0 Write 7\n")[0])["read"] == 80


def test_a_word_with_two_equals_signs_is_no_reading(v2):
    values, dropped = v2("io.stat", SDA.format("1=2"))
    assert (disks(values), list(dropped)) == ({}, ["malformed"])


def test_a_number_that_is_none_is_counted(v2):
    values, dropped = v2("io.stat", SDA.format("x"))
    assert (disks(values), list(dropped)) == ({}, ["malformed"])


def test_a_count_below_zero_is_no_count_now_or_at_the_jobs_end(v2):
    assert disks(v2("io.stat", SDA.format(100))[0])["read"] == 100
    values, dropped = v2("io.stat", SDA.format((1 << 64) - 1))
    assert (disks(values), dropped) == ({}, {"malformed": "ValueError: a count of a device is beyond 2^62"})
    assert disks(v2("io.stat", SDA.format(110))[0])["read"] == 110


def test_a_value_that_cannot_be_true_is_not_that_of_the_jobs_end(tmp_path):
    (tmp_path / "job_1").mkdir()
    (tmp_path / "job_1/cpu.stat").write_text(f"usage_usec {(1 << 64) * 10**6}\nuser_usec 2\nsystem_usec 1\n")
    cgroup, readings = JobCgroup.v2(Tree(str(tmp_path)), "slurm:1", "job_1"), Readings()
    cgroup.read(readings, is_full=True)
    cgroup.close()
    assert {metric.name for metric in cgroup.last} == {metric.name for metric in cgroup.fresh} == {"job_cpu_user", "job_cpu_system"}
    assert dict(readings.drops) == {"implausible": 1}


def test_a_volume_is_counted_on_its_disks_on_v1_too(v1, tmp_path):
    (tmp_path / "sys/dev/block/253:0/slaves/sda2").mkdir(parents=True)
    text = "253:0 Read 70\n253:0 Write 7\n253:0 Total 77\n8:0 Read 70\n8:0 Write 7\n8:0 Sync 77\n7:1 Read 9\n7:1 Write 0\nTotal 154\n"
    assert disks(v1(BYTES, text)[0]) == {"read": 70, "written": 7, "reads": 0, "writes": 0}
    assert disks(v1(OPERATIONS, text)[0])["reads"] == 70
    assert disks(v1(BYTES, "8:16 Read 5\n8:16 Write 0\nTotal 5\n")[0])["read"] == 75


def test_what_a_step_had_counted_is_not_taken_back_where_the_kernel_forgets_it(v1):
    faults = [v1("memory.stat", MEMORY_V1.format(*counts))[0] for counts in ((900, 9), (400, 9), (450, 10))]
    assert [values["job_page_faults"] for values in faults] == [900, 900, 950]
    assert [values["job_major_page_faults"] for values in faults] == [9, 9, 10]
    assert faults[-1]["job_mem_anon"] == 2
