"""Verify on archives of a real LMT database and of a source that a test scripts: it finds what was planted, there, and nothing else."""

import asyncio
import random
import shutil
from bisect import bisect
from contextlib import closing
from dataclasses import replace

import faulty
import h5py
import lmt_database
import numpy as np
import pytest

from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.batch import Batch
from tokiod.collector import Site, SourceConfig, collect_window
from tokiod.config import plugins
from tokiod.config.sections import ArchiveConfig
from tokiod.errors import Fatal, NotYet, TokiodError, Transient
from tokiod.ledger.jobs import JobRequest
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.reports.verify.scratch_archive import MAX_VERIFY_ATTEMPTS, VerifiedSource
from tokiod.reports.verify.tts_diff import SHOWN_CELLS
from tokiod.reports.verify.verify import Verification, Verified
from tokiod.testing.clock import FakeClock
from tokiod.tts.live.files import UNSYNCED
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.seal import seal
from tokiod.units import Duration
from tokiod.window import Calendar, Window
from tokiod.window_data import WindowData

DAY = 86400
MIDNIGHT = 1_517_184_000
"""2018-01-29T00:00:00Z."""
NOON = MIDNIGHT + DAY // 2
COUNTER, GAUGE = "datatargets/readbytes", "dataservers/cpuload"
CALENDAR = Calendar("UTC")


class Archive:
    """What a daemon would have made of a source; make: another collector of it."""

    def __init__(self, directory, config, make, calendar=CALENDAR):
        self.directory, self.config, self.make, self.calendar = directory, config, make, calendar
        self.archive = ArchiveConfig(path=str(directory / "tts/%Y-%m-%d/{system}.hdf5"))
        self.clock = FakeClock(NOON)
        self.ledger = Ledger.open(self.archive.ledger)

    def file(self, time):
        return self.archive.file(self.calendar.day(time), self.config.system)

    def store(self, *spans, sealed=()):
        asyncio.run(self._store(spans))
        for time in sealed:
            with closing(LiveFile.open(self.file(time), UNSYNCED)) as file:
                seal(file, self.file(time), updated=NOON)

    async def _store(self, spans):
        collector, layout = self.make(), daily(self.calendar, self.archive.file)
        with closing(TtsSink(DayFiles(layout, self.clock, UNSYNCED, compare=False))) as sink:
            entries = []
            for window in [window for span in spans for window in self.calendar.split(span, self.config.window)]:
                collected = await collect_window(collector, self.config, window)
                sink.apply(collected)
                entries.append(StoredEntry(replace(collected.meta, dropped={}), 1))
            sink.commit()
            self.ledger.store(entries, NOON)
        await collector.close()

    def verify(self, span, datasets=None, progress=lambda _time: None):
        """Return what differs, and how much was compared."""
        collector, verified = self.make(), Verified()
        verification = Verification(
            self.archive,
            VerifiedSource(self.config, collector, self.calendar, self.clock),
            self.ledger,
            datasets or self.config.datasets(),
            self.directory,
            progress,
        )

        async def found():
            try:
                return [one async for one in verification.run(span, verified)]
            finally:
                await collector.close()

        return asyncio.run(found()), verified


def total(found):
    return sum(sum(counts.values()) for one in found for counts in one.counts.values())


# ---- a real database


STEPS = 1440
SPAN = Window(lmt_database.START, lmt_database.START + STEPS * 5 - 60)
"""The day's first two hours but for the last minute."""


@pytest.fixture(scope="module")
def lmt(tmp_path_factory):
    """The archive's directory with two hours of a database in it, live."""
    directory = tmp_path_factory.mktemp("lmt")
    database = lmt_database.save(directory / "lmt.sqlite3", _lively(lmt_database.tables(STEPS + 1)))
    archive = _archive(directory, database)
    archive.store(Window(SPAN.start, SPAN.end + 60))
    archive.ledger.close()
    return directory


def _lively(tables):
    """Let every counter grow by something else each time, so that a shift is one."""
    chance = random.Random(5)
    for table, first in (("OST_DATA", 2), ("MDS_OPS_DATA", 3)):
        sums = {}
        for i, row in enumerate(tables[table]):
            key = (row[0], row[2]) if table == "MDS_OPS_DATA" else row[0]
            sums[key] = grown = [value + chance.randrange(1, 10**6) for value in sums.get(key, [10**12, 10**12])]
            width = 1 if table == "MDS_OPS_DATA" else 2
            tables[table][i] = (*row[:first], *grown[:width], *row[first + width :])
    return tables


