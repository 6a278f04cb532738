"""Which rows and pieces a span has, by slow references, and what is remembered of rows that were sent."""

import datetime as dt
import errno
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_archive import COUNTER, GAUGE, MIDNIGHT, SYSTEM, WrittenArchive

from tokiod.batch import Batch
from tokiod.change_sink import Block
from tokiod.config import load as configuration
from tokiod.errors import Fatal, Transient
from tokiod.forwarding import file_rows
from tokiod.forwarding.file_rows import MAX_STEPS, FileRows, Known, KnownDataset, KnownSystem, Sent, _rows
from tokiod.testing import FakeClock
from tokiod.window import Window

DAY = 86400
SMALL = st.integers(1, 12)


@given(st.integers(0, 60), SMALL, st.integers(0, 30), SMALL, SMALL)
def test_the_rows_of_a_window_are_those_that_overlap_it_from_the_beginning_of_their_unit(begin, length, start, step, unit):
    window = Window(begin, begin + length)
    first = next(n for n in range(100) if start + (n + 1) * step > window.start)
    begins = start + first * step
    low = begins if begins >= window.start else begins - begins % unit
    expected = [n for n in range(100) if low <= start + n * step < window.end]
    assert [*range(*_rows(window, start, step, unit))] == expected


def day_of(n):
    return SimpleNamespace(start=n * DAY, end=(n + 1) * DAY)


def block(dataset="g/a", step=60, columns=("c0",), units="B"):
    return Block("s", dataset, 0, step, columns, np.zeros((1, len(columns))), units, 1, 1)


def test_what_was_sent_is_known_with_all_columns_and_days_and_unchanged_if_it_was():
    first = KnownSystem().with_block(block(columns=("c10", "c9")), day_of(3))
    assert first.columns == {"g": ("c9", "c10")}
    assert first.sent == {"g": (Sent(60, 3 * DAY, 4 * DAY),)}
    assert first.with_block(block(columns=("c9",)), day_of(3)) is first
    for other in (block(step=30), block(units="s"), block(dataset="g/b"), block(columns=("c1", "c9"))):
        assert first.with_block(other, day_of(3)) != first
    wider = first.with_block(block(columns=("c1", "c9")), day_of(3))
    assert wider.columns == {"g": ("c1", "c9", "c10")}
    later = wider.with_block(block("h/a", units="1"), day_of(1)).with_block(block(), day_of(5)).with_block(block(), day_of(4))
    assert later.sent == {"g": (Sent(60, 3 * DAY, 6 * DAY),), "h": (Sent(60, DAY, 2 * DAY),)}
    assert later.datasets == {"g/a": KnownDataset(60, "B"), "h/a": KnownDataset(60, "1")}


def test_former_steps_are_the_others_of_days_that_a_window_overlaps_and_the_finest_is_taken():
    known = KnownSystem()
    for n, step in ((0, 5), (1, 60), (2, 60), (4, 300)):
        known = known.with_block(block(f"g/{step}", step), day_of(n)).with_block(block("h/a", 7), day_of(n))
    assert known.step("g") == 5
    assert known.former("g", 5, Window(0, 5 * DAY)) == [60, 300]
    assert known.former("g", 60, Window(DAY - 1, DAY)) == [5]
    assert known.former("g", 60, Window(DAY, 4 * DAY)) == []
    assert known.former("g", 5, Window(3 * DAY, 4 * DAY)) == []
    assert known.former("g", 5, Window(3 * DAY - 1, 4 * DAY + 1)) == [60, 300]
    assert known.former("none", 5, Window(0, DAY)) == []


def test_the_steps_of_the_newest_days_are_remembered():
    known = KnownSystem()
    for n in range(MAX_STEPS + 2):
        known = known.with_block(block(step=n + 1), day_of(n))
    assert [one.step for one in known.sent["g"]] == [*range(3, MAX_STEPS + 3)] == [*range(3, 11)]
    again = known.with_block(block(step=3), day_of(99))
    assert [one.step for one in again.sent["g"]] == [*range(4, MAX_STEPS + 3), 3]


