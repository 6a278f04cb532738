"""The agent as a process runs it: its loop, with clocks that a test sets, and a real process."""

import gc
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from keyed import Keyring

from tokiod.agent.sensor import Readings
from tokiod.agent.service import Agent
from tokiod.agent.settings import Settings

ROOT = Path(__file__).parents[2]
BOOT = 1_800_000_000.0


class Node:
    """A node with its agent, and the clocks that the agent reads."""

    def __init__(self, directory):
        Keyring(directory).made("node")
        settings = Settings("tcp://127.0.0.1:1", str(directory / "server.key"), str(directory / "node.key_secret"), "nid1")
        self.now, self.slept, self.offset, self.log = 0.0, 0.0, BOOT, []
        self.agent = Agent(settings, "/", lambda: self.now + self.slept + self.offset, lambda: self.now, lambda: self.slept)

    def starts(self):
        """Let the agent sample once; return the starts of its rows, in seconds since the boot by the right clock."""
        turns = iter([False, True])
        self.agent.run(lambda: next(turns), self.passes, self.log.append)
        return [start - BOOT for start in self.agent.rows.starts()]

    def passes(self, _line):
        """Let time pass while the agent reports to systemd, so that it does not wait."""
        self.now += 5.0


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path / "keys")
    yield made
    made.agent.close()


def test_rows_of_a_clock_that_was_set_are_dropped_and_those_before_a_sleep_are_not(node):
    assert node.starts() == [0]
    node.slept = 7200.0
    assert node.starts() == [0, 7200]
    node.offset += 86_400
    assert node.starts() == [7200 + 86_400]
    node.offset -= 86_400
    assert node.starts() == [7200]
    assert [line.partition(":")[0] for line in node.log if line.startswith("the clock")] == [
        "the clock was set by +86400.0 s", "the clock was set by -86400.0 s",
    ]  # fmt: skip


def test_rows_of_the_clock_before_are_not_sent_between_two_samples(node):
    node.starts()
    node.offset -= 300
    assert node.agent.link._rows.starts() == []


def test_what_was_read_since_the_last_row_is_in_the_rows_that_are_sent(node):
    node.agent._recorder.follow_clock()
    for second in range(3):
        node.agent._recorder.sample(float(second), BOOT + second)
    assert node.agent.link._rows.starts() == [BOOT]
    assert node.agent.rows.at(BOOT)._counts["processes_running", ""] == 3


def test_an_agent_that_is_closed_holds_no_file_of_its_node(tmp_path):
    made = Node(tmp_path / "keys")
    made.starts()
    made.agent.close()
    held = [Path(fd).resolve() for fd in Path("/proc/self/fd").iterdir()]
    assert not [path for path in held if path.is_relative_to("/proc") and not path.is_relative_to(f"/proc/{os.getpid()}")]


def test_samples_are_a_second_apart_and_none_is_made_up_for_after_a_sleep(node):
    sampled, waited, told, steps = [], [], [], iter([0.0, 0.4, 0.6, 8.9, 0.1, 100.0, 0.0, 0.2, 0.9])
    recorder, node.agent.link._dial_at = node.agent._recorder, float("inf")
    recorder.sample = lambda now, time: sampled.append((round(now, 6), round(time - BOOT, 6)))
    recorder.wait = lambda seconds, *_: waited.append(round(seconds, 6))

    def stopping():
        step = next(steps, None)
        node.now += step or 0.0
        return step is None

    node.agent.run(stopping, lambda line: told.append((line, node.now)), node.log.append)
    assert sampled == [(now, now) for now in (0.0, 1.0, 9.9, 10.0, 110.0, 110.0, 111.1)]
    assert waited == [1.0, 0.6, 1.0, 0.0, 0.9, 0.0, 1.0, 0.8, 0.9]
    status = "WATCHDOG=1\nSTATUS=hub: connecting; 0 rows sent"
    assert told == [("READY=1", 0.0), (status, 0.0), (status, 10.0), (status, 110.0), ("STOPPING=1", pytest.approx(111.1))]
    assert node.log == ["hub tcp://127.0.0.1:1: connecting"]


def test_what_is_there_at_the_start_is_not_searched_for_garbage(node):
    gc.unfreeze()
    node.starts()
    assert gc.get_freeze_count() > 0


def test_an_agent_dials_its_hub_while_it_samples(node):
    for _ in range(2):
        node.starts()
    assert node.agent.link.dials == 1


def test_each_run_of_an_agent_has_a_session_of_its_own(node, tmp_path):
    other = Node(tmp_path / "other")
    sessions = {one.agent.link._session for one in (node, other)}
    other.agent.close()
    assert [bool(re.fullmatch("[0-9a-f]{16}", session)) for session in sessions] == [True, True]


def test_what_is_absent_or_dropped_is_in_the_log_once(node):
    node.starts()
    node.log.clear()
    absent = node.agent._sampler.absent
    absent["a"] = "no a"
    readings = Readings()
    readings.drop("malformed", "x", 2)
    node.agent._report({"cpu": readings})
    absent["b"] = "no b"
    node.agent._report({"cpu": readings, "disk": readings})
    del absent["b"]
    absent["a"] = "still no a"
    node.agent._report({"cpu": readings})
    later = "(later ones are counted only)"
    assert node.log == [
        "sensor a: nothing to read: no a", f"sensor cpu: malformed: x {later}", "sensor b: nothing to read: no b",
        f"sensor disk: malformed: x {later}", "sensor a: nothing to read: still no a",
    ]  # fmt: skip


@pytest.mark.parametrize(("number", "address"), [(signal.SIGTERM, "{}/notify@1"), (signal.SIGINT, "@{}/notify@1")])
def test_an_agent_tells_systemd_how_it_is_and_ends_at_a_signal(number, address, tmp_path):
    """The address names a file, or an abstract socket."""
    Keyring(tmp_path / "keys").made("node")
    config = tmp_path / "agent.toml"
    config.write_text('hub = "tcp://127.0.0.1:1"\nhub_key_file = "keys/server.key"\nkey_file = "keys/node.key_secret"\n')
    line = [sys.executable, "-m", "tokiod.agent", "--config", str(config), "--root", str(tmp_path)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(re.sub("^@", "\0", address.format(tmp_path)))
        systemd.settimeout(60)
        environment = {**os.environ, "NOTIFY_SOCKET": address.format(tmp_path)}
        with subprocess.Popen(line, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
            told = [systemd.recv(1000).decode() for _ in range(2)]
            process.send_signal(number)
            told.append(systemd.recv(1000).decode())
            _, said = process.communicate(timeout=60)
    assert told == ["READY=1", "WATCHDOG=1\nSTATUS=hub: connecting; 0 rows sent", "STOPPING=1"]
    assert (process.returncode, "tokiod agent: hub tcp://127.0.0.1:1: connecting\n" in said) == (0, True)
