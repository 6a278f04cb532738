"""Which files are quarantined: those whose content is damaged, and never one that the system could not read at the moment."""

import errno
import os
import random
import resource
import shutil
from contextlib import closing, suppress

import archive_model as model
import h5py
import pytest
from archive_model import GAUGE, NAMES, filled, held, sink_in
from faulty_archive import ROWS, FaultyArchive
from faulty_files import FaultyFiles

from tokiod.errors import Refusal
from tokiod.sink import FileChange, QuarantinedFile
from tokiod.tts.layout import NotLive
from tokiod.tts.live.files import NameNotDurable, temporary_path

SAMPLES = {name: {row: row + 1 for row in range(2 * model.ROWS) if row % model.ROWS} for name in NAMES}


@pytest.fixture
def archive(tmp_path):
    return FaultyArchive(tmp_path)


def damage(path, dataset):
    """Overwrite the middle of a dataset's first chunk."""
    with h5py.File(path) as file:
        chunk = file[dataset].id.get_chunk_info(0)
    with path.open("r+b") as file:
        file.seek(chunk.byte_offset + chunk.size // 2)
        file.write(b"\xff" * 16)


def test_a_sealed_day_with_a_damaged_chunk_is_quarantined_and_collected_again(archive):
    archive.store(0, 12)
    archive.seal()
    damage(archive.path, GAUGE)
    assert not archive.attempt(12, 16)
    (one,) = archive.failed
    assert (type(one), one.path, one.salvaged) == (QuarantinedFile, str(archive.path), False)
    assert one.reason == f"{archive.path}: {GAUGE} can't be read: Can't synchronously read data (filter returned failure during read)"
    assert archive.aside == ["fs.hdf5.aside-20180129T000100Z"]
    archive.store(0, ROWS)
    archive.seal()
    archive.check_all()
    assert len(archive.failed) == 1


def test_a_sealed_day_that_was_overwritten_is_quarantined_whatever_hdf5_makes_of_it(archive):
    archive.store(0, ROWS)
    archive.seal()
    content = archive.path.read_bytes()
    for begin in range(0, len(content), 997):
        archive.path.write_bytes(content[:begin] + b"\xff" * 64 + content[begin + 64 :])
        archive.restart()
        archive.attempt(12, 16)
        archive.sink.close()
        for aside in archive.directory.rglob("*.aside-*"):
            aside.unlink()


def test_a_file_that_can_not_be_opened_for_want_of_descriptors_is_refused_for_now_and_not_quarantined(archive):
    archive.store(0, 12)
    for form in ("live", "sealed"):
        archive.restart()
        taken, (soft, hard) = [], resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 16, hard))  # noqa: PTH208 - numbers
        try:
            with suppress(OSError):
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            os.close(taken.pop())
            assert archive.form == form
            assert not archive.attempt(12, 16)
        finally:
            for fd in taken:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        archive.store(12, 16)
        assert (archive.failed, archive.aside) == ([], [])
        archive.seal()
    archive.check_all()


def test_a_malformed_file_that_can_not_be_renamed_is_kept_and_its_windows_wait(archive):
    archive.path.parent.mkdir()
    archive.path.write_bytes(b"not HDF5")
    for nth in range(1, 5):
        archive.files.fail("rename", nth, errno.EACCES)
    for _ in range(3):
        assert not archive.attempt(0, 8)
        assert archive.path.read_bytes() == b"not HDF5"
    (one,) = archive.failed
    assert (one.aside, one.salvaged) == (str(archive.path), False)
    archive.store(0, ROWS)
    archive.check_all()
    assert [path.read_bytes() for path in archive.directory.rglob("*.aside-*")] == [b"not HDF5"]


def test_a_sync_that_fails_when_sealing_begins_quarantines_the_file_and_keeps_its_content(archive):
    archive.store(0, ROWS)
    archive.restart()
    archive.files.fail("fdatasync", 1, errno.EIO)
    assert archive.sink.seal("fs", model.EPOCH)
    (one,) = archive.sink.commit()
    assert (one.path, one.salvaged) == (str(archive.path), True)
    archive.seal()
    archive.check_all()


