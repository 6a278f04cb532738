"""Who may use what in an archive: directories of the daemon's own, and the change of an older archive's owners and modes."""

import os
import stat
from pathlib import Path

import pytest
from users import READERS, SERVICE, USERS, need_users, open_directory

from tokiod.archive.rights import RightsChanged, make_private, upgrade
from tokiod.config.sections import ArchiveConfig
from tokiod.errors import TokiodError

UPGRADE = """
import sys
from tokiod.archive.rights import upgrade
from tokiod.config.sections import ArchiveConfig
print(upgrade(ArchiveConfig(path=sys.argv[1])))
"""


def modes(root):
    """{path: (mode, group)} of all that is in a directory, and of itself."""
    found = {str(path.relative_to(root)): path.lstat() for path in [root, *root.rglob("*")]}
    return {path: (f"{stat.S_IMODE(status.st_mode):04o}", status.st_gid) for path, status in found.items()}


def older_archive(root):
    """Make an archive as a version without separate rights left it; return its configuration."""
    for path in ("2018-01-28/one.hdf5", "2018-01-29/one.hdf5", ".tokiod/ledger.sqlite3", ".tokiod/ledger.sqlite3-wal", ".tokiod/lock"):
        (root / path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        (root / path).touch()
        (root / path).chmod(0o644)
    return ArchiveConfig(path=f"{root}/%Y-%m-%d/{{system}}.hdf5")


def test_a_private_directory_is_for_its_user_alone(tmp_path):
    make_private(tmp_path / "private")
    make_private(tmp_path / "private")
    assert modes(tmp_path)["private"][0] == "0700"


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_directory_in_which_all_users_may_write_is_refused(tmp_path, mode):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(mode)
    with pytest.raises(TokiodError, match="other users must not be able to write to it"):
        make_private(tmp_path / "shared")


def test_a_directory_of_another_user_is_refused(tmp_path):
    need_users()
    (tmp_path / "foreign").mkdir()
    os.chown(tmp_path / "foreign", SERVICE, READERS)
    with pytest.raises(TokiodError, match="must belong to the daemon's user"):
        make_private(tmp_path / "foreign")


def test_an_older_archive_gets_its_rights_once(tmp_path):
    root, group = tmp_path / "tts", os.getegid()
    archive = older_archive(root)
    (root / "link").symlink_to("/etc/passwd")
    before = Path("/etc/passwd").stat()
    assert upgrade(archive) == RightsChanged(files=5, directories=4)
    file, directory = ("0640", group), ("0750", group)
    assert modes(root) == {
        ".": directory, "2018-01-28": directory, "2018-01-29": directory, "2018-01-28/one.hdf5": file, "2018-01-29/one.hdf5": file,
        ".tokiod": ("0700", group), ".tokiod/lock": ("0600", group), "link": ("0777", group),
        ".tokiod/ledger.sqlite3": ("0600", group), ".tokiod/ledger.sqlite3-wal": ("0600", group),
    }  # fmt: skip
    assert Path("/etc/passwd").stat().st_mode == before.st_mode
    (root / "2018-01-28/one.hdf5").chmod(0o644)
    assert upgrade(archive) is None
    assert modes(root)["2018-01-28/one.hdf5"][0] == "0644"


def test_a_new_archive_needs_no_change(tmp_path):
    archive = ArchiveConfig(path=f"{tmp_path}/tts/%Y-%m-%d/{{system}}.hdf5")
    archive.private.mkdir(mode=0o700, parents=True)
    assert upgrade(archive) is None


def test_a_change_that_was_killed_is_made_whole_by_the_next(tmp_path):
    archive = older_archive(tmp_path / "tts")
    (tmp_path / "tts/2018-01-28/one.hdf5").chmod(0o640)
    archive.lock.chmod(0o600)
    assert upgrade(archive) == RightsChanged(files=3, directories=4)


def test_the_daemons_user_changes_only_its_own_files_and_gives_them_to_its_group():
    need_users()
    with open_directory() as directory:
        root = directory / "tts"
        archive = older_archive(root)
        for path in [root, *root.rglob("*")]:
            os.chown(path, SERVICE, SERVICE)
        restored = root / "2018-01-28/one.hdf5"
        os.chown(restored, 0, 0)
        done = USERS["service"].python(UPGRADE, archive.path)
        assert done.stdout == "RightsChanged(files=4, directories=4, failed=0)\n", done.stderr
        assert {group for path, (_, group) in modes(root).items() if path != "2018-01-28/one.hdf5"} == {READERS}
        assert modes(root)["2018-01-28/one.hdf5"] == ("0644", 0)