def _archive(directory, database):
    plugin = plugins.load("lmt")
    config = plugin.Config(name="one", kind="lmt", system="fs", url=f"sqlite://{database}")
    calendar = Calendar(lmt_database.ZONE)
    site = Site(calendar, FakeClock(SPAN.end + 3600))
    return Archive(directory, config, lambda: plugin.live(config, site), calendar)


@pytest.fixture
def copied(lmt, tmp_path):
    """An archive of a test's own."""
    shutil.copytree(lmt / "tts", tmp_path / "tts")
    archive = _archive(tmp_path, lmt / "lmt.sqlite3")
    yield archive
    archive.ledger.close()


@pytest.fixture(params=["live", "sealed"])
def archive(request, copied):
    if request.param == "sealed":
        copied.store(sealed=[SPAN.start])
    return copied


def test_an_unchanged_archive_does_not_differ(archive):
    found, verified = archive.verify(SPAN)
    assert found == []
    assert (verified.windows, verified.not_stored) == (SPAN.seconds // 60, [])
    assert verified.cells > 1400 * 40


@pytest.mark.parametrize("seed", [1, 2])
def test_each_of_100_holes_shifts_and_swapped_columns_is_found_at_its_place(archive, seed):
    chance = random.Random(seed)
    windows = chance.sample(list(archive.calendar.split(SPAN, 60)), 100)
    planted = faulty.plant(archive.file(SPAN.start), windows, chance)
    assert len(planted) == 100
    found, _ = archive.verify(SPAN)
    assert [one.window.start for one in found] == sorted(planted)
    for one in found:
        cells = planted[one.window.start]
        assert total([one]) == len(cells)
        assert {(cell.dataset, cell.column, cell.time) for cell in one.cells} <= cells
        assert len(one.cells) == min(SHOWN_CELLS, len(cells))


def test_columns_whose_names_were_swapped_differ_everywhere(archive):
    with h5py.File(archive.file(SPAN.start), "r+", locking=False) as file:
        names = file[COUNTER].attrs["columns"]
        file[COUNTER].attrs.modify("columns", names[[1, 0, 2]])
    found, _ = archive.verify(SPAN)
    assert len(found) == SPAN.seconds // 60
    assert {dataset for one in found for dataset in one.counts} == {COUNTER}
    assert {cell.column for one in found for cell in one.cells} == {"lc1-OST0000", "lc1-OST0001"}


def test_a_part_of_the_day_and_the_named_datasets_alone_are_compared(archive):
    faulty.plant(archive.file(SPAN.start), [Window(SPAN.start, SPAN.start + 60)], random.Random(1))
    with h5py.File(archive.file(SPAN.start), "r+", locking=False) as file:
        file[COUNTER][1000, 0] = 7.0
    later = Window(SPAN.start + 3600, SPAN.end)
    found, verified = archive.verify(later)
    (cell,) = [cell for one in found for cell in one.cells]
    assert (cell.kind, cell.dataset, cell.column, cell.time, cell.archive) == (
        "different", COUNTER, "lc1-OST0000", SPAN.start + 5000, 7.0,
    )  # fmt: skip
    assert verified.windows == later.seconds // 60
    assert archive.verify(later, frozenset({GAUGE}))[0] == []


def test_a_missing_file_lacks_every_cell(archive):
    archive.file(SPAN.start).unlink()
    found, verified = archive.verify(SPAN)
    assert {kind for one in found for counts in one.counts.values() for kind, n in counts.items() if n} == {"missing"}
    assert total(found) == verified.cells > 1400 * 40


def test_a_malformed_file_is_named(archive):
    archive.file(SPAN.start).write_bytes(b"nothing" * 1000)
    with pytest.raises(TokiodError, match=r"fs.hdf5.*quarantines"):
        archive.verify(SPAN)


def test_a_file_that_the_system_can_not_open_is_named(archive):
    archive.file(SPAN.start).unlink()
    archive.file(SPAN.start).mkdir()
    with pytest.raises(TokiodError, match=r"fs.hdf5 can't be read at present: .*Is a directory"):
        archive.verify(SPAN)


def test_neither_archive_nor_ledger_is_written(archive):
    def state():
        paths = [path for path in archive.archive.root.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm"))]
        return {path: (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes()) for path in paths}

    before = state()
    archive.verify(SPAN)
    assert state() == before


# ---- a source that a test scripts


class Config(SourceConfig, frozen=True):
    @property
    def step(self):
        return 60

    def datasets(self):
        return frozenset({COUNTER, GAUGE})


class Scripted:
    """Counters of `columns` by minute since midnight, and a gauge that is the minute; a minute without a value is missing."""

    step, replayable, needs_sample_at_end = 60, True, True

    def __init__(self):
        self.columns = {"OST0000": lambda minute: (minute + 2000) ** 2}
        self.asked, self.fails, self.records = [], [], {}

    async def collect(self, window):
        self.asked.append(window)
        if self.fails:
            raise self.fails.pop()
        minutes = range((window.start - MIDNIGHT) // 60, (window.end - MIDNIGHT) // 60)
        names = tuple(self.columns)
        cells = [(MIDNIGHT + 60 * m, c, v) for m in minutes for c, name in enumerate(names) if (v := self.columns[name](m)) is not None]
        time, column, value = (np.array([cell[i] for cell in cells], kind) for i, kind in enumerate((np.int64, np.uint32, np.int64)))
        counter = Batch(COUNTER, "counter", 60, names, time, column, value)
        stamps = np.array([MIDNIGHT + 60 * m for m in minutes], np.int64)
        gauge = Batch(GAUGE, "gauge", 60, ("oss0",), stamps, np.zeros(len(stamps), np.uint32), stamps.astype(float))
        return WindowData([counter, gauge], await self.count(window))

    async def count(self, window):
        return sum(self.records.get(start, 1) for start in range(window.start, window.end, 60))

    async def close(self):
        pass


@pytest.fixture
def scripted(tmp_path):
    collector = Scripted()
    archive = Archive(tmp_path, Config(name="one", kind="lmt", system="fs", window=Duration(600)), lambda: collector)
    archive.collector = collector
    yield archive
    archive.ledger.close()


def minutes(first, last):
    return Window(MIDNIGHT + 60 * first, MIDNIGHT + 60 * last)


@pytest.mark.parametrize("span", [minutes(-700, 700), minutes(0, 1440), minutes(-5, 3), minutes(-700, -1), minutes(1400, 1441)])
def test_differences_cross_midnight_as_in_the_archive(scripted, span):
    scripted.store(minutes(-1000, 1500), sealed=[MIDNIGHT - 1])
    assert scripted.verify(span)[0] == []


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(lambda minute: None if 100 < minute < 400 else 2000 + minute, id="away for hours, the base is before it"),
        pytest.param(lambda minute: 5 if minute == 399 else 2000 + minute, id="a dip right before the span"),
        pytest.param(lambda minute: 0 if 100 < minute < 450 else 2000 + minute, id="failed over, the base is before it"),
        pytest.param(lambda minute: None if -200 < minute < 450 else 5000 + minute, id="away since the day before"),
        pytest.param(lambda minute: None if minute < 450 else minute, id="a new column"),
        pytest.param(lambda minute: minute % 400, id="resets"),
    ],
)
def test_the_samples_that_the_first_differences_of_a_span_need_are_collected(scripted, column):
    scripted.collector.columns["OST0001"] = column
    scripted.store(minutes(-1000, 1000))
    for span in (minutes(400, 500), minutes(399, 460), minutes(449, 451), minutes(440, 450), minutes(390, 400)):
        assert scripted.verify(span)[0] == [], span


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(lambda minute: (2000 + minute, 0, 0, None, 5000)[bisect([300, 390, 420, 1500], minute)], id="zeros, the base before"),
        pytest.param(lambda minute: (2000 + minute, 5, None, 5000)[bisect([388, 389, 1500], minute)], id="a dip, the base before"),
        pytest.param(lambda minute: (2000 + minute, None, 5000)[bisect([300, 1500], minute)], id="away"),
        pytest.param(lambda minute: (2000 + minute, None, 0, 5000)[bisect([300, 1500, 1501], minute)], id="away, then zero"),
    ],
)
@pytest.mark.parametrize("end", [1500, 1501, 1502, 1600, 3000])
def test_the_samples_that_differences_of_the_second_day_need_are_collected(scripted, column, end):
    scripted.collector.columns["OST0001"] = column
    scripted.store(minutes(-1000, 3100))
    assert scripted.verify(minutes(400, end))[0] == []