def test_a_directory_that_can_not_be_synced_when_sealing_begins_puts_it_off(archive):
    archive.store(0, ROWS)
    archive.restart()
    archive.files.fail("fsync_directory", 1, errno.EIO)
    with pytest.raises(NameNotDurable):
        archive.sink.seal("fs", model.EPOCH)
    archive.seal()
    assert (archive.failed, archive.aside, archive.form) == ([], [], "sealed")
    archive.check_all()


def test_without_room_for_a_copy_a_file_whose_sync_failed_is_quarantined_and_collected_again(archive):
    archive.store(0, 12)
    archive.files.fail("fdatasync", 1, errno.EIO)
    archive.files.fail("allocate", 1, errno.ENOSPC)
    assert not archive.attempt(12, 16)
    (one,) = archive.failed
    assert (one.salvaged, len(archive.aside), archive.path.exists()) == (False, 1, False)
    archive.store(0, ROWS)
    archive.check_all()


def test_a_temporary_file_that_others_damage_harms_no_file(archive):
    """The copy of a file that grows is truncated: the growth fails, and the file itself is as good as before."""
    archive.store(0, 8, NAMES[:1])
    copied, truncated = archive.files.fdatasync, []

    def truncate(fd):
        if not truncated and temporary_path(archive.path).exists():
            truncated.append(os.truncate(temporary_path(archive.path), 4096))
        copied(fd)

    archive.files.fdatasync = truncate
    assert not archive.attempt(8, 12)
    archive.store(8, 12)
    assert (truncated, archive.failed, archive.aside) == ([None], [], [])
    archive.check_all()


def test_the_next_day_is_not_prepared_from_a_file_that_can_not_be_read(archive):
    archive.store(0, ROWS)
    archive.sink.close()
    archive.path.write_bytes(b"not HDF5" * 1000)
    archive.restart()
    archive.sink.prepare("fs", model.EPOCH + model.DAY)
    (done,) = archive.sink.run_maintenance()
    assert isinstance(done, FileChange)
    assert (done.change, type(done.error)) == ("made", NotLive)
    archive.sink.apply(model.window({name: {model.ROWS: 5} for name in NAMES}, model.ROWS, model.ROWS + 1))
    assert [one.path for one in archive.sink.commit()] == [str(archive.path)]


@pytest.mark.parametrize("operation", ["replaced", "unlinked", "truncated"])
def test_a_file_that_another_program_replaced_is_quarantined_before_it_is_closed_for_other_days(tmp_path, operation):
    """The next process that opens it would take an older copy for what was stored."""
    samples = {name: {row: row + 1 for row in range(12 * model.ROWS)} for name in NAMES}
    with closing(sink_in(tmp_path, max_open=6)) as sink:
        sink.apply(model.window(samples, 0, 12))
        assert sink.commit() == []
        path = tmp_path / "2018-01-29" / "fs.hdf5"
        copy = path.with_suffix(".copy")
        shutil.copy(path, copy)
        sink.apply(model.window(samples, 12, model.ROWS))
        assert sink.commit() == []
        if operation == "replaced":
            copy.replace(path)
        elif operation == "unlinked":
            path.unlink()
        else:
            os.truncate(path, 4096)
        reports = []
        for day in range(2, 10):
            sink.apply(model.window(samples, day * model.ROWS, (day + 1) * model.ROWS))
            reports += sink.commit()
        assert [(type(one), one.path, one.salvaged) for one in reports] == [(QuarantinedFile, str(path), False)]
        assert not path.exists()


def test_a_file_that_can_not_be_looked_at_is_not_distrusted(tmp_path):
    samples = {name: {row: row + 1 for row in range(model.ROWS)} for name in NAMES}
    files = FaultyFiles(tmp_path)
    with closing(sink_in(tmp_path, files)) as sink:
        sink.apply(model.window(samples, 0, model.ROWS))
        stat, path = files.stat, tmp_path / "2018-01-29" / "fs.hdf5"
        files.stat = lambda one: (_ for _ in ()).throw(OSError(errno.ESTALE, "stale", str(one))) if one == path else stat(one)
        assert not sink.days.distrust_damaged("fs")
        files.stat = stat
        assert sink.commit() == []
    assert path.exists()


