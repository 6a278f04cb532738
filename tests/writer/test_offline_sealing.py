"""Days are sealed without a writer, in the order given; a failure ends it with a message and leaves the earlier files sealed."""

import archive_model as model
import pytest
from archive_model import NAMES

from collectors import lmt
from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.config.schema import Config
from tokiod.config.sections import ArchiveConfig
from tokiod.errors import TokiodError
from tokiod.testing.clock import FakeClock
from tokiod.tts.layout import form_of, open_for_reading
from tokiod.units import Duration
from tokiod.writer.offline_sealing import seal_days
from tokiod.writer.sink_options import max_rates, steps, units

DAY = 86400
SAMPLES = {name: {row: 100 * row + i + 1 for row in range(4 * model.ROWS)} for i, name in enumerate(NAMES)}
LMT = lmt.Config(name="l", kind="lmt", system="fs", url="sqlite:///x", window=Duration(3600))


@pytest.fixture
def config(tmp_path):
    return Config(timezone="UTC", archive=ArchiveConfig(path=f"{tmp_path}/%Y-%m-%d/{{system}}.hdf5"), source=(LMT,))


@pytest.fixture
def paths(config):
    """Live files of two days."""
    layout = daily(model.CALENDAR, config.archive.file)
    options = {"units": units(config), "steps": steps(config), "max_rates": max_rates(config)}
    sink = TtsSink(DayFiles(layout, FakeClock(model.EPOCH), **options))
    for hour in range(26):
        sink.apply(model.window(SAMPLES, hour, hour + 1))
        assert sink.commit() == []
    sink.close()
    return [config.archive.file(model.CALENDAR.day(model.EPOCH + n * DAY), "fs") for n in range(2)]


def forms(paths):
    found = []
    for path in paths:
        with open_for_reading(path) as file:
            found.append(form_of(file))
    return found


def test_only_the_named_days_are_sealed(config, paths):
    assert forms(paths) == ["live", "live"]
    seal_days(config, FakeClock(model.EPOCH + 3 * DAY), [("fs", model.EPOCH)])
    assert forms(paths) == ["sealed", "live"]


def test_a_file_that_can_not_be_read_is_named_and_those_before_it_are_sealed(config, paths):
    paths[1].write_bytes(b"junk")
    with pytest.raises((TokiodError, OSError)) as caught:
        seal_days(config, FakeClock(model.EPOCH + 3 * DAY), [("fs", model.EPOCH), ("fs", model.EPOCH + DAY)])
    assert str(paths[1]) in str(caught.value)
    assert forms(paths[:1]) == ["sealed"]
