"""The files of a node, below / or below a captured tree, and why one could not be read."""

from __future__ import annotations

import errno
import os

MAX_FILE_BYTES = 4 << 20
"""/proc/stat of a node with 1,000 CPUs and 100,000 interrupts has 0.5 MB."""

_FIRST_BYTES, _CHUNK_BYTES = 4 << 10, 64 << 10
"""Asked for at a file's first read, and once it was found to be longer: Python makes room for what is asked for."""
_GONE = {errno.ENOENT, errno.ENODEV, errno.ESTALE, errno.ENXIO, errno.ENOTDIR}
_FORBIDDEN = {errno.EACCES, errno.EPERM}


def why(error: OSError) -> str:
    """Return the reason under which a failed read is counted."""
    if error.errno in _GONE:
        return "vanished"
    return "no permission" if error.errno in _FORBIDDEN else "unreadable"


class Tree:
    """The files below a root. Paths are relative to it, without a leading slash."""

    def __init__(self, root: str = "/") -> None:
        self.root = root

    def path(self, relative: str) -> str:
        """Return where a file is."""
        return os.path.join(self.root, relative)

    def names(self, relative: str) -> list[str]:
        """Return the sorted names in a directory; an empty list if it is missing. Raise OSError if it cannot be read."""
        try:
            return sorted(os.listdir(self.path(relative)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, relative: str) -> bool:
        """Return whether a file or directory is there."""
        return os.path.exists(self.path(relative))

    def read(self, relative: str) -> bytes:
        """Read a file once. Raise OSError."""
        held = self.hold(relative)
        try:
            return held.read()
        finally:
            held.close()

    def hold(self, relative: str) -> HeldFile:
        """Return a file that stays open between reads."""
        return HeldFile(self.path(relative))


class HeldFile:
    """A file that is opened at the first read and stays open: a read is then one system call, or two.

    A device or cgroup that is gone leaves a dead descriptor (ENODEV). Another one of the same name is opened by its path at the next read.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._size = _FIRST_BYTES

    def read(self) -> bytes:
        """Return the whole file as it is now. Raise OSError, also if it is longer than MAX_FILE_BYTES."""
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            text = os.pread(self._fd, self._size, 0)
            return text if len(text) < _PAGE_BYTES else self._whole(text)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file. The next read opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _whole(self, text: bytes) -> bytes:
        while more := os.pread(self._fd, _CHUNK_BYTES, len(text)):
            text += more
            self._size = _CHUNK_BYTES
            if len(text) > MAX_FILE_BYTES:
                raise OSError(errno.EFBIG, f"more than {MAX_FILE_BYTES} bytes", self.path)
        return text


_PAGE_BYTES = 2048
"""The files of /proc and of cgroups are cut at 4096 bytes at the earliest, or before the record that would not fit. No record of those that
have several has 2048 bytes, so a shorter text is complete."""