def test_a_file_that_can_not_be_looked_at_stays_open_until_it_can(tmp_path):
    samples = {name: {row: row + 1 for row in range(12 * model.ROWS)} for name in NAMES}
    files = FaultyFiles(tmp_path)
    with closing(sink_in(tmp_path, files, max_open=6)) as sink:
        sink.apply(model.window(samples, 0, model.ROWS))
        assert sink.commit() == []
        path = tmp_path / "2018-01-29" / "fs.hdf5"
        for day in range(2, 6):
            sink.apply(model.window(samples, day * model.ROWS, (day + 1) * model.ROWS))
            assert sink.commit() == []
        stat = files.stat
        files.stat = lambda one: (_ for _ in ()).throw(OSError(errno.ESTALE, "stale", str(one))) if one == path else stat(one)
        for day in range(6, 9):
            sink.apply(model.window(samples, day * model.ROWS, (day + 1) * model.ROWS))
            assert sink.commit() == []
        assert path in [one.slot.path for one in sink.days.open_files]
        files.stat = stat
        sink.apply(model.window(samples, 9 * model.ROWS, 10 * model.ROWS))
        assert sink.commit() == []
        assert path not in [one.slot.path for one in sink.days.open_files]
        assert len(sink.days.open_files) == 6


@pytest.mark.parametrize("used", ["itself", "the day before it", "the day after it"])
def test_nothing_is_taken_from_a_file_that_another_program_overwrote(tmp_path, used):
    """Random bytes are neither samples of the days around it nor a fault of the writer."""
    days = {"the day before it": 0, "itself": 1, "the day after it": 2}
    samples = {name: {row: row + 1 for row in range(3 * model.ROWS) if row % model.ROWS} for name in NAMES}
    windows = [model.window(samples, row, row + 12) for row in range(0, 3 * model.ROWS, 12)]
    with closing(sink_in(tmp_path)) as sink:
        for window in windows:
            sink.apply(window)
            assert sink.commit() == []
    with closing(sink_in(tmp_path)) as sink:
        sink.apply(windows[3])
        assert sink.commit() == []
        path = tmp_path / "2018-01-30" / "fs.hdf5"
        with path.open("r+b") as file:
            file.seek(8192)
            file.write(random.Random(1).randbytes(path.stat().st_size - 8192))
        os.utime(path, (1, 1))  # the clock of a file system has ticks: another time shows that the file was written
        with suppress(Refusal):
            sink.apply(windows[2 * days[used]])
        reports = sink.commit()
        sink.apply(windows[3])
        reports += sink.commit()
        assert [one.path for one in reports] == [str(path)]
        for window in windows:
            sink.apply(window)
            assert sink.commit() == []
    path.with_name("fs.hdf5.aside-20180129T000000Z").unlink()
    assert filled(held(tmp_path)) == filled(model.expected(samples, 3))


@pytest.mark.parametrize("work", ["window", "sealing"])
def test_random_bytes_in_a_file_that_was_opened_and_not_written_yet_do_not_stop_its_system(tmp_path, work):
    """Nothing tells that they were written, but the code fails where rows are counted by them."""
    windows = [model.window(SAMPLES, row, row + 12) for row in range(0, 2 * model.ROWS, 12)]
    with closing(sink_in(tmp_path)) as sink:
        for window in windows:
            sink.apply(window)
            assert sink.commit() == []
    path = tmp_path / "2018-01-29" / "fs.hdf5"
    with closing(sink_in(tmp_path)) as sink:
        assert sink.days.open(sink.days.layout("fs", model.EPOCH)) is not None
        with path.open("r+b") as file:
            file.seek(8192)
            file.write(random.Random(1).randbytes(path.stat().st_size - 8192))
        if work == "window":
            with pytest.raises(Refusal, match="fs: ") as refused:
                sink.apply(windows[0])
            assert refused.value.when == "retry"
        else:
            with pytest.raises(Refusal, match="fs: rows"):
                sink.seal("fs", model.EPOCH)
        assert [one.path for one in sink.commit()] == [str(path)]
        for window in windows:
            sink.apply(window)
            assert sink.commit() == []
    assert filled(held(tmp_path)) == filled(model.expected(SAMPLES, 2))
