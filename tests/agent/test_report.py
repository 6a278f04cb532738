"""`tokiod agent --once`, as a program of its own that has Python alone."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from array import array
from dataclasses import replace
from itertools import count
from pathlib import Path

import captured_tree
import msgspec
import pytest

from tokiod import __version__
from tokiod.agent.hierarchies import UNKNOWN
from tokiod.agent.metric import counter, gauge
from tokiod.agent.report import (
    AbsentSensor,
    DroppedReading,
    EndedJob,
    JobValue,
    NodeReport,
    NodeValue,
    as_json,
    as_text,
    job_values,
    node_report,
    sample_once,
)
from tokiod.agent.rows import JobState, Row
from tokiod.agent.sampler import Sampler
from tokiod.agent.sensor import Readings
from tokiod.agent.sensors import SENSORS

ROOT = Path(__file__).parents[2]
OLDEST = "3.9"
HEAVY = {"numpy", "h5py", "click", "rich", "msgspec", "structlog", "aiohttp", "zmq", "apsw", "asyncio"}


def oldest_python():
    """Return an interpreter of the oldest supported Python, if this machine has one."""
    places = [shutil.which(f"python{OLDEST}"), *sorted(Path.home().glob(f".pyenv/versions/{OLDEST}.*/bin/python"))]
    for place in filter(None, places):
        done = subprocess.run(
            [place, "-c", "import sys; print(*sys.version_info[:2], sep='.')"], capture_output=True, text=True, check=False
        )
        if done.stdout.strip() == OLDEST:
            return str(place)
    return None


def once(python, *options, cwd=ROOT, isolated=("-S",)):
    """Run the agent without any site-packages."""
    line = [python, *isolated, "-m", "tokiod.agent", "--once", *options]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, check=True, timeout=120, env={"PATH": os.environ["PATH"]}).stdout


@pytest.mark.parametrize("find", [lambda: sys.executable, oldest_python], ids=["this", "oldest"])
def test_a_node_needs_python_alone(find, tmp_path):
    if (python := find()) is None:
        pytest.skip(f"no Python {OLDEST} on this machine")
    captured_tree.unpack("node_exporter", tmp_path)
    told = json.loads(once(python, "--json", "--root", str(tmp_path)))
    report = msgspec.convert(told, NodeReport)
    expected = json.loads((captured_tree.TREES / "node_exporter.json").read_text())["read"]
    assert {row.sensor for row in report.absent} == {sensor.name for sensor in SENSORS} - expected.keys()
    assert len(report.values) == sum(len(by) for what in expected.values() for by in what["values"].values())
    assert report.values == sorted(report.values, key=lambda row: [sensor.name for sensor in SENSORS].index(row.sensor))


def test_the_agent_imports_nothing_heavy():
    line = [sys.executable, "-c", "import sys, tokiod.agent.__main__; print(*sys.modules)"]
    imported = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert HEAVY & {name.partition(".")[0] for name in imported} == set()
    assert {name for name in imported if name.startswith("tokiod.") and not name.startswith("tokiod.agent")} == set()


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace here")
def test_sensors_that_read_files_never_start_a_process(tmp_path):
    """This machine has no IPMI and no Lustre server, so no sensor has a reason to."""
    trace = tmp_path / "trace"
    line = ["strace", "-f", "-e", "trace=fork,vfork,clone,clone3,execve", "-o", str(trace), sys.executable, "-m", "tokiod.agent", "--once"]
    subprocess.run(line, cwd=ROOT, capture_output=True, check=True, timeout=120)
    calls = re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.MULTILINE)
    assert calls == ["execve"]


def test_this_machine_is_reported_as_text():
    shown = once(sys.executable)
    assert re.match(r"node \S+: \d+ values, \d+ jobs?\n\nsensor cpu\n", shown)
    absent = shown.partition("\nabsent\n")[2].partition("\n\n")[0].splitlines()
    listed = [line.strip().partition(":")[0] for line in absent]
    assert sorted(set(listed)) == sorted(listed)
    shown_sensors = set(re.findall(r"^sensor (\w+)$", shown, re.MULTILINE))
    assert shown_sensors | set(listed) | {"jobs"} == {sensor.name for sensor in SENSORS}
    assert shown_sensors & set(listed) == set()


def test_a_report_waits_for_commands_and_counts_what_failed():
    class Slow:
        name, metrics, period, left = "slow", (counter("slow_value", "1", "a value of a command"),), 1.0, 3

        def find(self):
            pass

        def fileno(self):
            return None

        def close(self):
            pass

        def is_waiting(self):
            return self.left > 0

        def sample(self, readings, now):  # noqa: ARG002 - of a sensor
            self.left -= 1
            if not self.left:
                readings.add(self.metrics[0], 7)
                raise KeyError("something else")

    sampler, found = sample_once([Slow()], lambda: 0.0)
    assert (found["slow"].values, dict(found["slow"].drops)) == ({("slow_value", ""): 7}, {"malformed": 1})
    assert sampler.absent == {}


class Fake:
    """A sensor whose values are the time, and which waits for a command."""

    name, period = "fake", 1.0
    metrics = counter("fake_count", "1", ""), gauge("fake_time", "s", "")

    def __init__(self, *, waits=False):
        self.sampled, self.is_closed, self.is_waiting = [], False, lambda: waits

    def find(self):
        pass

    def fileno(self):
        return None

    def close(self):
        self.is_closed = True

    def sample(self, readings, now):
        self.sampled.append(now)
        for metric, value in zip(self.metrics, (10 * now, now), strict=True):
            if (metric.name, "") not in readings.values:
                readings.add(metric, value)


@pytest.mark.parametrize(("passes", "sampled"), [(25.0, [0.0, 25.0, 50.0]), (59.9, [0.0, 59.9]), (60.0, [0.0])])
def test_a_report_waits_a_minute_for_commands(passes, sampled):
    now, sensor = iter(count(0.0, passes)), Fake(waits=True)
    sample_once([sensor], lambda: next(now))
    assert (sensor.sampled, sensor.is_closed) == (sampled, True)


def test_a_report_that_waits_looks_twenty_times_in_a_second():
    sensor, end = Fake(), time.monotonic() + 0.2
    sensor.is_waiting = lambda: time.monotonic() < end
    sample_once([sensor], time.monotonic)
    assert 2 <= len(sensor.sampled) <= 2 + 0.2 / 0.05


def test_a_span_is_measured_each_second_and_at_its_end(monkeypatch):
    now, sensor, readings = [100.0], Fake(), Readings()
    readings.drop("malformed", "x", 2)

    def wait(_sampler, seconds, _clock):
        now.append(now[-1] + seconds)
        return {"fake": readings} if len(now) == 2 else {}

    monkeypatch.setattr(Sampler, "wait", wait)
    report = node_report("n\x1b", lambda: 7.5, lambda: now[-1], [sensor], 2.5)
    assert (sensor.sampled, sensor.is_closed) == ([100.0, 101.0, 102.0, 102.5], True)
    values = [NodeValue("fake", "fake_count", "", 25, "1", "counter"), NodeValue("fake", "fake_time", "", 101.375, "s", "gauge")]
    assert report == NodeReport(r"n\x1b", 7.5, 2.5, __version__, values, [], [], [], [DroppedReading("fake", "malformed", 2, "x")])


def test_a_report_of_a_moment_has_the_counts_themselves_in_the_order_of_the_sensors():
    second = Fake()
    second.name, second.metrics = "a_second", (counter("a_count", "B", ""), gauge("a_time", "s", ""))
    report = node_report("n", lambda: 7.5, lambda: 3.0, [Fake(), second])
    assert [(row.sensor, row.metric, row.value) for row in report.values] == [
        ("fake", "fake_count", 30), ("fake", "fake_time", 3), ("a_second", "a_count", 30), ("a_second", "a_time", 3),
    ]  # fmt: skip
    assert (report.time, report.seconds) == (7.5, 0.0)


REPORT = NodeReport(
    "nid1", 5.0, 0.0, "1.0",
    [
        NodeValue("cpu", "cpu_user", "", 1.5, "s", "counter"), NodeValue("cpu", "forks", "", 7, "1", "counter"),
        NodeValue("disk", "disk_read", "sda", 123456789012345.678, "B", "counter"),
    ],
    [
        JobValue("slurm:1", "jobs", "job_cpu", "", 2.0, "s", "counter"),
        JobValue("slurm:1", "lustre_jobs", "job_lustre_open", "OST0000", 3, "1", "counter"),
        JobValue("slurm:2", "jobs", "job_cpu", "", 0.125, "s", "counter"),
    ],
    [EndedJob("slurm:2", 1.5, True), EndedJob("slurm:3", 0.25, False), EndedJob("slurm:4", None, False)],
    [AbsentSensor("ipmi", "no /dev/ipmi0")], [DroppedReading("disk", "malformed", 1, ""), DroppedReading("jobs", UNKNOWN, 2, "lsf/4711")],
)  # fmt: skip
TEXT = """\
node nid1: 3 values, 2 jobs

