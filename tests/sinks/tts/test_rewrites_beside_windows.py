"""Windows go on into a file while its successor is made beside it: nothing is lost, whatever comes when, and whoever is killed."""

import os
import random
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import archive_model as model
import pytest
from archive_model import COUNTER, GAUGE, NAMES, filled, held
from faulty_files import FaultyFiles, SimulatedKill
from manual_executor import ManualExecutor

from sinks.tts.day_files import DayFiles
from sinks.tts.rewrites import WAIT_SECONDS
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.errors import Refusal
from tokiod.sink import FileChange
from tokiod.testing.clock import FakeClock
from tokiod.tts.layout import dataset_names, form_of, open_for_reading
from tokiod.tts.live.files import REAL, sweep
from tokiod.tts.live.rewrite import Overtaken

SAMPLES = {name: {row: 100 * row + i + 1 for row in range(2 * model.ROWS)} for i, name in enumerate((*NAMES, "OST0003"))}
TODAY = {name: {row: v for row, v in rows.items() if row < model.ROWS} for name, rows in SAMPLES.items()}


def opened(directory, executor="inline", files=REAL, **limits):
    for temporary in list(directory.rglob(".*.tmp")):
        sweep(temporary.parent)
    layout = daily(model.CALENDAR, lambda day, system: directory / f"{day.date}" / f"{system}.hdf5")
    return TtsSink(DayFiles(layout, FakeClock(model.EPOCH), files, executor, **limits))


def store(sink, first, last, names=NAMES):
    sink.apply(model.window(SAMPLES, first, last, names))
    assert sink.commit() == []


def is_busy(sink, first, last, names):
    with pytest.raises(Refusal) as refused:
        sink.apply(model.window(SAMPLES, first, last, names))
    return refused.value.when == "busy"


def right(directory, names, days=1, rows=model.ROWS):
    only = {name: {row: v for row, v in SAMPLES[name].items() if row < rows} for name in names}
    return filled(held(directory)) == filled(model.expected(only, days))


def form(sink):
    with open_for_reading(path(sink)) as file:
        return form_of(file)


def path(sink):
    return sink.days.layout("fs", model.EPOCH).path


def test_what_is_stored_while_a_file_grows_is_in_the_grown_one(tmp_path):
    executor = ManualExecutor()
    sink = opened(tmp_path, executor)
    assert is_busy(sink, 0, 4, NAMES)
    executor.run_all()
    store(sink, 0, 4)
    assert is_busy(sink, 4, 6, tuple(SAMPLES))
    store(sink, 6, 10)
    executor.run_all()
    store(sink, 10, 12)
    store(sink, 3, 7)
    assert sink.run_maintenance()[-1] == FileChange("grown", path(sink))
    store(sink, 0, model.ROWS, tuple(SAMPLES))
    assert right(tmp_path, tuple(SAMPLES))
    assert list(tmp_path.rglob(".*.tmp")) == []


def test_columns_that_come_while_a_file_grows_are_its_next_growth(tmp_path):
    executor = ManualExecutor()
    sink = opened(tmp_path, executor)
    assert is_busy(sink, 0, 4, NAMES[:1])
    executor.run_all()
    store(sink, 0, 4, NAMES[:1])
    assert is_busy(sink, 4, 8, NAMES[:2])
    assert is_busy(sink, 4, 8, NAMES)
    executor.run_all()
    assert is_busy(sink, 4, 8, NAMES)
    executor.run_all()
    store(sink, 0, model.ROWS)
    assert right(tmp_path, NAMES)


def window_of(system):
    collected = model.window(SAMPLES, 0, 4, NAMES)
    return replace(collected, meta=replace(collected.meta, system=system))


def test_windows_do_not_wait_for_a_file_behind_another_that_is_waited_for(tmp_path):
    executor = ManualExecutor()
    sink = opened(tmp_path, executor)
    for system in ("one", "two", "three", "one"):
        with pytest.raises(Refusal):
            sink.apply(window_of(system))
    assert executor.waited == [WAIT_SECONDS]
    executor.run_all()
    for system in ("one", "two", "three"):
        assert sink.apply(window_of(system)).cells > 0
    with pytest.raises(Refusal):
        sink.apply(window_of("four"))
    assert executor.waited == [WAIT_SECONDS, WAIT_SECONDS]


