"""Which directories the check reports: of real directories and users, for the user that the daemon will have."""

import os

import pytest
from users import OUTSIDER, READERS, SERVICE, USERS, need_users, open_directory

from tokiod.config import load, written_directories

CONFIG = """\
timezone = "UTC"
[archive]
path = "{0}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{0}/run/private/bus"
[feed]
endpoint = "ipc://{0}/run/feed"
"""
CODE = """
import sys
from pathlib import Path
from tokiod.config import load, written_directories
print(*written_directories.problems(load.load(Path(sys.argv[1]))), sep="\\n", end="")
"""


@pytest.fixture
def place():
    need_users()
    with open_directory() as directory:
        (directory / "tokiod.toml").write_text(CONFIG.format(directory))
        yield directory


def made(place, owner, *names, mode=0o750, group=READERS):
    for name in names:
        (place / name).mkdir(parents=True, exist_ok=True)
        os.chown(place / name, owner, group)
        (place / name).chmod(mode)


def service(place):
    """Make what the service has while it runs."""
    made(place, SERVICE, "tts", "tts/.tokiod-readers", "run", "run/feed.stages")
    made(place, SERVICE, "tts/.tokiod", "run/private", "run/private/metrics", mode=0o700)


def reported(place, user):
    done = USERS[user].python(CODE, place / "tokiod.toml")
    assert done.stderr == ""
    return done.stdout.replace(f"{place}/", "").replace(str(place), "PLACE").splitlines()


@pytest.mark.parametrize("user", USERS)
def test_of_a_service_with_its_own_user_nothing_is_reported_whoever_asks(place, user):
    service(place)
    assert reported(place, user) == []


@pytest.mark.parametrize("user", USERS)
def test_an_archive_of_root_that_the_group_of_the_service_may_write_is_permitted(place, user):
    service(place)
    made(place, 0, "tts", mode=0o2775)
    assert reported(place, user) == []


@pytest.mark.parametrize("user", ["root", "service", "reader"])
def test_what_root_left_in_the_directories_of_the_service_is_reported_with_the_remedy(place, user):
    service(place)
    made(place, 0, "tts/.tokiod", mode=0o700)
    made(place, 0, "run/feed.stages")
    belongs = f"for user #{SERVICE}, as it belongs to root"
    assert reported(place, user) == [
        f"archive.path: no permission to write to tts/.tokiod {belongs}: `chown {SERVICE} tts/.tokiod`",
        f"feed.endpoint: no permission to write to run/feed.stages {belongs}: `chown {SERVICE} run/feed.stages`",
    ]


def test_a_directory_that_its_owner_may_not_write_is_reported(place):
    service(place)
    made(place, SERVICE, "tts", mode=0o550)
    belongs = f"for user #{SERVICE}, as it belongs to #{SERVICE}"
    assert reported(place, "root") == [f"archive.path: no permission to write to tts {belongs}: `chmod u+rwx tts`"]


def test_a_user_who_will_run_the_daemon_learns_which_directories_to_have_made(place):
    made(place, 0, "tts", mode=0o755)
    assert reported(place, "root") == []
    make = f"does not exist, and this user can't create it in PLACE; as root: `install -d -o {OUTSIDER}"
    assert reported(place, "outsider") == [
        f"archive.path: no permission to write to tts for user #{OUTSIDER}, as it belongs to root: `chown {OUTSIDER} tts`",
        f"bus.endpoint: run/private {make} run/private`",
        f"feed.endpoint: run {make} run`",
    ]


def test_root_learns_what_the_user_of_the_archive_can_not_make(place):
    made(place, SERVICE, "tts")
    make = f"does not exist, and user #{SERVICE} can't create it in PLACE; as root: `install -d -o {SERVICE}"
    assert reported(place, "root") == [f"bus.endpoint: run/private {make} run/private`", f"feed.endpoint: run {make} run`"]


def test_what_a_unit_has_made_at_its_start_is_not_reported_where_a_unit_is_installed(tmp_path, monkeypatch):
    (tmp_path / "tokiod.toml").write_text(CONFIG.format(tmp_path / "none"))
    config = load.load(tmp_path / "tokiod.toml")
    monkeypatch.setattr(written_directories, "_may_write", lambda *_: False)
    monkeypatch.setattr(written_directories, "BY_UNITS", (tmp_path / "none",))
    monkeypatch.setattr(written_directories, "UNIT_DIRECTORIES", (tmp_path / "units", tmp_path / "missing"))
    assert len(list(written_directories.problems(config))) == 3
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / "tokiod.service").write_text("")
    assert list(written_directories.problems(config)) == []
