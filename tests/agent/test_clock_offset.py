"""The offset of a node's clock changes where it is set, and by nothing else."""

import time

import pytest

from tokiod.agent.clock_offset import clock_offset, seconds_asleep

BOOT = 1_800_000_000.0


class Node:
    """Clocks of a node, which may stop this process or sleep at the n-th reading of the clock."""

    def __init__(self, *, stops=None, sleeps=None):
        self.stops, self.sleeps = stops or {}, sleeps or {}
        self.now, self.slept, self.set_by, self.readings = 50.0, 0.0, 0.0, 0

    def time(self):
        found = BOOT + self.now + self.slept + self.set_by
        self.readings += 1
        self.now += self.stops.get(self.readings, 1e-6)
        self.slept += self.sleeps.get(self.readings, 0.0)
        return found

    def offset(self):
        return clock_offset(self.time, lambda: self.now, lambda: self.slept)


def test_the_offset_is_changed_by_what_the_clock_is_set_by():
    node = Node()
    assert node.offset() == pytest.approx(BOOT, abs=1e-3)
    node.set_by = -300.0
    assert node.offset() == pytest.approx(BOOT - 300, abs=1e-3)


def test_a_sleep_changes_no_offset():
    node = Node()
    node.slept += 7200
    assert node.offset() == pytest.approx(BOOT, abs=1e-3)


@pytest.mark.parametrize("what", ["stops", "sleeps"])
def test_a_process_that_is_stopped_while_it_reads_the_clocks_reads_them_again(what):
    node = Node(**{what: {1: 30.0, 2: 5.0, 3: 0.2}})
    assert node.offset() == pytest.approx(BOOT, abs=1e-3)
    assert node.readings == 4


@pytest.mark.parametrize(("seconds", "readings"), [(0.0999, 1), (0.1001, 10)])
def test_readings_a_tenth_of_a_second_apart_are_not_of_one_moment_and_ten_are_enough(seconds, readings):
    node = Node(stops=dict.fromkeys(range(1, 20), seconds))
    assert node.offset() == pytest.approx(BOOT - seconds, abs=1e-3)
    assert node.readings == readings


def test_the_offset_of_this_machine_is_steady():
    first, second = (clock_offset(time.time, time.monotonic) for _ in range(2))
    assert second == pytest.approx(first, abs=1.0)
    assert seconds_asleep() > -1.0