def script(sink, executor):
    """A day whose file grows, with windows at every moment of that; and is sealed, overtaken once."""
    busy = 0
    for names in (NAMES, tuple(SAMPLES)):
        for _ in range(3):
            try:
                store(sink, 0, 4, names)
            except Refusal:
                busy += 1
                if names != NAMES:
                    store(sink, 8, 10)
                executor.run_all()
                if names != NAMES:
                    store(sink, 9, 12)
    assert busy == 2
    store(sink, 0, model.ROWS, tuple(SAMPLES))
    assert sink.seal("fs", model.EPOCH)
    executor.run_all()
    store(sink, 3, 5)
    assert isinstance(sink.run_maintenance()[-1].error, Overtaken)
    assert sink.seal("fs", model.EPOCH)
    executor.run_all()
    assert sink.run_maintenance()[-1] == FileChange("sealed", path(sink))
    sink.close()


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_killed_at_any_step_nothing_acknowledged_is_lost(tmp_path_factory, power):
    executor, files = ManualExecutor(), FaultyFiles(directory := tmp_path_factory.mktemp("whole"))
    script(opened(directory, executor, files), executor)
    steps = len(files.operations)
    assert right(directory, tuple(SAMPLES))
    for step in range(1, steps, 2 if not power else 3):
        directory, executor = tmp_path_factory.mktemp("killed"), ManualExecutor()
        files = FaultyFiles(directory)
        files.kill_at(step)
        with pytest.raises(SimulatedKill):
            script(opened(directory, executor, files), executor)
        if power:
            files.power_loss(step)
        sink = opened(directory)
        store(sink, 0, model.ROWS, tuple(SAMPLES))
        sink.close()
        assert right(directory, tuple(SAMPLES)), step


def test_a_file_that_is_just_being_sealed_grows_first(tmp_path):
    executor = ManualExecutor()
    sink = opened(tmp_path, executor)
    assert is_busy(sink, 0, 4, NAMES)
    executor.run_all()
    store(sink, 0, 4)
    assert sink.seal("fs", model.EPOCH)
    assert not sink.seal("fs", model.EPOCH)
    assert is_busy(sink, 4, 8, tuple(SAMPLES))
    executor.run_all()
    store(sink, 0, model.ROWS, tuple(SAMPLES))
    assert (right(tmp_path, tuple(SAMPLES)), form(sink)) == (True, "live")


def test_what_cannot_be_made_is_told_to_the_window_that_waits_for_it(tmp_path):
    executor, files = ManualExecutor(), FaultyFiles(tmp_path)
    sink = opened(tmp_path, executor, files)
    assert is_busy(sink, 0, 4, NAMES)
    files.fail("allocate", 1, 28)
    executor.run_all()
    assert sink.run_maintenance() == []
    with pytest.raises(Refusal, match="No space left on device") as refused:
        sink.apply(model.window(SAMPLES, 0, 4))
    assert refused.value.when == "retry"
    assert is_busy(sink, 0, 4, NAMES)
    executor.run_all()
    store(sink, 0, model.ROWS)
    assert right(tmp_path, NAMES)


def test_a_file_truncated_while_it_grows_is_set_aside_and_nothing_of_it_taken_over(tmp_path):
    executor = ManualExecutor()
    sink = opened(tmp_path, executor)
    assert is_busy(sink, 0, 4, NAMES)
    executor.run_all()
    store(sink, 0, 4)
    assert is_busy(sink, 4, 6, tuple(SAMPLES))
    with path(sink).open("r+b") as file:
        file.truncate(100)
    executor.run_all()
    with pytest.raises(Refusal):
        sink.apply(model.window(SAMPLES, 4, 6, tuple(SAMPLES)))
    (aside,) = sink.commit()
    assert (aside.path, aside.salvaged) == (str(path(sink)), False)
    assert is_busy(sink, 0, 4, NAMES)
    executor.run_all()
    store(sink, 0, model.ROWS)
    assert right(tmp_path, NAMES)


def test_a_dataset_has_no_more_columns_than_are_allowed(tmp_path):
    sink = opened(tmp_path, max_columns=3)
    store(sink, 0, 4)
    with pytest.raises(Refusal, match=r"would have 4 columns, archive\.max_columns allows 3") as refused:
        sink.apply(model.window(SAMPLES, 4, 8, tuple(SAMPLES)))
    assert refused.value.when == "never"
    store(sink, 0, model.ROWS)
    assert right(tmp_path, NAMES)


def grow_and_seal(sink, executor):
    """Yield after each rewrite that replaced an open file."""
    store(sink, 0, 4)
    assert is_busy(sink, 4, 6, tuple(SAMPLES))
    executor.run_all()
    store(sink, 4, 6, tuple(SAMPLES))
    yield
    assert sink.seal("fs", model.EPOCH)
    executor.run_all()
    assert sink.run_maintenance()[-1] == FileChange("sealed", path(sink))
    yield


