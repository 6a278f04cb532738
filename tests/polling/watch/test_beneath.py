"""Files and directories that another user of the folder prepared or replaces."""

import os
import stat

import pytest

from tokiod.errors import TokiodError
from tokiod.polling.watch import beneath
from tokiod.polling.watch.beneath import REJECTED, found_at, move_rejected, opened, scan, write_reason

OTHER_USER = 12345


@pytest.fixture
def root(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "day.hdf5").write_text("the archive's")
    return tmp_path / "folder"


@pytest.fixture
def archive(root):
    return root.parent / "archive"


def put(root, name="bad", text="garbage"):
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(text)
    return found_at(root, root / name)


def reject(root, found, reason="no such file"):
    path = move_rejected(root, found, "d" * 40)
    write_reason(root, path, reason)
    return path


def test_a_rejected_file_is_moved_with_its_reason(root):
    path = reject(root, put(root, "sub/bad"))
    assert (path, path.read_text(), path.with_name("bad.reason").read_text()) == (root / REJECTED / "bad", "garbage", "no such file\n")
    assert stat.S_IMODE((root / REJECTED / "bad.reason").stat().st_mode) & 0o027 == 0


def test_a_file_stays_where_too_many_were_rejected(root, monkeypatch):
    monkeypatch.setattr(beneath, "MAX_REJECTED", 4)
    reject(root, put(root, "one"))
    reject(root, put(root, "two"))
    third = put(root, "three")
    with pytest.raises(TokiodError, match="rejected has 4 files already: delete those that are not needed"):
        reject(root, third)
    assert third.path.exists()
    (root / REJECTED / "one").unlink()
    assert reject(root, third).name == "three"


def test_a_second_file_of_that_name_replaces_nothing(root):
    first, second = reject(root, put(root)), reject(root, put(root, text="other"))
    assert (first.name, second.name) == ("bad", "bad.dddddddd")
    assert (first.read_text(), second.read_text()) == ("garbage", "other")


def test_without_renameat2_a_second_file_replaces_nothing_either(root, monkeypatch):
    monkeypatch.setattr(beneath, "RENAME_NOREPLACE", 1 << 30)  # as on NFS: EINVAL
    first, second = reject(root, put(root)), reject(root, put(root, text="other"))
    assert (first.read_text(), second.read_text()) == ("garbage", "other")


@pytest.mark.parametrize("dangling", [False, True])
def test_a_reason_is_not_written_through_a_link(root, archive, dangling):
    (root / REJECTED).mkdir(mode=0o750)
    target = archive / ("made" if dangling else "day.hdf5")
    (root / REJECTED / "bad.reason").symlink_to(target)
    reject(root, put(root))
    assert [(path.name, path.read_text()) for path in archive.iterdir()] == [("day.hdf5", "the archive's")]
    assert (root / REJECTED / "bad.reason").read_text() == "no such file\n"


def test_a_fifo_in_place_of_a_reason_blocks_nothing(root):
    (root / REJECTED).mkdir(mode=0o750)
    os.mkfifo(root / REJECTED / "bad.reason")
    reject(root, put(root))
    assert (root / REJECTED / "bad.reason").read_text() == "no such file\n"


def foreign(root, _archive):
    (root / REJECTED).mkdir(mode=0o750)
    os.chown(root / REJECTED, OTHER_USER, OTHER_USER)


def open_to_the_group(root, _archive):
    (root / REJECTED).mkdir()
    (root / REJECTED).chmod(0o770)


def a_link(root, archive):
    (root / REJECTED).symlink_to(archive)


def a_file(root, _archive):
    (root / REJECTED).write_text("")


@pytest.mark.parametrize("prepare", [foreign, open_to_the_group, a_link, a_file], ids=lambda prepare: prepare.__name__)
def test_a_file_stays_where_rejected_is_not_the_daemons_own(root, archive, prepare):
    if prepare is foreign and os.geteuid():
        pytest.skip("only root can make a directory of another user")
    prepare(root, archive)
    found = put(root)
    with pytest.raises((OSError, TokiodError)):
        move_rejected(root, found, "d" * 40)
    assert found_at(root, found.path) == found
    assert [path.name for path in archive.iterdir()] == ["day.hdf5"]


def test_nothing_is_read_or_moved_through_a_directory_that_was_replaced_by_a_link(root, archive):
    found = put(root, "sub/day.hdf5", "the archive's")
    (root / "sub").rename(root / "sub.old")
    (root / "sub").symlink_to(archive)
    for use in (lambda: move_rejected(root, found, "d" * 40), lambda: opened(root, found).__enter__()):
        with pytest.raises(NotADirectoryError):
            use()
    assert found_at(root, found.path) is None
    assert (archive / "day.hdf5").read_text() == "the archive's"


@pytest.mark.parametrize("replace", [os.mkfifo, lambda path: path.symlink_to("/etc/passwd"), lambda path: path.write_text("another")])
def test_a_file_that_was_replaced_is_not_opened(root, replace):
    found = put(root)
    found.path.rename(root / ".old")
    replace(found.path)
    with pytest.raises(OSError, match=r"replaced|symbolic links"), opened(root, found):
        pass


def test_a_scan_ends_at_its_limits_and_says_so(root, monkeypatch):
    for number in range(20):
        put(root, f"file{number}")
    monkeypatch.setattr(beneath, "MAX_ENTRIES", 10)
    listing = scan(root, lambda _: False)
    assert (len(listing.files), listing.problems) == (10, ["the folder has more than 10 files and directories: only so many are scanned"])
    monkeypatch.undo()
    monkeypatch.setattr(beneath, "MAX_DEPTH", 1)
    (root / "a" / "b").mkdir(parents=True)
    put(root, "a/one")
    listing = scan(root, lambda _: False)
    assert (len(listing.files), listing.problems) == (21, ["directories more than 1 levels deep are not scanned"])


def test_a_scan_reports_what_it_can_not_read_and_goes_on(root, monkeypatch):
    put(root, "closed/one")
    put(root, "two")
    real = os.open

    def refuse(path, *arguments, **keywords):
        if path == "closed":
            raise PermissionError(13, "Permission denied", path)
        return real(path, *arguments, **keywords)

    monkeypatch.setattr(os, "open", refuse)
    listing = scan(root, lambda _: False)
    assert ([found.path.name for found in listing.files], listing.problems) == (["two"], ["closed can't be read: Permission denied"])
