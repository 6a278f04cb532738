import errno
import os
import subprocess

import pytest

from tokiod.runtime.full_disk import DiskFull, creation_error, shortage


def test_why_no_file_can_be_made_in_a_directory(tmp_path):
    assert creation_error(tmp_path) is None
    assert creation_error(tmp_path / "missing").errno == errno.ENOENT
    assert list(tmp_path.iterdir()) == []


def test_a_quota_is_named_where_inodes_are_free(tmp_path):
    path = tmp_path / "missing" / "lock"
    error = DiskFull("can't lock the archive", OSError(errno.EDQUOT, "Disk quota exceeded"), path)
    lack = "no space is free for this user on its file system: remove files, or enlarge it"
    assert str(error) == f"can't lock the archive: Disk quota exceeded: {path}; {lack}"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [("size=20m", "the disk of {} is full: 14 MiB are free"), ("nr_inodes=2", "the disk of {} is full: no inode is free")],
)
def test_a_disk_with_little_room_is_full_for_a_report_of_why_nothing_is_stored(tmp_path, options, sentence):
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", tmp_path], capture_output=True, text=True, check=False)
    if os.geteuid() or made.returncode:
        pytest.skip(f"no disk can be mounted here: {made.stderr}")
    try:
        assert shortage(tmp_path) == ""
        (tmp_path / "day").write_bytes(bytes(6 << 20))
        assert shortage(tmp_path) == sentence.format(tmp_path)
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert shortage(tmp_path / "gone") == f"{tmp_path / 'gone'}: No such file or directory"
