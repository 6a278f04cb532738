"""Sensors that run a command: it has its own period and deadline, and no sample waits for it."""

import os
import time

import pytest

from tokiod.agent import command as command_module
from tokiod.agent.command import Command, CommandFailed
from tokiod.agent.sensor import Absent, Readings
from tokiod.agent.sensors.ipmi import Ipmi
from tokiod.agent.sensors.lustre_jobs import LustreJobs
from tokiod.agent.tree import Tree

IPMITOOL = """

    Instantaneous power reading:                   {watts} Watts
    Minimum during sampling period:                  6 Watts
    Maximum during sampling period:                304 Watts
    Average power reading over sample period:      218 Watts
    IPMI timestamp:                           Tue Nov 24 01:00:00 2026
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   {state}


"""
"""In the form that ipmitool prints; not captured on a controller. What several other programs read of it is the reading's line."""


def ended(command, at=0.0):
    """Take until the run has ended, by the same clock time: how long a process really takes is not what is tested."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if (text := command.take(at)) is not None:
            return text
        time.sleep(0.005)
    pytest.fail("the command did not end")
    return None


def script(tmp_path, text):
    path = tmp_path / "command"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return [str(path)]


def limited(tmp_path, text):
    """Start a command that waits for its limit: it is set after the start."""
    command = Command(script(tmp_path, f"while [ ! -e {tmp_path}/limited ]; do sleep 0.005; done; {text}"), period=60.0, deadline=30.0)
    assert command.take(0.0) is None
    (tmp_path / "limited").touch()
    return command


def test_a_command_runs_once_in_a_period(tmp_path):
    command = Command(script(tmp_path, f"echo run >> {tmp_path}/runs; echo done"), period=60.0, deadline=30.0)
    assert ended(command, 0.0) == b"done\n"
    assert [command.take(now) for now in (1.0, 30.0, 59.9)] == [None] * 3
    assert [command.has_work(now) for now in (59.9, 60.0)] == [False, True]
    assert ended(command, 60.0) == b"done\n"
    assert (tmp_path / "runs").read_text() == "run\nrun\n"


def test_a_command_that_hangs_is_killed_with_its_children_and_another_is_started_later(tmp_path):
    words = script(tmp_path, f"[ -e {tmp_path}/once ] && exec echo later; touch {tmp_path}/once; sleep 1000 & sleep 1000")
    command = Command(words, period=60.0, deadline=30.0)
    assert command.take(0.0) is None
    while not (tmp_path / "once").exists():
        time.sleep(0.005)
    assert command.has_work(29.9)
    assert command.take(29.9) is None
    with pytest.raises(CommandFailed, match="killed after 30 s") as failed:
        command.take(30.0)
    assert failed.value.reason == "no answer in time"
    while command.is_running:
        assert command.take(31.0) is None
        time.sleep(0.005)
    assert ended(command, 60.0) == b"later\n"


def test_failures_have_reasons(tmp_path):
    with pytest.raises(CommandFailed, match="No such file") as failed:
        Command(["/no/such/command"], 1.0, 1.0).take(0.0)
    assert failed.value.reason == "command not started"
    with pytest.raises(CommandFailed, match="exit status 3") as failed:
        ended(Command(script(tmp_path, "echo half; exit 3"), 1.0, 1.0))
    assert failed.value.reason == "command failed"


def test_an_output_without_end_ends_its_command_and_no_part_of_it_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(command_module, "MAX_OUTPUT_BYTES", 1 << 20)
    # It has an end, for the disk's sake, should nothing else end it.
    with pytest.raises(CommandFailed, match="at most 1048576 bytes") as failed:
        ended(limited(tmp_path, "exec head -c 100000000 /dev/zero"))
    assert failed.value.reason == "output too long"


@pytest.mark.parametrize(
    ("text", "values", "examples"),
    [
        (IPMITOOL.format(watts=220, state="activated"), {("node_power", ""): 220}, {}),
        (IPMITOOL.format(watts=341, state="activated").replace("    ", "  "), {("node_power", ""): 341}, {}),
        # wdes/ipmitool-dcmi-power-reading, which takes the place of ipmitool.
        ("Instantaneous power reading              : 214      Watts\n", {("node_power", ""): 214}, {}),
        (IPMITOOL.format(watts=0, state="deactivated"), {}, {"not measuring": "the controller reports 0 W, deactivated"}),
        (IPMITOOL.format(watts=0, state="activated"), {}, {"not measuring": "the controller reports 0 W, activated"}),
        (IPMITOOL.format(watts=319, state="deactivated"), {("node_power", ""): 319}, {}),
        (IPMITOOL.format(watts=1, state="activated"), {("node_power", ""): 1}, {}),
        (IPMITOOL.format(watts=65535, state="activated"), {}, {"no reading": "the controller reports 65535 W, activated"}),
        (IPMITOOL.format(watts=65534, state="activated"), {}, {"implausible": "node_power is 65534 W"}),
        (IPMITOOL.format(watts=0, state="x").partition("    Power reading state")[0], {}, {"not measuring": "the controller reports 0 W"}),
        ("DCMI request failed because: Invalid command (c1)\n", {}, {"malformed": "no line `Instantaneous power reading: N Watts`"}),
        ("", {}, {"malformed": "no line `Instantaneous power reading: N Watts`"}),
    ],
)
def test_ipmi_reads_the_power_of_a_node(tmp_path, text, values, examples):
    (tmp_path / "answer").write_text(text)
    sensor, readings = Ipmi(Tree(str(tmp_path)), ["cat", str(tmp_path / "answer")]), Readings()
    sensor.find()
    while not readings.values and not readings.drops:
        sensor.sample(readings, 0.0)
        time.sleep(0.005)
    assert (readings.values, readings.examples, readings.drops) == (values, examples, dict.fromkeys(examples, 1))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Ipmi, IPMITOOL.format(watts=220, state="activated")),
        (LustreJobs, "mdt.x.job_stats=\njob_stats:\n- job_id:          a\n  open:            { samples: 220, unit: reqs }\n"),
    ],
)
def test_a_command_of_a_sensor_is_started_once_in_a_minute_and_killed_where_it_hangs(tmp_path, kind, text):
    (tmp_path / "answer").write_text(text)
    words = script(tmp_path, f"cat {tmp_path}/answer && exit; sleep 1000")
    sensor, found = kind(Tree(str(tmp_path)), words), Readings()

    def sample(now):
        give_up = time.monotonic() + 30
        sensor.sample(found, now)
        assert (sensor.is_waiting(), sensor.read_ahead(now, is_rare=False)) == (True, False)
        while sensor.is_waiting() and time.monotonic() < give_up:
            sensor.sample(found, now)
            time.sleep(0.005)

    sensor.find()
    assert not sensor.read_ahead(0.0, is_rare=False)
    sample(0.0)
    assert ([*found.values.values(), *found.jobs.values()], found.drops) == ([220], {})
    assert [sensor.read_ahead(now, is_rare=False) for now in (59.9, 60.0)] == [True, False]
    (tmp_path / "answer").unlink()
    sensor.sample(found, 60.0)
    seconds = {Ipmi: 30, LustreJobs: 50}[kind]
    sensor.sample(found, 59.9 + seconds)
    assert found.drops == {}
    sample(60.0 + seconds)
    assert found.examples == {"no answer in time": f"{words[0]}: killed after {seconds} s"}
    (tmp_path / "answer").write_text(text)
    (tmp_path / "command").unlink()
    sensor.sample(found, 130.0)
    assert found.examples["command not started"] == f"{words[0]}: No such file or directory"


def test_a_command_that_still_runs_at_the_end_is_killed(tmp_path):
    command = Command(script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 1000"), period=60.0, deadline=30.0)
    command.take(0.0)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.005)
    command.close()
    while command.is_running:
        assert command.take(1.0) is None
        time.sleep(0.005)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_command_finds_no_input_and_speaks_english(tmp_path):
    command = limited(tmp_path, "cat; echo $LC_ALL; echo said >&2; ulimit -f")
    assert ended(command).decode().split() == ["C", str(256 * 2048)]
    assert not command.is_running


def test_a_node_without_a_controller_or_its_command_says_so(tmp_path):
    with pytest.raises(Absent, match=r"^no /dev/ipmi0$"):
        Ipmi(Tree(str(tmp_path))).find()
    for name in ("ipmi0", "ipmi/0", "ipmidev/0"):
        place = tmp_path / name.replace("/", "-") / "dev" / name
        place.parent.mkdir(parents=True)
        place.touch()
        with pytest.raises(Absent, match=r"^no command /no/such/tool$"):
            Ipmi(Tree(str(tmp_path)), ["/no/such/tool"]).find()
