"""A window is collected within a time limit, and labelled with where it comes from."""

import asyncio

import numpy as np
import pytest

from tokiod.collector import SourceConfig, collect_window
from tokiod.units import Duration
from tokiod.window import Window
from tokiod.window_data import TableRows, WindowData, WindowMeta

WINDOW = Window(600, 660)
CONFIG = SourceConfig(name="a", kind="lmt", system="fs", timeout=Duration(60), window=Duration(60))
ROWS = TableRows("jobs/operations", ("time", "writes"), (np.array([600]), np.array([7])))


class Answering:
    """Returns its data after some seconds."""

    def __init__(self, data, seconds=0.0):
        self.data, self.seconds = data, seconds

    async def collect(self, _window):
        await asyncio.sleep(self.seconds)
        return self.data


def test_a_collected_window_has_the_data_and_whose_they_are():
    data = WindowData([], 5, {"null": 2}, [ROWS])
    found = asyncio.run(collect_window(Answering(data), CONFIG, WINDOW, seconds=1.0, extent="some"))
    assert found.meta == WindowMeta("a", "lmt", "fs", WINDOW, 5, {"null": 2}, "some")
    assert (found.batches, found.tables) == ([], [ROWS])


def test_a_window_that_takes_too_long_is_given_up():
    with pytest.raises(TimeoutError):
        asyncio.run(collect_window(Answering(WindowData(), 60.0), CONFIG, WINDOW, seconds=0.01))


@pytest.mark.parametrize(("length", "seconds"), [(10, 60), (60, 60), (180, 180)])
def test_the_limit_of_a_window_grows_with_its_length(length, seconds):
    assert CONFIG.seconds_for(Window(0, length)) == seconds
