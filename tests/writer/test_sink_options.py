"""What the sink takes from a configuration."""

import numpy as np
import pytest

from collectors import lmt
from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.batch import Batch
from tokiod.config.schema import Config
from tokiod.config.sections import ArchiveConfig
from tokiod.testing.clock import FakeClock
from tokiod.tts.live.files import Files
from tokiod.window import Calendar, Window
from tokiod.window_data import Collected, WindowMeta
from tokiod.writer.sink_options import max_open

NIGHT = 1_517_184_000
READ = "datatargets/readbytes"


class CountingFiles(Files):
    def __init__(self):
        self.opened = 0

    def open(self, path, *flags):
        self.opened += 1
        return super().open(path, *flags)


def sample(system, time):
    batch = Batch(READ, "counter", 5, ("OST0000",), np.array([time]), np.array([0], np.uint32), np.array([time - NIGHT + 1000]))
    return Collected(WindowMeta(system, "lmt", system, Window(time, time + 5)), [batch])


@pytest.mark.parametrize("systems", [1, 12])
def test_windows_of_all_systems_in_turns_open_no_file_again(tmp_path, systems):
    """With too few, each window opened its file, and read the days around it, again."""
    names = [f"fs{number}" for number in range(systems)]
    sources = tuple(lmt.Config(name=name, kind="lmt", system=name, url="sqlite:///x") for name in names)
    config = Config(timezone="UTC", archive=ArchiveConfig(path=f"{tmp_path}/%Y-%m-%d/{{system}}.hdf5"), source=sources)
    files, layout = CountingFiles(), daily(Calendar("UTC"), config.archive.file)
    sink = TtsSink(DayFiles(layout, FakeClock(float(NIGHT)), files, max_open=max_open(config)))
    for time in range(NIGHT - 10, NIGHT + 10, 5):
        for name in names:
            sink.apply(sample(name, time))
            assert sink.commit() == []
    opened = files.opened
    for time in range(NIGHT - 10, NIGHT + 10, 5):
        for name in names:
            sink.apply(sample(name, time))
            assert sink.commit() == []
    sink.close()
    assert files.opened == opened
