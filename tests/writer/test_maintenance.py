"""Which days are sealed and when, tomorrow's files, and what is said of the disk: with real files and a real ledger."""

import asyncio
import datetime as dt
import errno
import os

import archive_model as model
import h5py
import msgspec
import numpy as np
import pytest
from archive_model import NAMES
from structlog.testing import capture_logs

from collectors import lmt, lustre
from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.archive.seal_marker import mark, marked_files
from tokiod.config.schema import Config
from tokiod.config.sections import ArchiveConfig
from tokiod.config.watched_folder import watched
from tokiod.errors import Refusal
from tokiod.ledger.changes import Change
from tokiod.ledger.jobs import JobRequest
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.testing.clock import FakeClock
from tokiod.tts.layout import form_of, open_for_reading
from tokiod.tts.live.files import Files
from tokiod.units import Duration
from tokiod.window import Window
from tokiod.window_data import WindowMeta
from tokiod.writer.maintenance import PREPARE_SECONDS, SCAN_SECONDS, SEAL_RETRY_SECONDS, Maintenance

HOUR, DAY = 3600, 86400
SAMPLES = {name: {row: 100 * row + i + 1 for row in range(4 * model.ROWS)} for i, name in enumerate(NAMES)}
LMT = lmt.Config(name="l", kind="lmt", system="fs", url="sqlite:///x", window=Duration(HOUR))
LUSTRE = lustre.Config(name="m", kind="lustre", system="fs", mounts=("/a",), window=Duration(HOUR))


class Disk(Files):
    """A disk with as much room as the test says."""

    free = 1 << 40

    def free_space(self, path):  # noqa: ARG002 - it has no other
        return self.free


class Site:
    """An archive with one system, whose windows are stored as a test likes."""

    def __init__(self, directory, *sources, **options):
        self.clock, self.disk, self.directory = FakeClock(model.EPOCH), Disk(), directory
        archive = ArchiveConfig(path=f"{directory}/%Y-%m-%d/{{system}}.hdf5", **options)
        self.config = Config(timezone="UTC", archive=archive, source=sources or (LMT,))
        self.ledger = Ledger.open(directory / "ledger.sqlite3")
        for source in self.config.source:
            self.ledger.register(source, model.EPOCH)
        self.boot()

    def boot(self):
        layout = daily(model.CALENDAR, self.config.archive.file)
        self.sink = TtsSink(DayFiles(layout, self.clock))
        self.maintenance = Maintenance(self.config, layout, self.sink, self.ledger, self.clock, self.disk)
        self.sink.days.before_create = self.maintenance.before_create
        self.maintenance.forget_missing_files()
        self.maintenance.adopt_of_predecessor()

    def store(self, first, last, source="l"):
        """Store hours, counted from the epoch, one window after the other."""
        for hour in range(first, last):
            collected = model.window(SAMPLES, hour, hour + 1)
            self.sink.apply(collected)
            assert self.sink.commit() == []
            self.maintenance.note_stored([collected.meta])
            self.ledger.store([StoredEntry(WindowMeta(source, "lmt", "fs", collected.meta.window), 1)], self.clock.time())
        self.sink.run_maintenance()

    def look(self, hours):
        """Let maintenance run at a time, in hours from the epoch; return what it had done."""
        self.clock.jump(model.EPOCH + hours * HOUR - self.clock.time())
        return self.look_now()

    def look_now(self):
        done = []
        for _ in range(4):
            asyncio.run(self.clock.advance(SCAN_SECONDS))
            self.maintenance.run()
            done += [
                (one.change, one.path.parent.name, type(one.error).__name__ if one.error else "") for one in self.sink.run_maintenance()
            ]
        return done

    def path(self, day=0):
        return self.directory / str(dt.date(2018, 1, 29) + dt.timedelta(days=day)) / "fs.hdf5"

    def form(self, day=0):
        with open_for_reading(self.path(day)) as file:
            return form_of(file)


def sealed(day="2018-01-29"):
    return [("sealed", day, "")]


