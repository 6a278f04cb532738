import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.clock import MIN_JUMP_SECONDS, JumpDetector
from tokiod.testing.clock import FakeClock


@given(st.lists(st.floats(-7200, 7200).filter(lambda seconds: abs(abs(seconds) - MIN_JUMP_SECONDS) > 0.001)))
def test_every_jump_is_told_once_with_its_seconds_and_slewing_never(partings):
    clock = FakeClock(1_517_126_400)
    jumps = JumpDetector(clock)
    for seconds in partings:
        clock.jump(seconds)
        assert jumps.read() == (pytest.approx(seconds, abs=0.001) if abs(seconds) > MIN_JUMP_SECONDS else 0.0)
        assert jumps.read() == 0.0


def test_time_that_passes_on_both_clocks_is_no_jump():
    clock = FakeClock(1_517_126_400)
    asyncio.run(clock.advance(60))
    jumps = JumpDetector(clock)
    asyncio.run(clock.advance(3600))
    assert jumps.read() == 0.0