def replaced_files(directory):
    """Return the files below a directory that this process has open, and that are in it no more."""
    names = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # another test's object may be collected, and its descriptor closed, in between
            names.append(os.readlink(link))  # noqa: PTH115 - they are no paths
    return [name for name in names if name.startswith(str(directory)) and name.endswith("fs.hdf5 (deleted)")]


def test_no_window_waits_while_the_system_frees_the_blocks_of_a_replaced_file(tmp_path):
    executor = ManualExecutor()
    sink = opened(tmp_path, executor)
    assert is_busy(sink, 0, 4, NAMES)
    executor.run_all()
    for _ in grow_and_seal(sink, executor):
        assert (len(replaced_files(tmp_path)), executor.waiting) == (1, [])
        sink.run_maintenance()
        assert len(replaced_files(tmp_path)) == 1
        executor.run_all()
        assert replaced_files(tmp_path) == []
    sink.close()


def test_a_sink_closes_replaced_files_before_it_ends(tmp_path):
    sink = opened(tmp_path, "threads")
    while True:
        try:
            store(sink, 0, 4)
            break
        except Refusal:
            time.sleep(0.01)
    assert sink.seal("fs", model.EPOCH)
    while not sink.run_maintenance():
        time.sleep(0.01)
    sink.close()
    assert replaced_files(tmp_path) == []


def test_tomorrows_file_has_what_came_lately_and_knows_todays_last_samples(tmp_path):
    executor = ManualExecutor()
    sink = opened(tmp_path, executor)
    tomorrow = sink.days.layout("fs", model.EPOCH + model.DAY)
    assert is_busy(sink, 0, 4, tuple(SAMPLES))
    executor.run_all()
    store(sink, 0, 4, tuple(SAMPLES))
    store(sink, 4, model.ROWS - 1)
    for _ in range(2):
        sink.prepare("fs", tomorrow.start)
    executor.run_all()
    assert sink.run_maintenance()[-1] == FileChange("made", tomorrow.path)
    with open_for_reading(tomorrow.path) as file:
        assert [name.decode() for name in file[COUNTER].attrs["columns"]] == list(NAMES)
        assert dataset_names(file["dataservers"]) == [GAUGE.split("/")[1]]
    store(sink, model.ROWS - 1, model.ROWS)
    store(sink, model.ROWS, 2 * model.ROWS)
    for name in NAMES:
        assert filled(held(tmp_path))[0, COUNTER, name] == model.expected(SAMPLES, 2)[0, COUNTER, name]
        assert filled(held(tmp_path))[1, COUNTER, name] == model.expected(SAMPLES, 2)[1, COUNTER, name]
    executor.run_all()
    sink.prepare("fs", tomorrow.start)
    assert executor.waiting == []


@pytest.mark.parametrize("seed", range(3))
def test_in_real_threads_every_window_is_there_in_the_end(tmp_path, seed):
    rng, sink = random.Random(seed), opened(tmp_path, "threads")
    todo = [(row, names) for names in (NAMES[:1], NAMES, tuple(SAMPLES)) for row in range(model.ROWS)]
    deadline = time.monotonic() + 60
    while todo and time.monotonic() < deadline:
        row, names = todo[index := rng.randrange(len(todo))]
        try:
            store(sink, row, row + 1, names)
        except Refusal as error:
            assert error.when == "busy"  # noqa: PT017 - one of many
        else:
            del todo[index]
        if rng.random() < 0.1:
            sink.seal("fs", model.EPOCH)
        sink.run_maintenance()
    while form(sink) == "live" and time.monotonic() < deadline:
        sink.seal("fs", model.EPOCH)
        sink.run_maintenance()
        time.sleep(0.01)
    sink.close()
    assert (todo, form(sink), right(tmp_path, tuple(SAMPLES))) == ([], "sealed", True)


def test_a_file_that_another_process_replaces_while_it_grows_is_quarantined(tmp_path):
    executor = ManualExecutor()
    sink = opened(tmp_path, executor)
    assert is_busy(sink, 0, 4, NAMES)
    executor.run_all()
    store(sink, 0, 4)
    assert is_busy(sink, 4, 6, tuple(SAMPLES))
    other = tmp_path / "other"
    other.write_bytes(path(sink).read_bytes())
    other.replace(path(sink))
    executor.run_all()
    with pytest.raises(Refusal) as refused:
        sink.apply(model.window(SAMPLES, 4, 6, tuple(SAMPLES)))
    assert refused.value.when == "retry"
    (quarantined,) = sink.commit()
    assert quarantined.path == str(path(sink))
    assert "another file replaced it" in quarantined.reason