def test_a_day_is_sealed_once_it_is_whole_and_the_next_days_first_window_is_stored(tmp_path):
    site = Site(tmp_path)
    site.store(0, 24)
    assert site.look(24.5) == []
    site.store(24, 25)
    assert site.look(24.6) == sealed()
    assert (site.form(), site.look(24.7)) == ("sealed", [])


def test_the_change_log_has_a_sealed_day(tmp_path):
    site = Site(tmp_path)
    site.ledger.changes.begin_epoch(model.EPOCH)
    site.store(0, 25)
    assert site.look(24.6) == sealed()
    head = site.ledger.changes.state().head
    site.maintenance.note_sealed(site.path())
    site.maintenance.note_sealed(tmp_path / "another.hdf5")
    day = Window(model.EPOCH, model.EPOCH + 24 * HOUR)
    assert site.ledger.changes.after(head, 9) == [Change(head + 1, "fs", "", day, "sealed", site.clock.time())]


def test_what_is_lost_is_not_waited_for(tmp_path):
    site = Site(tmp_path)
    site.store(0, 10)
    site.store(11, 24)
    site.store(25, 26)
    assert site.look(26) == []
    for hour in (10, 24):
        site.ledger.lost("l", Window(model.EPOCH + hour * HOUR, model.EPOCH + (hour + 1) * HOUR), "Past", "gone", 0.0)
    assert site.look(26.1) == sealed()


def test_what_was_never_expected_is_not_waited_for(tmp_path):
    site = Site(tmp_path)
    site.store(20, 25)
    assert site.look(25) == []
    site.ledger.register(LMT, model.EPOCH + 20 * HOUR)
    assert site.look(25.1) == sealed()


def test_every_source_of_the_system_is_waited_for(tmp_path):
    site = Site(tmp_path, LMT, LUSTRE)
    site.store(0, 25)
    assert site.look(25) == []
    site.ledger.lost("m", Window(model.EPOCH, model.EPOCH + 25 * HOUR), "Past", "gone", 0.0)
    assert site.look(25.1) == sealed()


def test_after_the_grace_time_nothing_is_waited_for(tmp_path):
    site = Site(tmp_path, seal_after=Duration(5 * HOUR))
    site.store(0, 10)
    assert site.look(27) == []
    assert site.look(28.9) == []
    assert site.look(29) == sealed()


def test_a_day_that_is_still_being_healed_is_left_alone(tmp_path):
    site = Site(tmp_path, seal_after=Duration(5 * HOUR))
    for hour in range(10):
        site.store(hour, hour + 1)
        assert site.look(30 + hour / 2) == []
    assert site.look(35.4) == []
    assert site.look(35.6) == sealed()


def test_of_a_folder_it_is_never_known_what_is_still_to_come(tmp_path):
    folder = watched(lmt.Saved)(name="f", kind="lmt", system="fs", watch=str(tmp_path / "in"))
    site = Site(tmp_path, LMT, folder, seal_after=Duration(30 * HOUR))
    site.store(0, 25)
    assert (site.look(52), site.look(53.9), site.look(54)) == ([], [], sealed())


def test_days_are_kept_live_as_long_as_is_wished_unless_the_disk_gets_full(tmp_path):
    site = Site(tmp_path, keep_live_days=2)
    site.store(0, 50)
    assert site.look(60) == []
    site.disk.free = 1000
    assert site.look(60.1) == [*sealed(), *sealed("2018-01-30")]
    assert site.form(2) == "live"


def test_days_that_were_kept_live_long_enough_are_sealed(tmp_path):
    site = Site(tmp_path, keep_live_days=2)
    site.store(0, 25)
    assert (site.look(71.9), site.look(72)) == ([], sealed())


def test_a_day_that_a_job_still_fills_is_left_alone(tmp_path):
    site = Site(tmp_path)
    site.store(0, 25)
    jobs = site.ledger.jobs
    job = jobs.add(JobRequest("l", Window(model.EPOCH, model.EPOCH + HOUR), force=True), 0.0)
    assert site.look(25) == []
    jobs.set_state(job, "done", 0.0)
    assert site.look(25.1) == sealed()