sensor cpu
  cpu_user                      1.5 s      counter
  forks                           7        counter

sensor disk
  disk_read  sda  1.23456789012e+14 B      counter

job slurm:1
  job_cpu                       2 s      counter
  job_lustre_open  OST0000      3        counter

job slurm:2
  job_cpu                   0.125 s      counter

ended
  slurm:2: 1.500000 s of CPU
  slurm:3: 0.250000 s of CPU, at least
  slurm:4: CPU time unknown: it ended before it could be read

absent
  ipmi: no /dev/ipmi0

dropped
  disk: 1 malformed
  jobs: 2 unknown scheduler cgroup (lsf/4711): name its form in job_cgroups of agent.toml, if it is a job's"""


def test_a_report_is_a_table_of_aligned_columns_or_one_line_of_json():
    assert as_text(REPORT) == TEXT
    assert as_text(replace(REPORT, seconds=2.5, jobs=REPORT.jobs[:1])).startswith("node nid1: 3 values in 2.5 s, 1 job\n\n")
    line = as_json(REPORT)
    assert line.startswith('{"node":"nid1","time":5.0,"seconds":0.0,"version":"1.0","values":[{"sensor":"cpu","metric":"cpu_user",')
    assert (msgspec.json.decode(line, type=NodeReport), line.count("\n")) == (REPORT, 0)