def test_for_a_counter_that_stays_zero_on_two_days_a_few_steps_before_the_span_are_collected(scripted):
    scripted.collector.columns["OST0001"] = lambda _: 0
    scripted.store(minutes(-1000, 3100))
    scripted.collector.asked.clear()
    scripted.verify(minutes(400, 3000))
    assert min(scripted.collector.asked).start == minutes(388, 389).start


@pytest.mark.parametrize("back", [1440, 450], ids=["at midnight", "in the day"])
def test_a_column_that_is_back_in_the_step_after_the_span_is_collected_as_far_back_as_it_was_away(scripted, back):
    scripted.collector.columns["OST0001"] = lambda minute: None if back - 100 < minute < back else 2000 + minute
    scripted.store(minutes(-1000, 1500))
    assert scripted.verify(minutes(back - 10, back))[0] == []


def test_for_counters_that_only_grow_a_few_steps_before_the_span_are_collected(scripted):
    scripted.store(minutes(-1000, 1000))
    scripted.collector.asked.clear()
    scripted.verify(minutes(400, 403))
    asked = scripted.collector.asked
    assert (min(asked).start, max(asked).end) == (minutes(388, 404).start, minutes(388, 404).end)


def test_windows_that_are_not_stored_are_reported_and_not_collected(scripted):
    scripted.store(minutes(0, 100), minutes(110, 200))
    scripted.collector.asked.clear()
    found, verified = scripted.verify(minutes(50, 150))
    assert (found, verified.not_stored, verified.windows) == ([], [minutes(100, 110)], 9)
    assert not any(window.start < minutes(100, 110).end and window.end > minutes(100, 110).start for window in scripted.collector.asked)


