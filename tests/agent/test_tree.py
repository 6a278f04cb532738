"""The files of a node: each is read whole or not at all, and what fails has a reason."""

import errno
import os

import pytest

from tokiod.agent.tree import HeldFile, Tree, why


@pytest.mark.parametrize(
    ("reason", "codes"),
    [
        ("vanished", (errno.ENOENT, errno.ENODEV, errno.ESTALE, errno.ENXIO, errno.ENOTDIR)),
        ("no permission", (errno.EACCES, errno.EPERM)),
        ("unreadable", (errno.EIO, errno.EISDIR, errno.EFBIG, errno.EINVAL)),
    ],
)
def test_each_error_has_a_reason(reason, codes):
    assert [why(OSError(code, "")) for code in codes] == [reason] * len(codes)


@pytest.mark.parametrize("size", [0, 1, 2047, 2048, 4095, 4096, 4097, 1 << 16, (1 << 16) + 4097, 4 << 20])
def test_a_file_is_read_whole_each_time(tmp_path, size):
    (tmp_path / "a").write_bytes(text := os.urandom(size))
    held = HeldFile(str(tmp_path / "a"))
    assert [held.read() == text for _ in range(3)] == [True] * 3
    (tmp_path / "a").write_bytes(b"short")
    assert held.read() == b"short"
    held.close()
    assert Tree(str(tmp_path)).read("a") == b"short"


def test_a_file_beyond_four_mebibytes_is_refused_and_not_held(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * ((4 << 20) + 1))
    held = HeldFile(str(tmp_path / "a"))
    with pytest.raises(OSError, match="more than 4194304 bytes") as error:
        held.read()
    assert (error.value.errno, error.value.filename, held._fd) == (errno.EFBIG, str(tmp_path / "a"), -1)
    (tmp_path / "a").write_bytes(b"y")
    assert held.read() == b"y"
    assert not os.get_inheritable(held._fd)
    held.close()
    held.close()


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="Illegal seek"):
        Tree(str(tmp_path)).read("pipe")


def test_names_are_sorted_and_a_missing_directory_has_none(tmp_path):
    for name in ("b", "a", "c"):
        (tmp_path / name).touch()
    tree = Tree(str(tmp_path))
    assert [tree.names(place) for place in (".", "none", "a")] == [["a", "b", "c"], [], []]
    assert [tree.exists(place) for place in ("a", "none")] == [True, False]
    with pytest.raises(OSError, match="File name too long"):
        tree.names("n" * 256)
