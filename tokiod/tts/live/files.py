"""The layer for all file operations of the archive, so that a test can fail, drop or reorder each of them.

FaultyFiles of the tests is the other implementation: it simulates kills at every step, power loss and full disks in milliseconds.

Only this module replaces files, in four operations: write a temporary file next to the target, sync it, rename it, sync the directory.

    failure             under the name            outcome
    write, sync         the old file              OSError; the temporary file is removed
    rename              the old file              OSError; the temporary file is removed
    directory sync      the new file, for now     NameNotDurable: after a power loss it may be the old file again
    kill before rename  the old file              a temporary file is left, which sweep() removes
    kill after rename   the new file, for now     the next process that opens it syncs the directory

A name that is not durable yet is synced before a commit of its file acknowledges anything (LiveFile.commit).
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray


class NameNotDurable(OSError):  # noqa: N818 - a state, not a fault
    """A file has its new name, but its directory could not be synced: a power loss may bring the old file back."""


class Files:
    """The operations of the operating system; each raises OSError."""

    def open(self, path: Path, flags: int = os.O_RDWR) -> int:
        """Open a file that exists."""
        return os.open(path, flags | os.O_CLOEXEC)

    def create(self, path: Path) -> int:
        """Create an empty file, or empty the one that exists, and open it."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def write(self, fd: int, content: bytes) -> None:
        """Write all of `content` at the current position."""
        left = memoryview(content)
        while left:
            left = left[os.write(fd, left) :]

    def pwrite(self, fd: int, data: NDArray[Any], offset: int) -> None:
        """Write a whole C-contiguous array at an offset in bytes."""
        written = os.pwrite(fd, data.data, offset) if data.nbytes else 0
        while written < data.nbytes:
            written += os.pwrite(fd, data.data.cast("B")[written:], offset + written)

    def pread_into(self, fd: int, data: NDArray[Any], offset: int) -> None:
        """Fill a whole C-contiguous array from an offset in bytes; raises EIO if the file ends earlier."""
        done = os.preadv(fd, [data.data], offset) if data.nbytes else 0
        while done < data.nbytes:
            more = os.preadv(fd, [data.data.cast("B")[done:]], offset + done)
            if not more:
                raise OSError(errno.EIO, f"the file ends {data.nbytes - done} bytes before the end of the read")
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
        """Reserve disk blocks for a file's first `size` bytes. Raises ENOSPC on a full disk."""
        os.posix_fallocate(fd, 0, size)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file atomically, replacing any file at the target."""
        source.replace(target)

    def link(self, path: Path, other: Path) -> None:
        """Give a file another name. Raises OSError where there is such a name, or no file system with hard links."""
        os.link(path, other)

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        path.unlink()

    def fstat(self, fd: int) -> os.stat_result:
        """Return the status of an open file."""
        return os.fstat(fd)

    def stat(self, path: Path) -> os.stat_result:
        """Return the status of a path."""
        return path.stat()

    def listdir(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(entry.name for entry in path.iterdir())

    def free_space(self, path: Path) -> int:
        """Return how many bytes this user can still write to the file system of a directory."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def make_directory(self, path: Path) -> None:
        """Create a directory and its missing parents, durably; an existing one is accepted.

        The innermost existing one is synced too, if this user could have made it: a process may have been killed before it did so.
        """
        absent = [p for p in (path, *path.parents) if not exists(p)]
        existing = absent[-1].parent if absent else path
        if os.access(existing.parent, os.R_OK | os.W_OK):
            self.fsync_directory(existing.parent)
        for directory in reversed(absent):
            directory.mkdir(exist_ok=True)
            self.fsync_directory(directory.parent)


class UnsyncedFiles(Files):
    """Real files that are never synced: for a file without use after a crash, such as one that `tokioctl archive` fills and seals."""

    def fdatasync(self, fd: int) -> None:
        """Do nothing."""

    def fsync(self, fd: int) -> None:
        """Do nothing."""

    def fsync_directory(self, path: Path) -> None:
        """Do nothing."""


REAL = Files()
UNSYNCED = UnsyncedFiles()


def exists(path: Path) -> bool:
    """Return whether there is a file of this name. Raises OSError where that can't be found out: a disk that fails proves nothing.

    Path.exists() returns False then in Python 3.14.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def temporary_path(target: Path) -> Path:
    """Return the path of the temporary file that replaces `target`, next to it."""
    return target.with_name(f".{target.name}.tmp")


def put_in_place(temporary: Path, target: Path, files: Files = REAL) -> None:
    """Rename a complete and synced file to `target`, durably.

    Raises OSError where the old file keeps the name, NameNotDurable where the new file has it.
    """
    files.rename(temporary, target)
    sync_name(target, files)


def sync_content(path: Path, files: Files = REAL) -> None:
    """Make a file's content and metadata durable; any process may have written them. Raises OSError."""
    fd = files.open(path, os.O_RDONLY)
    try:
        files.fsync(fd)
    finally:
        files.close(fd)


def sync_name(path: Path, files: Files = REAL) -> None:
    """Make a file's name durable. Raises NameNotDurable; then try again later."""
    try:
        files.fsync_directory(path.parent)
    except OSError as error:
        raise NameNotDurable(error.errno, f"the directory can't be synced: {error.strerror}", str(path.parent)) from error


@contextlib.contextmanager
def replacing(target: Path, files: Files = REAL) -> Iterator[Path]:
    """Yield a temporary name next to `target`; put the file that the caller made there, and synced, in place.

    Raises what the caller raises, and the errors of put_in_place(); the temporary file is then removed.
    """
    temporary = temporary_path(target)
    try:
        yield temporary
        put_in_place(temporary, target, files)
    except (Exception, KeyboardInterrupt):
        with contextlib.suppress(OSError):
            files.unlink(temporary)
        raise


def replace_file(target: Path, content: bytes, files: Files = REAL) -> None:
    """Replace a small file, or make it, whole and durably. Raises OSError, NameNotDurable."""
    with replacing(target, files) as temporary:
        fd = files.create(temporary)
        try:
            files.write(fd, content)
            files.fsync(fd)
        finally:
            files.close(fd)


def sweep(directory: Path, files: Files = REAL) -> list[str]:
    """Remove the temporary files that a killed process left in a directory; return their names."""
    leftovers = [name for name in files.listdir(directory) if name.startswith(".") and name.endswith(".tmp")]
    for name in leftovers:
        files.unlink(directory / name)
    return leftovers