def test_what_is_known_outlives_the_process_and_a_damaged_file_is_none(tmp_path, monkeypatch):
    known = Known(tmp_path)
    known.note([block(), block("h/a")], day_of(1))
    known.note([block(columns=("c1",))], day_of(2))
    assert Known(tmp_path).systems == known.systems
    assert known.systems["s"].columns == {"g": ("c0", "c1"), "h": ("c0",)}
    written = (tmp_path / "datasets.json").stat().st_ino
    known.note([block()], day_of(2))
    assert (tmp_path / "datasets.json").stat().st_ino == written

    def fail(*_):
        raise OSError(errno.ENOSPC, "no space left")

    before = dict(known.systems)
    monkeypatch.setattr(file_rows, "replace_file", fail)
    with pytest.raises(Transient, match=r"datasets\.json can't be written: no space left"):
        known.note([block("i/a")], day_of(2))
    assert known.systems == before
    (tmp_path / "datasets.json").write_text("[]")
    assert Known(tmp_path).systems == {}


@pytest.fixture
def archive(tmp_path):
    made = WrittenArchive(tmp_path, FakeClock(MIDNIGHT + 3 * DAY))
    for n in range(3):
        made.store(MIDNIGHT + n * DAY + 3600, 10, 3, np.random.default_rng(n))
    yield made
    made.close()


@pytest.fixture
def rows(archive, tmp_path):
    (tmp_path / "x").mkdir()
    made = FileRows(configuration.load(tmp_path / "tokiod.toml").templates, archive.zone, Known(tmp_path / "x"), 600)
    yield made
    made.close()


def test_the_days_of_a_system_are_those_with_a_file_up_to_a_date(archive, rows):
    dates = [dt.date(2018, 1, 29) + dt.timedelta(days=n) for n in range(3)]
    assert [day.date for day in rows.days(SYSTEM, dates[-1])] == dates
    assert [day.date for day in rows.days(SYSTEM, dates[1])] == dates[:2]
    assert rows.days("other", dates[-1]) == []
    archive.path(MIDNIGHT + DAY).unlink()
    assert [day.date for day in rows.days(SYSTEM, dates[-1])] == [dates[0], dates[2]]
    assert rows.path(SYSTEM, archive.zone.day(MIDNIGHT + DAY)) is None
    assert rows.path(SYSTEM, archive.zone.day(MIDNIGHT)) == archive.path(MIDNIGHT)
    assert rows.part(archive.path(MIDNIGHT + DAY)) is None
    for date in ("1999-12-31", "2000-01-01"):
        (archive.tts / date).mkdir()
        (archive.tts / date / f"{SYSTEM}.hdf5").touch()
    assert [str(day.date) for day in rows.days(SYSTEM, dates[0])] == ["2000-01-01", str(dates[0])]


def test_a_span_is_cut_at_days_and_into_whole_windows_that_fit(archive, rows):
    day = archive.zone.day(MIDNIGHT)
    span = Window(day.start + 650, day.end + 100)
    assert [(piece.system, piece.day.date, piece.window) for piece in rows.pieces(SYSTEM, span)] == [
        (SYSTEM, day.date, Window(day.start + 600, day.end)),
        (SYSTEM, archive.zone.day(day.end).date, Window(day.end, day.end + 600)),
    ]
    # Two datasets of three columns each minute: 0.8 bytes a second.
    for seconds, divisor in ((1800, 1), (2399, 1), (3600, 2)):
        rows.piece_bytes, rows.divisor = int(seconds * 0.8), divisor
        expected = [(day.start + first, day.start + min(first + 1800, 7200)) for first in range(0, 7200, 1800)]
        assert [(one.window.start, one.window.end) for one in rows.pieces(SYSTEM, Window(day.start, day.start + 7000))] == expected
    rows.piece_bytes = 1
    assert {one.window.seconds for one in rows.pieces(SYSTEM, Window(day.start, day.start + 7200))} == {600}