def test_a_value_of_a_job_that_is_unknown_is_left_out():
    row = Row(0.0)
    row.jobs["a", ""] = JobState("a", "", None, 0.0, array("d", [1.0, math.nan]))
    row.ended.append(JobState("b", "x", None, 0.0, array("d", [math.nan, 2.0])))
    assert job_values(row, Fake.metrics) == {("a", "", "fake_count"): 1.0, ("b", "x", "fake_time"): 2.0}


def test_names_that_users_chose_are_harmless_in_the_report(tmp_path):
    name = "job_\x1b[2J\u202e"
    (tmp_path / "sys/fs/cgroup/system.slice/slurmstepd.scope" / name).mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").touch()
    (tmp_path / "sys/fs/cgroup/system.slice/slurmstepd.scope" / name / "cpu.stat").write_text("usage_usec 5\nuser_usec 3\nsystem_usec 2\n")
    shown = once(sys.executable, "--root", str(tmp_path))
    assert "job slurm:\\x1b[2J\\u202e\n" in shown
    assert shown.replace("\n", "").isprintable()


def test_a_measured_span_has_the_increases_of_the_counters():
    """All CPUs together are in some state for as long as the span is, whatever the machine does."""
    report = msgspec.convert(json.loads(once(sys.executable, "--json", "--seconds", "2")), NodeReport)
    values = {(row.metric, row.instance): row.value for row in report.values}
    states = [value for (metric, _), value in values.items() if metric.startswith("cpu_") and "guest" not in metric]
    assert sum(states) == pytest.approx(2.0 * os.cpu_count(), rel=0.2)
    assert 0 <= values["forks", ""] < 10**6
    assert report.seconds == 2.0
    assert {sensor for row in report.values for sensor in [row.sensor]} >= {"cpu", "load", "memory", "paging"}


