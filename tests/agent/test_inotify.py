"""inotify by this machine's kernel: what was watched is reported once, and nothing else."""

import errno
import os

import pytest

from tokiod.agent.inotify import CREATE, DELETE, IGNORED, MODIFY, ONLYDIR, OVERFLOW, Inotify

OF_DIRECTORY = 0x40000000


@pytest.fixture
def notify():
    made = Inotify()
    yield made
    made.close()


def test_the_numbers_are_those_of_the_kernels_header():
    """linux/inotify.h."""
    assert (MODIFY, CREATE, DELETE, ONLYDIR) == (0x2, 0x100, 0x200, 0x01000000)
    assert (IGNORED, OVERFLOW) == (0x8000, 0x4000)


def test_what_is_made_and_removed_in_a_directory_is_reported_with_its_name(notify, tmp_path):
    number = notify.watch(str(tmp_path), CREATE | DELETE | ONLYDIR)
    assert notify.events() == []
    names = ["a", "a" * 15, "a" * 16, "a" * 255, "\N{SNOWMAN}"]
    for name in names:
        (tmp_path / name).mkdir()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert notify.events() == [(number, CREATE | OF_DIRECTORY, name) for name in names]
    (tmp_path / "a").rmdir()
    assert notify.events() == [(number, DELETE | OF_DIRECTORY, "a")]


def test_a_file_that_is_written_is_reported_until_its_watch_ends(notify, tmp_path):
    (tmp_path / "a").write_text("1")
    number = notify.watch(str(tmp_path / "a"), MODIFY)
    assert (tmp_path / "a").read_text() == "1"
    with (tmp_path / "a").open("a") as file:
        file.write("2")
    assert notify.events() == [(number, MODIFY, "")]
    notify.unwatch(number)
    notify.unwatch(number)
    (tmp_path / "a").write_text("3")
    assert notify.events() == [(number, IGNORED, "")]


def test_more_events_than_one_read_takes_are_all_returned(notify, tmp_path):
    number = notify.watch(str(tmp_path), CREATE | DELETE)
    for place in range(1000):
        os.mkfifo(tmp_path / f"{place:0200}")
    assert [(of, name) for of, _, name in notify.events()] == [(number, f"{place:0200}") for place in range(1000)]


def test_what_cannot_be_watched_is_an_error_that_names_it(notify, tmp_path):
    (tmp_path / "file").touch()
    for name, code in (("none", errno.ENOENT), ("file", errno.ENOTDIR)):
        with pytest.raises(OSError, match=os.strerror(code)) as error:
            notify.watch(str(tmp_path / name), CREATE | ONLYDIR)
        assert (error.value.errno, error.value.filename) == (code, str(tmp_path / name))


def test_the_descriptor_is_closed_with_the_watches_and_not_inherited():
    made = Inotify()
    fd = made.fileno()
    assert not os.get_inheritable(fd)
    made.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