def test_one_day_is_sealed_after_the_other_oldest_first(tmp_path):
    site = Site(tmp_path, seal_after=Duration(0))
    site.store(0, 60)
    assert site.look(60) == [*sealed(), *sealed("2018-01-30")]
    assert site.look(73) == sealed("2018-01-31")


@pytest.mark.parametrize("left", [PREPARE_SECONDS + 10 * SCAN_SECONDS, PREPARE_SECONDS - SCAN_SECONDS])
def test_tomorrows_file_is_made_before_midnight(tmp_path, left):
    site = Site(tmp_path)
    site.store(0, 23)
    assert site.look(24 - left / HOUR) == ([] if left > PREPARE_SECONDS else [("made", "2018-01-30", "")])
    assert site.path(1).exists() == (left < PREPARE_SECONDS)


def test_nothing_is_made_of_a_system_that_has_no_file_today(tmp_path):
    site = Site(tmp_path)
    assert site.look(23.9) == []
    assert not site.path(1).exists()


def test_it_is_said_days_before_the_disk_is_full_and_not_all_the_time(tmp_path):
    site = Site(tmp_path)
    site.store(0, 1)
    daily_bytes = site.path().stat().st_size
    site.disk.free = 5 * daily_bytes
    with capture_logs() as logs:
        site.look(2)
        site.look(2.5)
        site.look(3.6)
    assert [(log["event"], log["days_left"]) for log in logs] == [("disk.low", 3)] * 2
    site.disk.free = 20 * daily_bytes
    with capture_logs() as logs:
        site.look(10)
    assert logs == []


def test_a_file_that_nobody_can_read_or_knows_disturbs_nothing(tmp_path):
    site = Site(tmp_path)
    site.store(0, 25)
    (site.path().parent / "fs2.hdf5").write_bytes(site.path(1).read_bytes())
    other = site.path(-1)
    other.parent.mkdir()
    other.write_bytes(b"no HDF5")
    (site.path().parent / "gone.hdf5").symlink_to(tmp_path / "nowhere")
    assert site.look(25) == sealed()


def test_what_a_predecessor_opened_up_is_sealed_and_marks_of_nothing_are_taken_away(tmp_path):
    site = Site(tmp_path)
    site.store(0, 25)
    site.look(25)
    site.store(3, 4)
    site.sink.close()
    gone = site.path().with_name("gone.hdf5")
    mark(gone)
    site.boot()
    assert (site.form(), list(marked_files(tmp_path))) == ("live", [site.path()])
    assert (site.look(25.5), list(marked_files(tmp_path))) == (sealed(), [])


def test_the_change_log_has_a_day_that_a_predecessor_reopened_and_may_have_changed(tmp_path):
    site = Site(tmp_path)
    site.store(0, 25)
    site.look(25)
    site.ledger.changes.begin_epoch(model.EPOCH)
    before = site.ledger.changes.state().head
    site.sink.apply(model.window(SAMPLES, 3, 4))
    assert site.sink.commit() == []
    site.sink.close()  # killed before the ledger's transaction
    site.boot()
    (change,) = site.ledger.changes.after(before, 10)
    assert (change.system, change.window, change.kind) == ("fs", Window(model.EPOCH, model.EPOCH + DAY), "rows")


def test_a_day_that_can_not_be_sealed_says_why_holds_up_no_other_and_is_tried_again(tmp_path):
    site = Site(tmp_path)
    site.store(0, 49)
    temporary = site.path().with_name(f".{site.path().name}.tmp")
    temporary.mkdir()
    failed = [("sealed", "2018-01-29", "SealingFailed")]
    assert site.look(49) == [*failed, *sealed("2018-01-30")]
    assert site.look_now() == []
    asyncio.run(site.clock.advance(SEAL_RETRY_SECONDS))
    assert site.look_now() == failed
    temporary.rmdir()
    asyncio.run(site.clock.advance(SEAL_RETRY_SECONDS))
    assert site.look_now() == sealed()


def test_what_somebody_marked_is_sealed_at_once_whatever_is_missing(tmp_path):
    site = Site(tmp_path)
    site.store(0, 10)
    site.store(24, 25)
    assert site.look(25) == []
    mark(site.path())
    assert (site.look(25.1), list(marked_files(tmp_path))) == (sealed(), [])


