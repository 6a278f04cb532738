"""The one layer through which the archive does file operations, so that a test can fail, drop or reorder any of them.

tokiod.testing.files.FaultyFiles is the other implementation: kills at every step, power loss and full disks run in milliseconds.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


class Files:
    """The operating system's own operations; every one raises OSError."""

    def open(self, path: Path, flags: int = os.O_RDWR) -> int:
        """Open a file that exists."""
        return os.open(path, flags | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def pwrite(self, fd: int, data: NDArray[Any], offset: int) -> None:
        """Write a whole C-contiguous array at an offset in bytes."""
        written = os.pwrite(fd, data.data, offset) if data.nbytes else 0
        while written < data.nbytes:
            written += os.pwrite(fd, data.data.cast("B")[written:], offset + written)

    def pread_into(self, fd: int, data: NDArray[Any], offset: int) -> None:
        """Fill a whole C-contiguous array from an offset in bytes; a file that ends before is an error (EIO)."""
        done = os.preadv(fd, [data.data], offset) if data.nbytes else 0
        while done < data.nbytes:
            more = os.preadv(fd, [data.data.cast("B")[done:]], offset + done)
            if not more:
                raise OSError(errno.EIO, f"the file ends {data.nbytes - done} bytes before what is to be read")
            done += more

    def fdatasync(self, fd: int) -> None:
        """Make a file's content durable."""
        os.fdatasync(fd)

    def fsync(self, fd: int) -> None:
        """Make a file's content and metadata durable."""
        os.fsync(fd)

    def fsync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def allocate(self, fd: int, size: int) -> None:
        """Give a file's first `size` bytes their blocks on the disk; here a full disk shows."""
        os.posix_fallocate(fd, 0, size)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name in one step, replacing what had it."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Take a name away."""
        path.unlink()

    def fstat(self, fd: int) -> os.stat_result:
        """Return what an open file is."""
        return os.fstat(fd)

    def stat(self, path: Path) -> os.stat_result:
        """Return what has a name."""
        return path.stat()

    def listdir(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(entry.name for entry in path.iterdir())

    def free_space(self, path: Path) -> int:
        """Return how many bytes this user may still write to the file system of a directory."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def make_directory(self, path: Path) -> None:
        """Make a directory and what lacks above it, durably; one that is there already is fine."""
        lacking = [p for p in (path, *path.parents) if not p.exists()]
        for directory in reversed(lacking):
            directory.mkdir(exist_ok=True)
            self.fsync_directory(directory.parent)


class UnsyncedFiles(Files):
    """Real files that are never synced: for one that nobody will look for after a crash, such as what an archiver fills and then seals."""

    def fdatasync(self, fd: int) -> None:
        """Do nothing."""

    def fsync(self, fd: int) -> None:
        """Do nothing."""

    def fsync_directory(self, path: Path) -> None:
        """Do nothing."""


REAL = Files()
UNSYNCED = UnsyncedFiles()
