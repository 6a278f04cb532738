import errno
import os

import numpy as np
import pytest
from faulty_files import FaultyFiles, SimulatedKill

from tokiod.tts.live.create import create
from tokiod.tts.live.files import REAL, UNSYNCED, NameNotDurable, replace_file, sweep
from tokiod.tts.live.live_file import LiveFile


@pytest.fixture
def opened(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(64))
    fd = REAL.open(path)
    yield fd, path
    REAL.close(fd)


def test_a_write_that_the_kernel_cuts_short_is_finished(opened, monkeypatch):
    fd, path = opened
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: whole(fd, memoryview(data).cast("B")[:7], offset))
    REAL.pwrite(fd, np.arange(6), 8)
    assert np.frombuffer(path.read_bytes(), np.int64).tolist() == [0, 0, 1, 2, 3, 4, 5, 0]


def test_a_read_that_the_kernel_cuts_short_is_finished(opened, monkeypatch):
    fd, path = opened
    path.write_bytes(np.arange(8).tobytes())
    whole = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: whole(fd, [memoryview(buffers[0]).cast("B")[:7]], offset))
    data = np.empty((2, 3), np.int64)
    REAL.pread_into(fd, data, 16)
    assert data.tolist() == [[2, 3, 4], [5, 6, 7]]


def test_reading_beyond_the_end_is_an_error_not_old_memory(opened):
    fd, _ = opened
    with pytest.raises(OSError, match="ends 8 bytes before") as caught:
        REAL.pread_into(fd, np.empty(3), 48)
    assert caught.value.errno == errno.EIO


def test_nothing_is_written_and_read_in_no_time(opened):
    fd, path = opened
    REAL.pwrite(fd, np.empty(0), 8)
    REAL.pread_into(fd, np.empty((0, 5)), 1000)
    assert path.read_bytes() == bytes(64)


def test_a_descriptor_is_not_handed_to_child_processes(opened):
    assert not os.get_inheritable(opened[0])


def test_directories_are_made_as_deep_as_needed_and_those_that_are_there_are_fine(tmp_path):
    for _ in range(2):
        REAL.make_directory(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_names_are_listed_in_order(tmp_path):
    for name in ("b", "a", ".c"):
        (tmp_path / name).touch()
    assert REAL.listdir(tmp_path) == [".c", "a", "b"]


def test_allocated_space_is_on_the_disk(opened):
    fd, path = opened
    REAL.allocate(fd, 1 << 20)
    assert path.stat().st_size == 1 << 20
    assert path.stat().st_blocks * 512 >= 1 << 20


def test_a_name_is_replaced_in_one_step_and_taken_away(tmp_path):
    (tmp_path / "a").write_text("new")
    (tmp_path / "b").write_text("old")
    REAL.rename(tmp_path / "a", tmp_path / "b")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("b", "new")]
    REAL.unlink(tmp_path / "b")
    assert REAL.listdir(tmp_path) == []


def test_a_file_layer_without_syncs_makes_the_same_file(tmp_path, spec, monkeypatch):
    create(tmp_path / "synced.hdf5", spec, created=1)
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _fd: pytest.fail("synced"))
    create(tmp_path / "unsynced.hdf5", spec, UNSYNCED, created=1)
    live = LiveFile.open(tmp_path / "unsynced.hdf5", UNSYNCED)
    live.commit()
    live.close()
    assert (tmp_path / "unsynced.hdf5").read_bytes() == (tmp_path / "synced.hdf5").read_bytes()


OLD, NEW = b"old" * 1000, b"new" * 2000


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "file"
    replace_file(path, OLD)
    return path


def outcome(path):
    """Return what the file holds, and the names that are next to it."""
    return path.read_bytes(), sorted(name.name for name in path.parent.iterdir() if name != path)


def test_a_file_is_replaced_whole_by_six_operations_the_directory_synced_last(target):
    files = FaultyFiles(target.parent)
    replace_file(target, NEW, files)
    assert files.operations == ["create", "write", "fsync", "close", "rename", "fsync_directory"]
    assert outcome(target) == (NEW, [])
    assert target.stat().st_mode & 0o111 == 0


def test_an_empty_file_replaces_another(target):
    replace_file(target, b"")
    assert outcome(target) == (b"", [])


@pytest.mark.parametrize("operation", ["create", "write", "fsync", "rename"])
def test_until_the_rename_a_failure_leaves_the_old_file_alone(target, operation):
    files = FaultyFiles(target.parent)
    files.fail(operation, 1, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left") as error:
        replace_file(target, NEW, files)
    assert (type(error.value), outcome(target)) == (OSError, (OLD, []))


def test_a_directory_that_can_not_be_synced_has_the_new_file_and_the_error_says_that_it_may_not_last(target):
    files = FaultyFiles(target.parent)
    files.fail("fsync_directory", 1, errno.EIO)
    with pytest.raises(NameNotDurable, match="the directory can't be synced") as error:
        replace_file(target, NEW, files)
    assert (error.value.errno, error.value.filename, outcome(target)) == (errno.EIO, str(target.parent), (NEW, []))
    files.power_loss(0)
    assert target.read_bytes() in {OLD, NEW}


@pytest.mark.parametrize("step", range(1, 7))
def test_a_kill_at_any_operation_leaves_the_old_or_the_new_file_and_what_sweep_removes(target, step):
    files = FaultyFiles(target.parent)
    files.kill_at(step)
    with pytest.raises(SimulatedKill):
        replace_file(target, NEW, files)
    sweep(target.parent)
    assert outcome(target) == (NEW if step > 5 else OLD, [])


@pytest.mark.parametrize("seed", range(10))
def test_after_a_power_loss_a_file_that_was_replaced_is_the_new_one(target, seed):
    files = FaultyFiles(target.parent)
    replace_file(target, NEW, files)
    files.power_loss(seed)
    assert outcome(target) == (NEW, [])
