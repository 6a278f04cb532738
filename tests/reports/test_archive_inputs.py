"""Archiving from a collector that a test scripts: what is asked of it, and what becomes of the file when it fails."""

import asyncio
from itertools import pairwise

import h5py
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tokiod.batch import Batch
from tokiod.errors import Fatal, TokiodError
from tokiod.reports.archive_inputs import ImportJob, archive
from tokiod.testing.clock import FakeClock
from tokiod.tts.schema import missing
from tokiod.window import Window
from tokiod.window_data import WindowData

STEP = 60
NOON = 1_517_184_000 + 12 * 3600
COUNTER, GAUGE = "datatargets/readbytes", "dataservers/memused"


class Source:
    """A counter that grows by its minute, and a gauge that is its minute; `fails` at windows that begin there."""

    step = STEP
    replayable = True

    def __init__(self, *, needs_sample_at_end=True, fails=(), silent=False):
        self.needs_sample_at_end = needs_sample_at_end
        self.fails = fails
        self.silent = silent
        self.asked = []

    async def collect(self, window):
        self.asked.append(window)
        if window.start in self.fails:
            raise Fatal("no permission")
        if self.silent:
            return WindowData((), None, {"nonsense": 1})
        time = np.arange(window.start, window.end, STEP)
        minute, column = (time - NOON) // STEP, np.zeros(len(time), np.uint32)
        counter = Batch(COUNTER, "counter", STEP, ("OST0000",), time, column, 2**60 + minute * (minute + 1) // 2)
        gauge = Batch(GAUGE, "gauge", STEP, ("oss0",), time, column, minute.astype(np.float64))
        return WindowData([counter, gauge], None, {"nonsense": 1})


def run(source, out, first, last, file_span=None):
    """Archive minutes [first, last) after noon."""
    span = Window(NOON + first * STEP, NOON + last * STEP)
    done = []
    result = asyncio.run(archive(ImportJob("lmt", source, span, file_span, out), FakeClock(NOON + 7200), done.append))
    assert sum(done) == span.seconds
    return result


def minutes(out):
    """Every cell that is not missing, by its minute."""
    with h5py.File(out, "r") as file:
        first = (int(file.attrs["start"]) - NOON) // STEP
        cells = {name: file[name][:, 0] for name in (COUNTER, GAUGE)}
    return {name: {int(row) + first: float(value[row]) for row in np.flatnonzero(~missing(value))} for name, value in cells.items()}


@pytest.fixture(autouse=True)
def quarters(monkeypatch):
    """A quarter of an hour at a time: fifteen rows of two columns."""
    monkeypatch.setattr("tokiod.reports.archive_inputs.WINDOW_CELLS", 30)
    monkeypatch.setattr("tokiod.reports.archive_inputs.FIRST_ROWS", 15)
    monkeypatch.setattr("tokiod.reports.archive_inputs.MIN_ROWS", 1)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.hdf5"


def test_a_quarter_of_an_hour_at_a_time_is_collected_and_then_the_step_after_it(out):
    source = Source()
    result = run(source, out, 0, 150)
    edges = [*range(0, 151, 15), 151]
    assert source.asked == [Window(NOON + a * STEP, NOON + b * STEP) for a, b in pairwise(edges)]
    assert (result.cells, dict(result.dropped.counts)) == (300, {"nonsense": 10})
    assert minutes(out) == {COUNTER: {m: m + 1.0 for m in range(150)}, GAUGE: {m: float(m) for m in range(150)}}


def test_no_more_than_a_day_is_collected_at_a_time(out, monkeypatch):
    monkeypatch.setattr("tokiod.reports.archive_inputs.WINDOW_CELLS", 4000)
    source = Source(needs_sample_at_end=False)
    run(source, out, 0, 2000)
    edges = [0, 15, 15 + 1440, 2000]
    assert source.asked == [Window(NOON + a * STEP, NOON + b * STEP) for a, b in pairwise(edges)]


@pytest.mark.parametrize(("cells", "rows"), [(80, 40), (3, 2)])
def test_the_fewer_columns_a_file_has_the_longer_its_windows(out, monkeypatch, cells, rows):
    monkeypatch.setattr("tokiod.reports.archive_inputs.WINDOW_CELLS", cells)
    monkeypatch.setattr("tokiod.reports.archive_inputs.MIN_ROWS", 2)
    source = Source(needs_sample_at_end=False)
    result = run(source, out, 0, 15 + 2 * rows)
    assert source.asked == [Window(NOON + a * STEP, NOON + b * STEP) for a, b in pairwise([0, 15, 15 + rows, 15 + 2 * rows])]
    assert result.cells == 2 * (15 + 2 * rows)


class Irregular:
    """A gauge with samples at any second, whose value is that second. It counts rows from a window's start, as the kinds do."""

    replayable = True
    needs_sample_at_end = False

    def __init__(self, step, times):
        self.step = step
        self.times = np.array(sorted(times), np.int64)

    async def collect(self, window):
        value = self.times[(self.times >= window.start) & (self.times < window.end)]
        rows = window.start + (value - window.start) // self.step * self.step
        time, last = np.unique(rows[::-1], return_index=True)
        column = np.zeros(len(time), np.uint32)
        return WindowData([Batch(GAUGE, "gauge", self.step, ("oss0",), time, column, value[::-1][last].astype(np.float64))])


@settings(deadline=None, max_examples=60)
@given(data=st.data(), step=st.sampled_from([5, 7, 10, 60, 600, 86400]), rows=st.integers(2, 40))
def test_each_sample_is_in_its_row_of_the_file_wherever_the_span_and_the_file_begin(tmp_path_factory, data, step, rows):
    out = tmp_path_factory.mktemp("grid") / "out.hdf5"
    begin = NOON + data.draw(st.integers(0, 90_000), "begin of the file")
    file = Window(begin, begin + rows * step)
    times = data.draw(st.lists(st.integers(file.start, file.end - 1), min_size=1), "samples")
    first = data.draw(st.integers(file.start, file.end - 1), "start")
    span = Window(first, data.draw(st.integers(first + 1, file.end), "end"))
    expected = {(time - begin) // step: float(time) for time in sorted(times)}
    touched = range((span.start - begin) // step, -(-(span.end - begin) // step))
    expected = {row: value for row, value in expected.items() if row in touched}
    assume(expected)
    result = asyncio.run(archive(ImportJob("lmt", Irregular(step, times), span, file, out), FakeClock(NOON)))
    with h5py.File(out, "r") as stored:
        value = stored[GAUGE][:, 0]
    assert {int(row): float(value[row]) for row in np.flatnonzero(~missing(value))} == expected
    assert (result.span.start - begin, result.span.end - begin) == (touched.start * step, touched.stop * step)


def test_no_step_after_the_span_is_collected_where_no_cell_needs_it(out):
    source = Source(needs_sample_at_end=False)
    run(source, out, 0, 60)
    assert source.asked == [Window(NOON + m * STEP, NOON + (m + 15) * STEP) for m in (0, 15, 30, 45)]
    assert minutes(out)[COUNTER] == {m: m + 1.0 for m in range(59)}


def test_the_samples_at_both_seams_of_an_existing_file_are_stored(out):
    whole = Window(NOON, NOON + 3600)
    run(Source(), out, 0, 20, whole)
    run(Source(), out, 40, 60)
    source = Source()
    run(source, out, 20, 40)
    edges = [(20, 35), (35, 40), (40, 41), (19, 20)]
    assert source.asked == [Window(NOON + a * STEP, NOON + b * STEP) for a, b in edges]
    assert minutes(out) == {COUNTER: {m: m + 1.0 for m in range(60)}, GAUGE: {m: float(m) for m in range(60)}}


def test_the_result_is_sealed_and_dated_and_no_other_file_remains(out):
    run(Source(), out, 0, 60)
    with h5py.File(out, "r") as file:
        assert file["_tokiod"].attrs["form"] == b"sealed"
        assert file[GAUGE].compression == "gzip"
        assert int(file[GAUGE].attrs["updated"]) == NOON + 7200
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("fails", [NOON, NOON + 3600, NOON + 7200], ids=["first window", "second window", "sample at the end"])
def test_where_the_source_fails_there_is_no_file_or_the_old_one(out, fails):
    with pytest.raises(Fatal, match="no permission"):
        run(Source(fails=[fails]), out, 0, 120)
    assert list(out.parent.iterdir()) == []
    run(Source(), out, 0, 120)
    before = out.read_bytes()
    with pytest.raises(Fatal, match="no permission"):
        run(Source(fails=[fails]), out, 0, 120)
    assert [(path, path.read_bytes()) for path in out.parent.iterdir()] == [(out, before)]


def test_a_span_without_data_creates_no_file_and_leaves_an_existing_one(out):
    with pytest.raises(
        TokiodError,
        match=r"no data between 2018-01-29T12:00:00Z and 2018-01-29T13:00:00Z: .* was not written; nothing could be read: \d+ x nonsense$",
    ):
        run(Source(silent=True), out, 0, 60)
    assert list(out.parent.iterdir()) == []
    run(Source(), out, 0, 60)
    before = out.read_bytes()
    with pytest.raises(TokiodError, match=r"no data between .* was not written; nothing could be read: \d+ x nonsense$"):
        run(Source(silent=True), out, 0, 60)
    assert (out.read_bytes(), list(out.parent.iterdir())) == (before, [out])


def test_what_a_killed_import_left_is_deleted(out):
    leftover = out.with_name(f".{out.name}.live")
    leftover.write_text("half made")
    run(Source(), out, 0, 60)
    assert list(out.parent.iterdir()) == [out]
