"""The TTS sink: any order, split and duplication of windows leaves the archive that one ordered run leaves."""

from __future__ import annotations

import itertools
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import archive_model as model
import h5py
import numpy as np
import pytest
from archive_model import DAYS, NAMES, archives, filled, held, sink_in
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.batch import Batch
from tokiod.errors import Refusal
from tokiod.testing.clock import FakeClock
from tokiod.tts.live.files import UNSYNCED
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.schema import missing
from tokiod.tts.sealed.seal import seal
from tokiod.window import Calendar, Window
from tokiod.window_data import Collected, TableRows, WindowMeta

if TYPE_CHECKING:
    import random
    from pathlib import Path


@given(archives, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_order_split_and_duplication_of_windows_gives_every_right_cell_across_midnights(tmp_path_factory, samples, rng: random.Random):
    directory = tmp_path_factory.mktemp("archive")
    windows = []
    for day in range(DAYS):
        edges = sorted({0, model.ROWS, *rng.sample(range(1, model.ROWS), 4)})
        windows += [model.window(samples, day * model.ROWS + a, day * model.ROWS + b) for a, b in itertools.pairwise(edges)]
    windows += rng.sample(windows, 4)
    rng.shuffle(windows)
    sink = sink_in(directory)
    for collected in windows:
        sink.apply(collected)
        if rng.random() < 0.3:
            assert sink.commit() == []
        if rng.random() < 0.1:
            sink.close()
            sink = sink_in(directory)
    sink.close()
    assert filled(held(directory)) == filled(model.expected(samples, DAYS))


@given(archives, st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_columns_and_datasets_that_appear_late_grow_the_file_and_lose_nothing(tmp_path_factory, samples, rng: random.Random):
    directory = tmp_path_factory.mktemp("archive")
    sink = sink_in(directory)
    jobs = [(first, name) for first in range(0, DAYS * model.ROWS, 6) for name in NAMES]
    rng.shuffle(jobs)
    for first, name in jobs:
        sink.apply(model.window({name: samples[name]}, first, first + 6))
    sink.close()
    assert filled(held(directory)) == filled(model.expected(samples, DAYS))


@given(archives, st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_changes_told_add_up_to_the_file(tmp_path_factory, samples, rng: random.Random):
    directory = tmp_path_factory.mktemp("archive")
    sink = sink_in(directory)
    told: dict[tuple[str, str, int], float] = {}
    firsts = list(range(0, DAYS * model.ROWS, 4))
    rng.shuffle(firsts)
    for first in firsts:
        for batch in sink.apply(model.window(samples, first, first + 4)).changes:
            for time, column, value in zip(batch.time, batch.column, batch.value, strict=True):
                told[batch.dataset, batch.columns[column], int(time)] = float(value)
    sink.close()
    cells = {
        (dataset, name, model.EPOCH + day * model.DAY + row * model.STEP): value
        for (day, dataset, name), rows in held(directory).items()
        for row, value in rows.items()
    }
    assert {key: value for key, value in told.items() if not np.isnan(value)} == cells


def test_a_window_applied_again_changes_nothing_and_tells_nothing(tmp_path):
    samples = {name: {row: 10 * row + 1 for row in range(24)} for name in NAMES}
    sink = sink_in(tmp_path)
    assert sink.apply(model.window(samples, 0, 24)).cells == 2 * 24 * 3
    sink.commit()
    before = held(tmp_path)
    assert sink.apply(model.window(samples, 0, 24)).changes == []
    sink.close()
    assert held(tmp_path) == before


def test_a_window_without_data_makes_no_file(tmp_path):
    sink = sink_in(tmp_path)
    applied = sink.apply(Collected(WindowMeta("s", "lmt", "fs", Window(model.EPOCH, model.EPOCH + 60)), []))
    assert (applied.cells, dict(applied.dropped), applied.changes) == (0, {}, [])
    assert list(tmp_path.iterdir()) == []


def one(dataset: str, form: str, step: int, value, time: int = model.EPOCH, columns=("a",)) -> Collected:
    dtype = np.int64 if form == "counter" else np.float64
    values = np.atleast_1d(np.array(value, dtype))
    batch = Batch(dataset, form, step, columns, np.full(len(values), time), np.zeros(len(values), np.uint32), values)
    return Collected(WindowMeta("s", "lmt", "fs", Window(model.EPOCH, model.EPOCH + 3600)), [batch])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (one(model.GAUGE, "gauge", 60, np.nan), "not a number"),
        (one(model.GAUGE, "gauge", 60, np.inf), "not a number"),
        (one(model.GAUGE, "gauge", 60, -np.inf), "not a number"),
        (one(model.COUNTER, "counter", 60, -1), "negative counter"),
        (one(model.COUNTER, "counter", 60, np.iinfo(np.int64).min), "negative counter"),
        (one(model.GAUGE, "gauge", 60, 1.0, model.EPOCH - 1), "outside the window"),
        (one(model.GAUGE, "gauge", 60, 1.0, model.EPOCH + 3600), "outside the window"),
        (one(model.GAUGE, "gauge", 60, 1.0, 2**62), "outside the window"),
    ],
)
def test_a_cell_that_can_not_be_right_is_counted_by_reason_and_not_stored(tmp_path, bad, reason):
    sink = sink_in(tmp_path)
    applied = sink.apply(bad)
    sink.close()
    assert (applied.cells, dict(applied.dropped)) == (0, {reason: 1})
    assert filled(dict(_all_cells(tmp_path).items())) == {}


def _all_cells(directory: Path) -> dict[str, list[int]]:
    found = {}
    for path in directory.rglob("*.hdf5"):
        with h5py.File(path, "r") as file:
            file.visititems(
                lambda name, node: (
                    found.__setitem__(name, np.flatnonzero(~missing(node[...])).tolist())
                    if getattr(node, "ndim", 0) == 2 and not name.startswith("_")
                    else None
                )
            )
    return found


def test_a_measured_negative_zero_is_stored_as_a_measured_zero(tmp_path):
    sink = sink_in(tmp_path)
    sink.apply(one(model.GAUGE, "gauge", 60, -0.0))
    sink.close()
    assert _all_cells(tmp_path) == {model.GAUGE: [0]}


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        (one(model.GAUGE, "gauge", 60, 1.0), one(model.GAUGE, "gauge", 30, 1.0), "rows are 60 s apart, not 30 s"),
        (one(model.COUNTER, "counter", 60, 1), one(model.COUNTER, "gauge", 60, 1.0), "readbytes"),
        (one(model.GAUGE, "gauge", 60, 1.0), one("datatargets/nonsense", "gauge", 60, 1.0), "nonsense"),
    ],
)
def test_a_batch_that_contradicts_the_file_is_refused_for_good_and_disturbs_nothing(tmp_path, first, second, sentence):
    sink = sink_in(tmp_path)
    sink.apply(first)
    sink.commit()
    before = _all_cells(tmp_path)
    with pytest.raises(Refusal, match=sentence) as refused:
        sink.apply(second)
    assert refused.value.when == "never"
    sink.close()
    assert _all_cells(tmp_path) == before