def run(*words, **options):
    line = [sys.executable, "-m", "tokiod.agent", *words]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60, **options)


def test_a_number_of_something_has_no_unit_that_looks_like_a_digit():
    (line,) = [line for line in once(sys.executable).splitlines() if line.startswith("  forks ")]
    assert line.split()[0::2] == ["forks", "counter"]


def test_what_a_newcomer_lacks_is_named_with_its_remedy(tmp_path):
    config = tmp_path / "agent.toml"
    lacking = run("--config", str(config))
    assert (lacking.returncode, lacking.stderr.count("\n")) == (2, 1)
    assert "copy agent.toml of the package there (docs/nodes.md); --once needs none" in lacking.stderr
    config.write_text('hub = "tcp://127.0.0.1:1"\nhub_key_file = "hub.key"\nkey_file = "node.key_secret"\n')
    without_keys = run("--config", str(config))
    expected = f"tokiod agent: key {tmp_path}/hub.key: No such file or directory: copy the hub's file that ends in .key\n"
    assert (without_keys.returncode, without_keys.stderr) == (2, expected)


def test_an_option_is_written_in_full_as_for_tokiod():
    done = run("--onc")
    assert (done.returncode, "unrecognized arguments: --onc" in done.stderr) == (2, True)


def test_ctrl_c_ends_a_measurement_without_a_traceback():
    line = [sys.executable, "-m", "tokiod.agent", "--once", "--seconds", "600"]
    measuring = "import os; from tokiod.agent import sampler; wait = sampler.Sampler.wait\n"
    measuring += "def told(*given):\n os.write(1, b'.')\n return wait(*given)\n"
    measuring += "sampler.Sampler.wait = told\nimport sys; from tokiod.agent.__main__ import main; sys.exit(main())"
    line[1:3] = ["-c", measuring]
    with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, b"")


@pytest.mark.parametrize("module", ["tokiod.agent", "tokiod.cli.tokiod"])
@pytest.mark.parametrize(
    "options",
    [
        *(("--once", "--seconds", seconds) for seconds in ("0", "1", "3601", "nan", "-5", "x")),
        ("--once", "--root", "/nowhere"), ("--json",), ("--seconds", "2"),
    ],
)  # fmt: skip
def test_options_that_can_not_be_meant_are_refused_and_named(module, options):
    line = [sys.executable, "-m", module, *(["agent"] if "cli" in module else []), "--config", "/nowhere/agent.toml", *options]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    said = done.stderr.splitlines()[-1]
    assert (done.returncode, done.stdout, options[-1 if options == ("--json",) else -2] in said) == (2, "", True), done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_is_a_sentence_and_a_reader_that_went_away_is_no_error():
    line = [sys.executable, "-m", "tokiod.agent", "--once"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(line, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "tokiod agent: cannot write to stdout: No space left on device\n")
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "wb") as gone:  # noqa: PTH123 - a descriptor
        done = subprocess.run(line, cwd=ROOT, stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_node_without_anything_says_so(tmp_path):
    report = msgspec.convert(json.loads(once(sys.executable, "--json", "--root", str(tmp_path))), NodeReport)
    assert (report.values, report.jobs, report.dropped) == ([], [], [])
    assert [row.sensor for row in report.absent] == [sensor.name for sensor in SENSORS]
    text = as_text(report)
    assert (text.splitlines()[0].endswith(": 0 values, 0 jobs"), "dropped" in text) == (True, False)
    with_dropped = as_text(replace(report, dropped=[DroppedReading("disk", "malformed", 3, "sda")]))
    assert with_dropped == f"{text}\n\ndropped\n  disk: 3 malformed (sda)"
