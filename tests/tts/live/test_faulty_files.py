"""The faulty file layer is itself held to what it promises, since other tests believe it."""

import errno
import os
import shutil

import numpy as np
import pytest
from faulty_files import PAGE, FaultyFiles, SimulatedKill

OLD, NEW, NEWER = (np.full(PAGE // 8, n) for n in (1, 2, 3))


@pytest.fixture
def disk(tmp_path):
    """A durable file of two old pages."""
    (tmp_path / "a").write_bytes(OLD.tobytes() * 2)
    return tmp_path


def pages(path):
    """The number that each page of a file is full of."""
    content = np.frombuffer(path.read_bytes(), np.int64).reshape(-1, PAGE // 8)
    assert (content == content[:, :1]).all()
    return tuple(content[:, 0].tolist())


def outcomes(disk, act, look):
    """Everything that can be found after `act` and a loss of power."""
    found = set()
    for seed in range(60):
        for path in disk.iterdir():
            path.unlink()
        (disk / "a").write_bytes(OLD.tobytes() * 2)
        files = FaultyFiles(disk)
        act(files)
        files.power_loss(seed)
        found.add(look())
    return found


def opened(files, path):
    fd = files.open(path)
    try:
        yield fd
    finally:
        files.close(fd)


def test_unsynced_pages_are_lost_or_kept_each_by_itself(disk):
    def act(files):
        for fd in opened(files, disk / "a"):
            files.pwrite(fd, NEW, 0)
            files.pwrite(fd, NEW, PAGE)

    assert outcomes(disk, act, lambda: pages(disk / "a")) == {(1, 1), (1, 2), (2, 1), (2, 2)}


def test_a_page_written_twice_may_be_any_of_its_versions(disk):
    def act(files):
        for fd in opened(files, disk / "a"):
            files.pwrite(fd, NEW, 0)
            files.pwrite(fd, NEWER, 0)

    assert outcomes(disk, act, lambda: pages(disk / "a")) == {(1, 1), (2, 1), (3, 1)}


@pytest.mark.parametrize("sync", ["fdatasync", "fsync"])
def test_what_was_synced_stays_and_what_came_later_may_not(disk, sync):
    def act(files):
        for fd in opened(files, disk / "a"):
            files.pwrite(fd, NEW, 0)
            getattr(files, sync)(fd)
            files.pwrite(fd, NEWER, PAGE)

    assert outcomes(disk, act, lambda: pages(disk / "a")) == {(2, 1), (2, 3)}


def test_what_another_library_wrote_is_unsynced_too(disk):
    def act(files):
        (disk / "b").write_bytes(NEW.tobytes())
        files.fsync_directory(disk)

    assert outcomes(disk, act, (disk / "b").read_bytes) == {b"", bytes(PAGE), NEW.tobytes()}


def test_a_name_is_certain_only_after_the_directory_was_synced(disk):
    def act(files):
        for fd in opened(files, disk / "a"):
            files.pwrite(fd, NEW, 0)
            files.pwrite(fd, NEW, PAGE)
            files.fsync(fd)
        files.rename(disk / "a", disk / "b")

    def names():
        return tuple(sorted(path.name for path in disk.iterdir()))

    assert outcomes(disk, act, names) == {("a",), ("b",)}
    assert outcomes(disk, lambda files: (act(files), files.fsync_directory(disk)), names) == {("b",)}


def test_a_replaced_or_unlinked_file_may_come_back_with_its_content(disk):
    def replace(files):
        (disk / "b").write_bytes(NEW.tobytes())
        for fd in opened(files, disk / "b"):
            files.fsync(fd)
        files.rename(disk / "b", disk / "a")

    assert outcomes(disk, replace, lambda: pages(disk / "a")) == {(1, 1), (2,)}
    assert outcomes(disk, lambda files: files.unlink(disk / "a"), (disk / "a").exists) == {True, False}


def test_the_nth_call_of_an_operation_fails_as_it_was_told_and_the_next_does_not(disk):
    files = FaultyFiles(disk)
    files.stat(disk / "a")
    files.fail("stat", 2, errno.EIO)
    files.stat(disk / "a")
    with pytest.raises(OSError, match="Input/output error"):
        files.stat(disk / "a")
    files.stat(disk / "a")


def test_the_nth_operation_of_any_kind_fails_and_the_next_does_not(disk):
    files = FaultyFiles(disk)
    files.stat(disk / "a")
    files.fail_at(2, errno.EIO)
    files.stat(disk / "a")
    with pytest.raises(OSError, match="Input/output error"):
        files.fsync_directory(disk)
    files.fsync_directory(disk)


def test_another_process_finds_what_the_killed_one_wrote_and_renamed_and_a_power_loss_may_still_take_it(disk):
    def act(files):
        for fd in opened(files, disk / "a"):
            files.pwrite(fd, NEW, 0)
        files.rename(disk / "a", disk / "b")
        files.kill_at(1)
        with pytest.raises(SimulatedKill):
            files.fsync_directory(disk)
        other = files.revive()
        assert pages(disk / "b") == (2, 1)
        with pytest.raises(SimulatedKill):
            files.stat(disk / "b")
        if syncs:
            for fd in opened(other, disk / "b"):
                other.fdatasync(fd)
            other.fsync_directory(disk)

    def found():
        ((name, content),) = [(path.name, pages(path)) for path in disk.iterdir()]
        return name, content

    syncs = False
    assert outcomes(disk, act, found) == {("a", (1, 1)), ("a", (2, 1)), ("b", (1, 1)), ("b", (2, 1))}
    syncs = True
    assert outcomes(disk, act, found) == {("b", (2, 1))}


def test_after_the_kill_nothing_has_an_effect_but_descriptors_are_closed(disk):
    files = FaultyFiles(disk)
    fd = files.open(disk / "a")
    files.kill_at(2)
    files.pwrite(fd, NEW, 0)
    with pytest.raises(SimulatedKill):
        files.fdatasync(fd)
    with pytest.raises(SimulatedKill):
        files.pwrite(fd, NEW, PAGE)
    with pytest.raises(SimulatedKill):
        files.unlink(disk / "a")
    files.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    assert (pages(disk / "a"), files.operations) == ((2, 1), ["open", "pwrite", "fdatasync"])


def test_a_kill_in_a_write_leaves_half_of_it(disk):
    files = FaultyFiles(disk)
    fd = files.open(disk / "a")
    files.kill_at(1)
    with pytest.raises(SimulatedKill):
        files.pwrite(fd, np.concatenate([NEW, NEW]), 0)
    files.close(fd)
    assert pages(disk / "a") == (2, 1)


def test_a_file_comes_back_after_a_power_loss_whose_directory_another_program_removed(disk):
    (disk / "other").mkdir()
    (disk / "other" / "file").write_bytes(b"synced")
    files = FaultyFiles(disk)
    shutil.rmtree(disk / "other")
    files.power_loss(0)
    assert (disk / "other" / "file").read_bytes() == b"synced"
