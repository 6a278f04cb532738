"""Who may use what in an archive: directories of the daemon's own, and the change of an older archive's owners and modes."""

import os
import stat

import pytest
from users import READERS, SERVICE, need_users

from tokiod.archive.rights import make_private
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
