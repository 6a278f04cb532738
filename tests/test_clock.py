"""A simulated clock is a function of the machine's, so every process of a simulation agrees; a fake one moves by hand."""

import asyncio
import time

import pytest

from tokiod.clock import SimulatedClock, SystemClock
from tokiod.testing.clock import FakeClock


def test_a_simulated_clock_runs_at_its_rate_from_its_epoch():
    clock = SimulatedClock(1000.0, time.time() - 2, 60)
    assert 1120 <= clock.time() < 1130


@pytest.mark.parametrize("clock", [SimulatedClock(1.5e9, 1.7e9, 60.0), SimulatedClock(0.0, 1795227017.0353646, 0.5)])
def test_a_simulated_clock_is_handed_on_as_text(clock):
    assert SimulatedClock.parse(str(clock)) == clock


@pytest.mark.parametrize("text", ["", "1", "1@2", "a@bxc", "1x2@3"])
def test_other_text_is_no_clock(text):
    with pytest.raises(ValueError, match="could not convert"):
        SimulatedClock.parse(text)


def test_sleeping_in_simulated_time_takes_less_real_time():
    async def scene() -> float:
        start = time.monotonic()
        await SimulatedClock(0, 0, 1000).sleep(20)
        await SystemClock().sleep(0)
        return time.monotonic() - start

    assert 0.02 <= asyncio.run(scene()) < 5


def test_a_fake_clock_wakes_sleepers_in_the_order_of_their_deadlines():
    async def scene() -> list[tuple[str, float]]:
        clock, woken = FakeClock(1000.0), []

        async def sleeper(name: str, seconds: float) -> None:
            await clock.sleep(seconds)
            woken.append((name, clock.time()))

        async with asyncio.TaskGroup() as tasks:
            for name, seconds in (("late", 30), ("soon", 10), ("at once", 0)):
                tasks.create_task(sleeper(name, seconds))
            await clock.advance(60)
        assert (clock.time(), clock.monotonic()) == (1060.0, 60.0)
        return woken

    assert asyncio.run(scene()) == [("at once", 1000.0), ("soon", 1010.0), ("late", 1030.0)]


def test_a_fake_clock_that_jumps_wakes_nobody():
    async def scene() -> tuple[float, float]:
        clock = FakeClock(1000.0)
        task = asyncio.create_task(clock.sleep(10))
        await asyncio.sleep(0)
        clock.jump(3600)
        await asyncio.sleep(0)
        assert not task.done()
        await clock.advance(10)
        assert task.done()
        return clock.time(), clock.monotonic()

    assert asyncio.run(scene()) == (4610.0, 10.0)
