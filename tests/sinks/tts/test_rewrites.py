"""Rewrites for windows that change their mind: a source whose step changed, and a window that never comes again."""

import asyncio
import errno

import archive_model as model
import numpy as np
import pytest
from archive_model import NAMES
from faulty_archive import SAMPLES, FaultyArchive
from faulty_files import FaultyFiles
from manual_executor import ManualExecutor

from sinks.tts.day_files import DayFiles
from sinks.tts.rewrites import LEFT_SECONDS
from sinks.tts.sink import TtsSink
from tokiod.batch import Batch
from tokiod.errors import Refusal
from tokiod.sink import FileChange
from tokiod.testing.clock import FakeClock
from tokiod.window import Window
from tokiod.window_data import Collected, WindowMeta

HALF_HOUR = model.STEP // 2
DATASETS = {"lmt": "datatargets/readbytes", "collectd_es": "dataservers/cpuload"}


def window(kind, step, start):
    """An hour of one column of a kind's dataset."""
    time = np.arange(start, start + model.STEP, step)
    batch = Batch(DATASETS[kind], "gauge", step, ("a",), time, np.zeros(len(time), np.uint32), np.ones(len(time)))
    return Collected(WindowMeta(kind, kind, "fs", Window(start, start + model.STEP)), [batch])


@pytest.fixture
def sink(tmp_path):
    with_steps = FaultyArchive(tmp_path).sink
    with_steps.days.steps = {"fs": {"lmt": {model.STEP}, "collectd_es": {model.STEP}}}
    return with_steps


def test_a_changed_step_begins_with_the_next_days_file_and_other_sources_keep_theirs(sink):
    today, tomorrow = model.EPOCH, model.EPOCH + model.DAY
    for kind in DATASETS:
        sink.apply(window(kind, model.STEP, today))
    sink.days.steps["fs"]["lmt"] = {HALF_HOUR}
    with pytest.raises(Refusal, match="rows are 3600 s apart, not 1800 s") as refused:
        sink.apply(window("lmt", HALF_HOUR, today + model.STEP))
    assert refused.value.when == "never"
    sink.prepare("fs", tomorrow)
    path = sink.days.layout("fs", tomorrow).path
    assert sink.run_maintenance()[-1] == FileChange("made", path)
    assert sink.apply(window("collectd_es", model.STEP, tomorrow)).cells == 1
    assert sink.apply(window("lmt", HALF_HOUR, tomorrow)).cells == 2
    assert sink.commit() == []


def test_a_next_day_all_of_whose_groups_changed_is_created_empty_and_grows(sink):
    sink.apply(window("lmt", model.STEP, model.EPOCH))
    sink.days.steps["fs"]["lmt"] = {HALF_HOUR}
    sink.prepare("fs", model.EPOCH + model.DAY)
    assert sink.apply(window("lmt", HALF_HOUR, model.EPOCH + model.DAY)).cells == 2
    assert sink.commit() == []


def test_a_growth_that_failed_and_whose_window_never_comes_again_does_not_keep_the_file_from_being_sealed(tmp_path):
    executor, clock, files = ManualExecutor(), FakeClock(model.EPOCH), FaultyFiles(tmp_path)
    layout = FaultyArchive(tmp_path / "other").sink.days.layout
    sink = TtsSink(DayFiles(layout, clock, files, executor))
    path = layout("fs", model.EPOCH).path
    for names in (NAMES[:1], NAMES):
        with pytest.raises(Refusal, match="is being"):
            sink.apply(model.window(SAMPLES, 0, 4, names))
        if names == NAMES:
            files.fail("allocate", 1, errno.ENOSPC)
        executor.run_all()
        sink.run_maintenance()
    assert not sink.seal("fs", model.EPOCH)
    asyncio.run(clock.advance(LEFT_SECONDS))
    (done,) = sink.run_maintenance()
    assert (done.change, done.path, done.error.errno) == ("grown", path, errno.ENOSPC)
    assert sink.seal("fs", model.EPOCH)
    executor.run_all()
    assert sink.run_maintenance() == [FileChange("sealed", path)]