def close_span(scripted, end):
    """Store the sample after a span, as a backfill does."""
    collected = asyncio.run(collect_window(scripted.collector, scripted.config, Window(end, end + 60)))
    counters = [batch for batch in collected.batches if batch.form == "counter"]
    with closing(TtsSink(DayFiles(daily(CALENDAR, scripted.archive.file), scripted.clock, UNSYNCED, compare=False))) as sink:
        sink.apply(replace(collected, meta=replace(collected.meta, extent="seam"), batches=counters))
        sink.commit()


@pytest.mark.parametrize("is_old", [True, False], ids=["before the retention", "the end of a job"])
@pytest.mark.parametrize("end", [100, 1440], ids=["in the day", "at midnight"])
def test_the_last_difference_of_a_span_that_an_earlier_version_backfilled_is_missing_until_it_is_stored(scripted, end, is_old):
    scripted.clock = FakeClock(NOON + DAY)
    if is_old:
        scripted.config = Config(name="one", kind="lmt", system="fs", window=Duration(600), retention=Duration(6 * 3600))
    else:
        job = scripted.ledger.jobs.add(JobRequest("one", minutes(0, end)), NOON)
        scripted.ledger.jobs.set_state(job, "done", NOON)
    scripted.store(minutes(0, end))
    (found,) = scripted.verify(minutes(0, end))[0]
    (cell,) = found.cells
    assert (cell.kind, cell.dataset, cell.time) == ("missing", COUNTER, minutes(end - 1, end).start)
    close_span(scripted, minutes(0, end).end)
    found, verified = scripted.verify(minutes(0, end))
    assert (found, verified.cells) == ([], 2 * end)


@pytest.mark.parametrize(("retention", "count"), [(86400, 0), (6 * 3600, 1)])
def test_a_hole_within_the_span_is_still_to_be_filled_until_it_is_older_than_the_retention(scripted, retention, count):
    scripted.config = Config(name="one", kind="lmt", system="fs", window=Duration(600), retention=Duration(retention))
    scripted.store(minutes(0, 100), minutes(120, 500))
    found, verified = scripted.verify(minutes(0, 500))
    assert [cell.time for one in found for cell in one.cells] == [minutes(99, 100).start] * count
    assert verified.not_stored == [minutes(100, 120)]