def test_a_file_that_somebody_took_away_is_missed_and_its_windows_are_no_longer_stored(tmp_path):
    site = Site(tmp_path)
    site.store(0, 50)
    site.look(50)
    for day in (0, 2):
        site.path(day).unlink()
    asyncio.run(site.clock.advance(SCAN_SECONDS))
    with capture_logs() as logs:
        assert site.maintenance.run()
    assert [(log["event"], log["path"]) for log in logs] == [("file.gone", str(site.path(0))), ("file.gone", str(site.path(2)))]
    assert list(site.ledger.stored("l")) == [(model.EPOCH + DAY, model.EPOCH + 2 * DAY)]
    asyncio.run(site.clock.advance(SCAN_SECONDS))
    assert not site.maintenance.run()
    assert [(one.path, one.salvaged) for one in site.sink.commit()] == [(str(site.path(2)), False)]
    site.store(48, 50)
    assert site.form(2) == "live"


def test_it_is_missed_also_when_it_was_taken_away_while_nobody_looked(tmp_path):
    site = Site(tmp_path)
    site.store(0, 30)
    site.look(30)
    site.sink.close()
    site.path(0).unlink()
    site.boot()
    assert site.maintenance.run()
    assert list(site.ledger.stored("l")) == [(model.EPOCH + DAY, model.EPOCH + 30 * HOUR)]


def test_a_file_older_than_the_sources_reach_back_may_be_moved_away(tmp_path):
    site = Site(tmp_path, msgspec.structs.replace(LMT, retention=Duration(DAY)))
    site.store(0, 50)
    site.look(50)
    site.path(0).unlink()
    assert site.look(60) == []
    assert list(site.ledger.stored("l")) == [(model.EPOCH, model.EPOCH + 50 * HOUR)]


def test_a_file_taken_away_while_the_clock_is_ahead_is_missed_once_the_clock_is_right(tmp_path):
    site = Site(tmp_path, msgspec.structs.replace(LMT, retention=Duration(DAY)))
    site.store(0, 50)
    site.look(50)
    site.look(751)
    site.store(750, 751)
    site.path(1).unlink()
    site.look(751)
    site.look(50)
    later = (model.EPOCH + 750 * HOUR, model.EPOCH + 751 * HOUR)
    assert list(site.ledger.stored("l")) == [(model.EPOCH, model.EPOCH + DAY), (model.EPOCH + 2 * DAY, model.EPOCH + 50 * HOUR), later]


def test_an_old_file_that_is_made_again_holds_only_what_is_stored_from_then_on(tmp_path):
    site = Site(tmp_path, msgspec.structs.replace(LMT, retention=Duration(DAY)))
    site.store(0, 50)
    site.look(50)
    site.path(0).unlink()
    site.look(60)
    site.store(3, 4)
    assert list(site.ledger.stored("l")) == [(model.EPOCH + 3 * HOUR, model.EPOCH + 4 * HOUR), (model.EPOCH + DAY, model.EPOCH + 50 * HOUR)]


def test_an_archive_that_is_not_mounted_has_lost_nothing(tmp_path):
    site = Site(tmp_path)
    site.store(0, 30)
    site.look(30)
    away = tmp_path.with_name(f"{tmp_path.name}-away")
    tmp_path.rename(away)
    asyncio.run(site.clock.advance(SCAN_SECONDS))
    with capture_logs() as logs:
        assert not site.maintenance.run()
    assert [(log["event"], log["error"]) for log in logs] == [("maintenance.failed", f"[Errno 2] the archive is not there: '{tmp_path}'")]
    away.rename(tmp_path)
    assert list(site.ledger.stored("l")) == [(model.EPOCH, model.EPOCH + 30 * HOUR)]
    asyncio.run(site.clock.advance(SCAN_SECONDS))
    assert not site.maintenance.run()


