import fcntl
import os
import tempfile

import pytest

from tokiod.polling.watch import private_copy
from tokiod.polling.watch.beneath import found_at
from tokiod.polling.watch.private_copy import FileChanged, Unacceptable, copied, delete_abandoned

PREFIX = "tokiod-one-file-"


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


def put(tmp_path, text="content", name="one"):
    (tmp_path / name).write_text(text)
    return found_at(tmp_path, tmp_path / name)


def test_a_copy_has_the_name_the_time_and_the_bytes_of_the_file_and_is_deleted(tmp_path, temporary):
    found = put(tmp_path)
    os.utime(found.path, ns=(0, 10**18))
    found = found_at(tmp_path, found.path)
    copy = copied(tmp_path, found, 100, PREFIX)
    assert (copy.path.name, copy.path.read_text(), copy.path.stat().st_mtime_ns) == ("one", "content", 10**18)
    assert copy.digest == copied(tmp_path, put(tmp_path, name="two"), 100, "other-").digest
    copy.delete()
    assert [path.name for path in temporary.glob(f"{PREFIX}*")] == []


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path):
    found = put(tmp_path, "x" * 101)
    with pytest.raises(Unacceptable, match="the file has 101 bytes, more than the 100 of max_size"):
        copied(tmp_path, found, 100, PREFIX)


def test_a_sparse_file_is_refused(tmp_path):
    with (tmp_path / "one").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(Unacceptable, match="sparse"):
        copied(tmp_path, found_at(tmp_path, tmp_path / "one"), 1 << 31, PREFIX)


def test_a_file_that_changes_while_it_is_copied_is_not_taken(tmp_path, temporary, monkeypatch):
    found = put(tmp_path)
    real = os.read

    def read(descriptor, size):
        found.path.write_text("another content")
        return real(descriptor, size)

    monkeypatch.setattr(private_copy.os, "read", read)
    with pytest.raises(FileChanged):
        copied(tmp_path, found, 100, PREFIX)
    assert list(temporary.iterdir()) == []


def test_a_name_that_is_not_utf_8_is_copied_under_another(tmp_path):
    found = put(tmp_path, name=os.fsdecode(b"n\xff.json"))
    copy = copied(tmp_path, found, 100, PREFIX)
    assert (copy.path.name, copy.path.read_text()) == ("n.json", "content")
    copy.delete()


def test_only_copies_of_processes_that_died_are_deleted(tmp_path, temporary):
    copy = copied(tmp_path, put(tmp_path), 100, PREFIX)
    (temporary / f"{PREFIX}dead").mkdir()
    (temporary / f"{PREFIX}dead" / "file").write_text("")
    (temporary / "other").mkdir()
    delete_abandoned(PREFIX)
    assert sorted(path.name for path in temporary.iterdir()) == sorted([copy.path.parent.name, "other"])
    copy.delete()


@pytest.mark.parametrize("step", ["made", "opened", "opened, and held meanwhile"])
def test_a_directory_that_another_process_deletes_before_it_is_locked_is_made_again(tmp_path, temporary, monkeypatch, step):
    """A process that starts deletes what is not locked; it may be the second one of the same source in the same TMPDIR."""
    found, others = put(tmp_path), []
    make, lock = tempfile.mkdtemp, fcntl.flock

    def mkdtemp(**options):
        made = make(**options)
        if step == "made" and not others:
            others.append(made)
            delete_abandoned(PREFIX)
        return made

    def flock(descriptor, operation):
        if step != "made" and not others:
            others.append(descriptor)
            (place,) = temporary.iterdir()
            if step == "opened":
                delete_abandoned(PREFIX)
            else:
                others.append(other := os.open(place, os.O_RDONLY))
                lock(other, fcntl.LOCK_EX)
        lock(descriptor, operation)

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    monkeypatch.setattr(fcntl, "flock", flock)
    copy = copied(tmp_path, found, 100, PREFIX)
    assert others
    assert copy.path.read_text() == "content"
    delete_abandoned(PREFIX)
    assert copy.path.exists()
    copy.delete()
    if step == "opened, and held meanwhile":
        os.close(others[1])