def made_by_pytokio(directory, day, step=model.STEP):
    """Write a day's file as pytokio does: a matrix of differences, no samples of the counter. Return its path."""
    path = directory / str(model.CALENDAR.day(day).date) / "fs.hdf5"
    path.parent.mkdir(parents=True)
    with h5py.File(path, "w") as file:
        file.attrs.update(version="1", start=day, end=day + model.DAY)
        file["datatargets/timestamps"] = np.arange(day, day + model.DAY, step)
        file["datatargets"].attrs["source"] = "lmt"
        cells = file.create_dataset(model.COUNTER, data=np.full((model.DAY // step, 1), 7.0))
        cells.attrs.update(columns=np.array(["OST0000"], "S"), units="bytes", version="1", updated=day)
    return path


@pytest.mark.parametrize("step", [model.STEP, 60])
def test_a_refused_window_writes_nothing_to_a_sealed_or_foreign_file(tmp_path, step):
    path = made_by_pytokio(tmp_path, model.EPOCH, step)
    before = path.read_bytes()
    with closing(sink_in(tmp_path)) as sink:
        with pytest.raises(Refusal, match=r"readbytes|rows are 60 s apart") as refused:
            sink.apply(model.window({"OST0000": {3: 1, 4: 2}}, 3, 5))
        assert (refused.value.when, sink.commit(), sink.run_maintenance()) == ("never", [], [])
    assert path.read_bytes() == before
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [path]


def seam(samples, row):
    collected = model.window(samples, row, row + 1)
    counters = [batch for batch in collected.batches if batch.form == "counter"]
    return replace(collected, meta=replace(collected.meta, extent="seam"), batches=counters)


@pytest.mark.parametrize("step", [model.STEP, 60])
def test_a_seam_in_a_day_of_another_step_or_form_closes_the_last_row_before_it_and_leaves_that_day_as_it_is(tmp_path, step):
    days = [made_by_pytokio(tmp_path, day, step) for day in (model.EPOCH, model.EPOCH + 2 * model.DAY)]
    before = [day.read_bytes() for day in days]
    samples = {"OST0000": {row: 5 + row for row in range(3 * model.ROWS)}}
    with closing(sink_in(tmp_path)) as sink:
        sink.apply(model.window(samples, model.ROWS, 2 * model.ROWS))
        for row in (model.ROWS - 1, 2 * model.ROWS):
            applied = sink.apply(seam(samples, row))
            assert (applied.cells, dict(applied.dropped)) == (0, {})
        assert sink.commit() == []
    assert [day.read_bytes() for day in days] == before
    assert held(tmp_path)[1, model.COUNTER, "OST0000"] == dict.fromkeys(range(model.ROWS), 1.0)


def test_a_seam_within_a_day_of_another_step_is_no_sample_of_its_end(tmp_path):
    with closing(sink_in(tmp_path)) as sink:
        sink.apply(model.window({"OST0000": {0: 5, 23: 6}}, 0, 24))
        other = one(model.COUNTER, "counter", 60, 9, model.EPOCH + 60, ("OST0000",))
        sink.apply(replace(other, meta=replace(other.meta, window=Window(model.EPOCH + 60, model.EPOCH + 120), extent="seam")))
        assert sink.commit() == []
    assert held(tmp_path)[0, model.COUNTER, "OST0000"] == {22: 1.0}


def test_a_window_across_the_end_of_the_day_is_refused(tmp_path):
    sink = sink_in(tmp_path)
    crossing = Collected(WindowMeta("s", "lmt", "fs", Window(model.EPOCH + model.DAY - 60, model.EPOCH + model.DAY + 60)), [])
    with pytest.raises(Refusal, match="crosses the end of"):
        sink.apply(crossing)


def sink_of_zone(directory, timezone):
    """Return a sink whose days are those of another time zone, under the same paths."""
    layout = daily(Calendar(timezone), lambda day, system: directory / f"{day.date}" / f"{system}.hdf5")
    return TtsSink(DayFiles(layout, FakeClock(model.EPOCH)))


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("timezone", ["America/Los_Angeles", "Asia/Tokyo"])
def test_a_window_for_a_file_of_the_same_date_in_another_time_zone_is_refused_and_the_file_stays_as_it_is(tmp_path, timezone, is_sealed):
    samples = {"OST0000": {row: 5 + row for row in range(10, 14)}}
    sink = sink_in(tmp_path)
    sink.apply(model.window(samples, 10, 14))
    sink.commit()
    if is_sealed:
        assert sink.seal("fs", model.EPOCH)
        sink.run_maintenance()
    sink.close()
    before = held(tmp_path)
    sink = sink_of_zone(tmp_path, timezone)
    for _ in range(2):
        with pytest.raises(Refusal, match=r"not of .* its day in `timezone`: restore the time zone") as refused:
            sink.apply(model.window({"OST0000": {12: 1}}, 12, 14))
        assert refused.value.when == "never"
    assert sink.commit() == []
    sink.close()
    assert held(tmp_path) == before
    assert [path.name for path in tmp_path.rglob("*.*")] == ["fs.hdf5"]


def test_a_day_beside_a_file_of_another_time_zone_is_stored_without_it(tmp_path):
    sink = sink_in(tmp_path)
    sink.apply(model.window({"OST0000": {22: 1, 23: 2}}, 22, 24))
    sink.commit()
    sink.close()
    sink = sink_of_zone(tmp_path, "America/Los_Angeles")
    tomorrow = {"OST0000": {row: row for row in range(32, 35)}}
    sink.apply(model.window(tomorrow, 32, 34))
    assert sink.commit() == []
    sink.close()
    with h5py.File(tmp_path / "2018-01-30" / "fs.hdf5") as file:
        assert file[model.COUNTER][0, 0] == 1


JOBS = TableRows("jobs/operations", ("time", "writes"), (np.array([model.EPOCH]), np.array([7])))


def test_a_window_of_job_tables_is_refused_for_good(tmp_path):
    with closing(sink_in(tmp_path)) as sink, pytest.raises(Refusal) as refused:
        sink.apply(Collected(WindowMeta("s", "lmt", "fs", Window(model.EPOCH, model.EPOCH + 60)), [], [JOBS]))
    assert refused.value.when == "never"


def test_a_batch_without_columns_is_stored_beside_others(tmp_path):
    empty = Batch("datatargets/readbytes", "counter", 3600, (), np.array([], int), np.array([], np.uint32), np.array([], np.int64))
    collected = one("fullness/bytes", "gauge", 3600, 7.0)
    with closing(sink_in(tmp_path)) as sink:
        assert sink.apply(Collected(collected.meta, [empty, *collected.batches])).cells == 1


def test_units_of_a_kind_stay_in_its_file_when_it_is_rewritten_sealed_and_grown(tmp_path):
    dataset, units = "dataservers/memused", {"lmt": {"dataservers/memused": "%"}}
    sink = sink_in(tmp_path, units=units)
    sink.apply(one(dataset, "gauge", 60, [50.0], columns=("a",)))
    sink.commit()
    sink.apply(one(dataset, "gauge", 60, [50.0], columns=("b",)))
    sink.commit()
    sink.close()
    (path,) = tmp_path.rglob("*.hdf5")
    assert unit_of(path, dataset) == b"%"
    with closing(LiveFile.open(path, UNSYNCED)) as live:
        seal(live, path, updated=model.EPOCH)
    assert unit_of(path, dataset) == b"%"
    again = sink_in(tmp_path)
    again.apply(one(dataset, "gauge", 60, [70.0], columns=("c",)))
    again.commit()
    again.close()
    assert unit_of(path, dataset) == b"%"


def test_without_units_of_the_kind_those_of_the_dataset_are_written(tmp_path):
    sink = sink_in(tmp_path, units={"other": {"dataservers/memused": "%"}})
    sink.apply(one("dataservers/memused", "gauge", 60, [50.0]))
    sink.close()
    (path,) = tmp_path.rglob("*.hdf5")
    assert unit_of(path, "dataservers/memused") == b"bytes"


def unit_of(path, dataset):
    with h5py.File(path) as file:
        return file[dataset].attrs["units"]
