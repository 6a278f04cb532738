import errno

from tokiod.runtime.full_disk import DiskFull, creation_error


def test_why_no_file_can_be_made_in_a_directory(tmp_path):
    assert creation_error(tmp_path) is None
    assert creation_error(tmp_path / "missing").errno == errno.ENOENT
    assert list(tmp_path.iterdir()) == []


def test_a_quota_is_named_where_inodes_are_free(tmp_path):
    path = tmp_path / "missing" / "lock"
    error = DiskFull("can't lock the archive", OSError(errno.EDQUOT, "Disk quota exceeded"), path)
    lack = "no space is free for this user on its file system: remove files, or enlarge it"
    assert str(error) == f"can't lock the archive: Disk quota exceeded: {path}; {lack}"