def test_a_sample_that_the_source_does_not_have_yet_is_no_difference(scripted):
    scripted.config = Config(name="one", kind="lmt", system="fs", window=Duration(600), retention=Duration(6 * 3600))
    scripted.store(minutes(0, 100))
    scripted.clock.sleep = lambda _seconds: asyncio.sleep(0)
    collect = scripted.collector.collect

    async def lagging(window):
        if window.end > minutes(0, 100).end:
            raise NotYet("not there")
        return await collect(window)

    scripted.collector.collect = lagging
    assert scripted.verify(minutes(0, 100))[0] == []


def test_cells_that_the_source_does_not_hold_are_extra(scripted):
    scripted.config = Config(name="one", kind="lmt", system="fs")
    scripted.collector.columns["OST0001"] = lambda minute: 10 * minute + 1
    scripted.store(minutes(0, 100))
    scripted.collector.columns["OST0001"] = lambda minute: None if 20 <= minute < 30 else 10 * minute + 1
    found, _ = scripted.verify(minutes(0, 100))
    assert {cell.kind for one in found for cell in one.cells} == {"extra", "different"}
    assert [(one.window.start - MIDNIGHT) // 60 for one in found] == list(range(19, 30))


def test_a_window_with_more_records_is_reported_also_where_no_cell_differs(scripted):
    scripted.config = Config(name="one", kind="lmt", system="fs")
    scripted.store(minutes(0, 100))
    scripted.collector.records[minutes(37, 38).start] = 4
    found, _ = scripted.verify(minutes(0, 100))
    assert [(one.window, one.records, one.cells) for one in found] == [(minutes(37, 38), (1, 4), [])]


@pytest.mark.parametrize("lengths", [(60, 300, 60), (300, 60, 300), (60, 60, 60), (300, 300, 300), (60, 600, 1200)])
@pytest.mark.parametrize("minute", [3, 25, 59])
def test_windows_stored_in_other_lengths_are_compared_as_they_were_stored(scripted, lengths, minute):
    for number, length in enumerate(lengths):
        scripted.config = Config(name="one", kind="lmt", system="fs", window=Duration(length))
        scripted.store(minutes(20 * number, 20 * number + 20))
    scripted.config = Config(name="one", kind="lmt", system="fs")
    span = minutes(0, 60)
    assert scripted.verify(span)[0] == []
    scripted.collector.records[minutes(minute, minute + 1).start] = 4
    (found,) = scripted.verify(span)[0]
    assert found.window.start <= minutes(minute, minute + 1).start < found.window.end
    assert found.records == (found.window.seconds // 60, found.window.seconds // 60 + 3)
    assert found.window.seconds == lengths[minute // 20]


def test_a_busy_source_is_queried_again_and_one_that_stays_busy_is_reported(scripted):
    scripted.store(minutes(0, 10))
    scripted.clock.sleep = lambda _seconds: asyncio.sleep(0)
    scripted.collector.fails = [Transient("busy")] * (MAX_VERIFY_ATTEMPTS - 1)
    assert scripted.verify(minutes(0, 10))[0] == []
    scripted.collector.fails = [Transient("busy")] * MAX_VERIFY_ATTEMPTS
    with pytest.raises(Transient, match=r"\[.*busy"):
        scripted.verify(minutes(0, 10))
    scripted.collector.fails = [Fatal("no permission")]
    with pytest.raises(Fatal, match="no permission"):
        scripted.verify(minutes(0, 10))


def test_many_days_need_the_temporary_files_of_two(scripted):
    most = []

    def progress(_time):
        most.append(len(list(scripted.directory.glob("tokiod-verify-*/*.hdf5"))))

    scripted.config = Config(name="one", kind="lmt", system="fs", window=Duration(3600))
    scripted.store(minutes(0, 6 * 1440))
    found, verified = scripted.verify(minutes(60, 6 * 1440 - 60), progress=progress)
    assert (found, verified.windows) == ([], 6 * 24 - 2)
    assert max(most) <= 3
    assert list(scripted.directory.glob("tokiod-verify-*")) == []