@pytest.mark.parametrize("step", [1, 2, 60])
def test_the_size_of_a_piece_follows_the_step_of_each_dataset_in_the_file_and_of_those_that_it_lacks(archive, rows, step):
    day = archive.zone.day(MIDNIGHT - DAY)
    times = day.start + step * np.arange(10, dtype=np.int64)
    for n, names in enumerate((("cpuload",), ("cpuload", "cpuuser"))):
        batches = [Batch(f"dataservers/{name}", "gauge", step, ("bb0",), times, np.zeros(10, np.uint32), np.ones(10)) for name in names]
        archive.apply(Window(day.start, day.start + 10 * step), batches)
        rows.piece_bytes = 8 * (n + 1) * 1800 // step
        assert [piece.window.seconds for piece in rows.pieces(SYSTEM, Window(day.start, day.start + 3600))] == [1800, 1800]
    (piece,) = rows.pieces(SYSTEM, Window(day.start, day.start + 600))
    rows.blocks(piece, 1, 1)
    before = archive.zone.day(day.start - 1)
    some = [Batch("dataservers/cpuload", "gauge", step, ("bb0",), times - DAY, np.zeros(10, np.uint32), np.ones(10))]
    archive.apply(Window(before.start, before.start + 10 * step), some)
    assert [piece.window.seconds for piece in rows.pieces(SYSTEM, Window(before.start, before.start + 3600))] == [1800, 1800]
    archive.path(day.start).unlink()
    rows.close()
    assert [piece.window.seconds for piece in rows.pieces(SYSTEM, Window(day.start, day.start + 3600))] == [1800, 1800]


def test_a_day_of_which_nothing_is_known_is_one_piece_without_a_block(archive, rows):
    day = archive.zone.day(MIDNIGHT)
    (piece,) = rows.pieces("other", Window(day.start, day.end))
    assert (piece.window, rows.blocks(piece, 1, 1)) == (Window(day.start, day.end), [[]])
    (piece,) = rows.pieces(SYSTEM, Window(day.end - 600, day.end))
    assert {block.rows for block in rows.blocks(piece, 1, 1)[-1]} == {10}


def test_a_piece_has_8_mib_of_cells_and_8_files_are_open_at_most(archive, rows):
    assert rows.piece_bytes == 8 << 20
    for n in range(-6, 3):
        archive.store(MIDNIGHT + n * DAY + 3600, 1, 1, np.random.default_rng(1))
        assert rows.part(archive.path(MIDNIGHT + n * DAY)) is not None
    names = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
    assert len({name for name in names if name.endswith(f"{SYSTEM}.hdf5")}) == 8


def test_a_piece_has_a_block_for_each_dataset_and_missing_rows_once_its_file_is_gone(archive, rows):
    day = archive.zone.day(MIDNIGHT)
    (piece,) = rows.pieces(SYSTEM, Window(day.start + 3600, day.start + 4200))
    (present,) = rows.blocks(piece, 7, 2)
    assert {one.dataset for one in present} >= {GAUGE, COUNTER}
    assert {(one.start, one.step, one.rows, one.revision, one.epoch) for one in present} == {(day.start + 3600, 60, 10, 7, 2)}
    assert (rows.sent(SYSTEM), rows.sent("other")) == (Window(day.start, day.end), None)
    archive.path(MIDNIGHT).unlink()
    (gone,) = rows.blocks(piece, 8, 2)
    before = {(one.dataset, one.start, one.step, one.columns, one.units) for one in present}
    assert {(one.dataset, one.start, one.step, one.columns, one.units) for one in gone} == before
    assert all(np.isnan(one.values).all() and one.values.shape == (10, 3) and one.revision == 8 for one in gone)


def test_what_this_user_may_not_read_is_fatal_and_says_what_to_do(archive, rows, monkeypatch):
    monkeypatch.setattr(file_rows.os, "access", lambda *_: False)
    with pytest.raises(Fatal, match=r"no permission to read the archive: .*; add the user of this process to the group tokiod-readers"):
        rows.days(SYSTEM, dt.date(2018, 1, 29))

    def denied(path):
        raise PermissionError(errno.EACCES, "denied", str(path))

    def broken(path):
        raise OSError(errno.EIO, "input/output error", str(path))

    day = archive.zone.day(MIDNIGHT)
    for fail, error in ((denied, Fatal), (broken, Transient)):
        monkeypatch.setattr(file_rows, "exists", fail)
        with pytest.raises(error, match=r"cscratch\.hdf5"):
            rows.path(SYSTEM, day)
        monkeypatch.setattr(rows._parts, "part", fail)
        with pytest.raises(error, match=r"cscratch\.hdf5"):
            rows.part(archive.path(MIDNIGHT))
