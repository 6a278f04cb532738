"""Live polling's collection of one window."""

import asyncio

import msgspec
import pytest

from collectors import lmt
from tokiod.polling.collect_window import WindowCollector
from tokiod.testing.clock import FakeClock
from tokiod.units import Duration
from tokiod.window import Window
from tokiod.window_data import WindowData, WindowMeta

WINDOW = Window(1_517_184_000, 1_517_184_060)
CONFIG = lmt.Config(name="l", kind="lmt", system="fs", url="sqlite:///x", window=Duration(60))


class ThreeRecords:
    """A source of three records, replayable or not."""

    def __init__(self, *, replayable):
        self.replayable = replayable

    async def collect(self, window):  # noqa: ARG002 - the contract's
        return WindowData((), 3, {"odd": 1})


@pytest.mark.parametrize(("replayable", "records"), [(True, 3), (False, None)])
def test_the_number_of_records_is_kept_only_of_a_replayable_source(replayable, records):
    found = asyncio.run(WindowCollector(CONFIG, ThreeRecords(replayable=replayable), FakeClock(WINDOW.end)).collect(WINDOW))
    assert found.meta == WindowMeta("l", "lmt", "fs", WINDOW, records, {"odd": 1})


def test_an_answer_that_takes_too_long_is_a_timeout():
    class Slow(ThreeRecords):
        async def collect(self, window):
            await asyncio.sleep(60)
            return await super().collect(window)

    short = msgspec.structs.replace(CONFIG, timeout=Duration(0.05))
    with pytest.raises(TimeoutError):
        asyncio.run(WindowCollector(short, Slow(replayable=True), FakeClock(WINDOW.end)).collect(WINDOW))