def test_an_archive_that_is_moved_as_a_whole_has_lost_nothing(tmp_path):
    (tmp_path / "one").mkdir()
    site = Site(tmp_path / "one")
    site.store(0, 30)
    site.look(30)
    site.ledger.close()
    (tmp_path / "one").rename(tmp_path / "two")
    moved = Site(tmp_path / "two")
    moved.clock = site.clock
    moved.boot()
    with capture_logs() as logs:
        moved.look(60)
    assert [log for log in logs if log["event"] == "file.gone"] == []
    assert list(moved.ledger.stored("l")) == [(model.EPOCH, model.EPOCH + 30 * HOUR)]
    moved.path(0).unlink()
    with capture_logs() as logs:
        moved.look(60.1)
    assert [log["path"] for log in logs if log["event"] == "file.gone"] == [str(moved.path(0))]


@pytest.mark.parametrize("start", ["noon", float("nan"), float("inf"), 1e300, -(2**62), 2**62, [1, 2]], ids=str)
def test_a_file_with_any_start_is_skipped_with_one_line_and_stops_nothing(tmp_path, start):
    site = Site(tmp_path)
    site.store(0, 25)
    odd = site.path(0).with_name("odd.hdf5")
    with h5py.File(odd, "w") as file:
        file.attrs["start"] = start
    mark(odd)
    with capture_logs() as logs:
        assert site.look(25) == sealed()
    assert [log["path"] for log in logs if log["event"] == "file.skipped"] == [str(odd)]
    assert list(marked_files(tmp_path)) == []


def overwrite_spans(path):
    """Fill the span of a counter with numbers that are no rows, in place."""
    with h5py.File(path, "r") as file:
        span = file[f"_tokiod/span/{model.COUNTER}"]
        offset, shape = span.id.get_offset(), span.shape
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(np.full(shape, 2**40, np.int64).tobytes())


def test_a_day_whose_sealing_raises_anything_is_named_and_holds_up_no_other(tmp_path):
    site = Site(tmp_path)
    site.store(0, 49)
    overwrite_spans(site.path())
    assert site.look(49) == [("sealed", "2018-01-29", "IndexError"), *sealed("2018-01-30")]
    # It is not sealed again and again: what its rows are counted by is damaged, so it is set aside.
    asyncio.run(site.clock.advance(SEAL_RETRY_SECONDS))
    assert site.look_now() == []
    assert [path.name.partition("-")[0] for path in site.path().parent.glob("fs.hdf5*")] == ["fs.hdf5.aside"]


def test_tomorrows_file_that_can_not_be_made_after_an_overwritten_one_stops_nothing(tmp_path):
    """Of its size, so that the scan reads it no more: a truncated one is in no slot at the next scan."""
    site = Site(tmp_path)
    site.store(0, 23)
    site.look(22.5)
    with site.path().open("r+b") as file:
        file.write(bytes(5000))
    assert set(site.look(23.5)) == {("made", "2018-01-30", "NotLive")}


class Denied(Files):
    """A disk with files that this user may read and not write."""

    def __init__(self, *paths):
        self.paths = paths

    def open(self, path, flags=os.O_RDWR):
        if path in self.paths and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return super().open(path, flags)


def marked_with_one_denied(directory):
    site = Site(directory)
    site.store(1, 49)
    site.sink.close()
    site.boot()
    site.sink.days.files = Denied(site.path(0))
    for day in (0, 1):
        mark(site.path(day))
    return site


def test_a_marked_file_that_may_not_be_written_is_named_and_holds_up_no_other(tmp_path):
    site = marked_with_one_denied(tmp_path)
    done = site.look(49)
    assert set(done) == {("sealed", "2018-01-29", "PermissionError"), *sealed("2018-01-30")}


def test_at_a_stop_too_a_file_that_may_not_be_written_holds_up_no_other(tmp_path):
    site = marked_with_one_denied(tmp_path)
    site.maintenance.adopt()
    done = site.sink.seal_reopened()
    assert {(one.path.parent.name, type(one.error).__name__) for one in done} == {
        ("2018-01-29", "PermissionError"),
        ("2018-01-30", "NoneType"),
    }


