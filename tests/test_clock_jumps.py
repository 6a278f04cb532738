import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.clock import JUMP, Jumps
from tokiod.testing.clock import FakeClock


@given(st.lists(st.floats(-7200, 7200).filter(lambda seconds: abs(abs(seconds) - JUMP) > 0.001)))
def test_every_jump_is_told_once_with_its_seconds_and_slewing_never(partings):
    clock = FakeClock(1_517_126_400)
    jumps = Jumps(clock)
    for seconds in partings:
        clock.jump(seconds)
        assert jumps.look() == (pytest.approx(seconds, abs=0.001) if abs(seconds) > JUMP else 0.0)
        assert jumps.look() == 0.0


def test_time_that_passes_on_both_clocks_is_no_jump():
    clock = FakeClock(1_517_126_400)
    asyncio.run(clock.advance(60))
    jumps = Jumps(clock)
    asyncio.run(clock.advance(3600))
    assert jumps.look() == 0.0
