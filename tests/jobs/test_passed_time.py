"""The time that has certainly passed follows a clock at once, and its steps ahead once they have lasted for six hours."""

import asyncio

import pytest

from tokiod.jobs.passed_time import TRUSTED_SECONDS, PassedTime
from tokiod.testing.clock import FakeClock

START, HOURS = 1_723_075_200.0, 6 * 3600


@pytest.fixture
def clock():
    made = FakeClock(START)
    asyncio.run(made.advance(100))  # monotonic time began before the process did
    return made


def looks(clock, passed, *seconds):
    """The passed time after each of these waits, in seconds."""
    found = []
    for one in seconds:
        asyncio.run(clock.advance(one))
        found.append(passed())
    return found


def test_no_time_has_passed_before_the_clock_was_followed_for_six_hours(clock):
    assert TRUSTED_SECONDS == HOURS
    passed, begun = PassedTime(clock), clock.time()
    assert looks(clock, passed, 0, 1, HOURS - 2) == [float("-inf")] * 3
    assert looks(clock, passed, 1, 1, 60) == [begun + HOURS, begun + HOURS + 1, begun + HOURS + 61]


def test_a_step_ahead_counts_once_it_has_lasted_for_six_hours_and_a_step_back_at_once(clock):
    passed, begun = PassedTime(clock), clock.time()
    looks(clock, passed, *[300] * (HOURS // 300 + 1))
    at = HOURS + 300
    assert passed() == begun + at
    clock.jump(86400)
    assert looks(clock, passed, *[300] * (HOURS // 300 + 1)) == [
        begun + at + 300 * n + (86400 if 300 * (n - 1) >= HOURS else 0) for n in range(1, HOURS // 300 + 2)
    ]
    clock.jump(-7 * 86400)
    assert passed() == clock.time()


def test_a_step_ahead_that_is_taken_back_never_counts(clock):
    passed = PassedTime(clock)
    looks(clock, passed, *[300] * (HOURS // 300 + 1))
    clock.jump(3 * 365 * 86400)
    looks(clock, passed, *[300] * (HOURS // 300))
    clock.jump(-3 * 365 * 86400)
    now = clock.time()
    assert looks(clock, passed, 1, 299, HOURS) == [now + 1, now + 300, now + 300 + HOURS]


def test_time_without_a_look_is_as_long_as_with_many(clock):
    """A process that was stopped for a day, or sleeps."""
    passed, begun = PassedTime(clock), clock.time()
    assert looks(clock, passed, 0, 86400) == [float("-inf"), begun + 86400]
