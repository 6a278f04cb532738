"""The agent as a process runs it: its loop, with clocks that a test sets."""

import pytest
from keyed import Keyring

from tokiod.agent.service import Agent
from tokiod.agent.settings import Settings

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