def test_a_unit_of_maintenance_that_raises_anything_is_named_once_and_the_others_go_on(tmp_path, monkeypatch):
    site = Site(tmp_path)
    site.store(0, 25)

    def fails(_self, _root):
        raise RuntimeError("a fault")

    monkeypatch.setattr(Disk, "free_space", fails)
    with capture_logs() as logs:
        assert site.look(25) == sealed()
    assert [(log["task"], log["error"]) for log in logs if log["event"] == "maintenance.failed"] == [
        ("look at the disk", "RuntimeError: a fault")
    ]


def hours(first, last):
    return (model.EPOCH + first * HOUR, model.EPOCH + last * HOUR)


def test_in_an_archive_of_many_files_a_missing_one_is_reported_at_the_start_before_any_window(tmp_path):
    site = Site(tmp_path)
    site.store(0, 30)
    site.sink.close()
    for number in range(60):
        site.path(0).with_name(f"{number}.hdf5").write_bytes(site.path(0).read_bytes())
    site.path(1).unlink()
    with capture_logs() as logs:
        site.boot()
    assert [(log["event"], log["path"]) for log in logs] == [("file.gone", str(site.path(1)))]
    site.store(30, 31)
    assert list(site.ledger.stored("l")) == [hours(0, 24), hours(30, 31)]
    assert site.maintenance.run()


def test_a_clock_that_is_ahead_makes_no_missing_file_too_old_to_be_collected_again(tmp_path):
    site = Site(tmp_path, msgspec.structs.replace(LMT, retention=Duration(DAY)))
    site.store(0, 30)
    site.look(30)
    site.sink.close()
    site.path(0).unlink()
    site.clock.jump(30 * DAY)
    site.boot()
    site.clock.jump(-30 * DAY)
    assert site.maintenance.run()
    assert list(site.ledger.stored("l")) == [hours(24, 30)]


def test_a_missing_file_is_forgotten_before_another_is_created_under_its_name(tmp_path):
    site = Site(tmp_path)
    site.store(0, 30)
    site.sink.close()
    site.path(1).unlink()
    seen = []
    create = site.sink.days.before_create

    def before_create(slot):
        create(slot)
        seen.append((slot.path.exists(), list(site.ledger.stored("l"))))

    site.sink.days.before_create = before_create
    site.store(30, 31)
    assert seen == [(False, [hours(0, 24)])]
    assert list(site.ledger.stored("l")) == [hours(0, 24), hours(30, 31)]
    assert [site.maintenance.run(), site.maintenance.run()] == [True, False]


def test_where_the_ledger_can_not_forget_a_missing_file_no_other_is_created(tmp_path):
    site = Site(tmp_path)
    site.store(0, 30)
    site.sink.close()
    site.path(1).unlink()
    site.ledger._database.sql.execute("PRAGMA query_only = ON")
    with pytest.raises(Refusal, match="its file is missing, which the ledger can't record"):
        site.sink.apply(model.window(SAMPLES, 30, 31))
    assert not site.path(1).exists()
    site.ledger._database.sql.execute("PRAGMA query_only = OFF")
    site.store(30, 31)
    assert list(site.ledger.stored("l")) == [hours(0, 24), hours(30, 31)]


def test_nothing_is_created_where_the_archive_is_not_mounted(tmp_path):
    site = Site(tmp_path)
    away = tmp_path.with_name(f"{tmp_path.name}-away")
    tmp_path.rename(away)
    with pytest.raises(Refusal, match="the archive is not there"):
        site.sink.apply(model.window(SAMPLES, 0, 1))
    assert not tmp_path.exists()
    away.rename(tmp_path)
    site.store(0, 1)


def test_a_disk_that_can_not_be_looked_up_has_lost_nothing(tmp_path, monkeypatch):
    site = Site(tmp_path)
    site.store(0, 30)
    site.sink.close()

    def stale(path, **_):
        raise OSError(errno.ESTALE, "Stale file handle", str(path))

    with monkeypatch.context() as broken:
        broken.setattr("pathlib.Path.stat", stale)
        site.maintenance.forget_missing_files()
        with pytest.raises(Refusal, match="Stale file handle"):
            site.sink.apply(model.window(SAMPLES, 30, 31))
    assert list(site.ledger.stored("l")) == [hours(0, 30)]
