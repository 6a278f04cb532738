"""Locks of processes: one writes an archive, one collects, one is the relay, one counts in a role. Others see which one writes."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from tokiod.archive.rights import PRIVATE_DIRECTORY_MODE, PRIVATE_FILE_MODE, SHARED_DIRECTORY_MODE, SHARED_FILE_MODE, refuse_root
from tokiod.errors import TokiodError
from tokiod.runtime.full_disk import FULL, DiskFull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RELEASE_SECONDS = 5.0
"""How long a stopping owner may take to release the lock."""
ORPHAN_RELEASE_SECONDS = 60.0
"""The same for a writer whose supervisor has ended: the writer is stopping and finishes its commit, on a disk that may be slow."""
POLL_SECONDS = 0.1

_FLOCK = struct.Struct("hhqqi4x")
"""struct flock: type, whence, start, length, pid."""
_WITHOUT_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
"""What flock() reports on a file system without locks, or on one that has none left."""
_PAUSE = threading.Event()


class AlreadyRunning(TokiodError):  # noqa: N818 - says what is the case
    """Another process has the lock."""


class Locked(msgspec.Struct, frozen=True):
    """What a lock is for, in the sentences of its errors: the thing that is locked, and what its owner does."""

    thing: str
    owner_does: str


ARCHIVE = Locked("the archive", "writes to this archive")
COLLECTORS = Locked("the collectors", "collects for this daemon")
RELAY = Locked("the relay", "is the relay of this daemon")
METRICS = Locked("the metrics", "counts in this role")


class ProcessLock:
    """The right of one process, as to write an archive: an flock that the kernel releases when its owner dies.

    The writer takes it before any file or socket is opened. Sockets can't replace it: a second bind of an ipc path succeeds and silently
    replaces the first one.
    owner: the file that shows the owner to users who may not open the lock.
    """

    def __init__(self, path: Path, timeout: float = RELEASE_SECONDS, *, owner: Path | None = None, locked: Locked = ARCHIVE) -> None:
        self.path = path
        self.timeout = timeout
        self._locked = locked
        self._owner = owner
        self._fd = self._owner_fd = -1

    def __enter__(self) -> Self:
        try:
            refuse_root(self.path.parent)
            self.path.parent.mkdir(PRIVATE_DIRECTORY_MODE, parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE_MODE)
        except OSError as error:
            raise self._failed(error, "make it writable for this user") from error
        try:
            self._take()
        except BaseException:
            os.close(self._fd)
            raise
        if self._owner is not None:
            with suppress(OSError):  # on a full disk, readers don't see the owner
                self._owner_fd = _shown(self._owner)
        return self

    def _take(self) -> None:
        """Acquire the lock and record this process in it."""
        try:
            if not self._acquire():
                owner = _recorded_pid(self._fd) or "unknown"
                raise AlreadyRunning(f"process {owner} already {self._locked.owner_does} (it holds {self.path}); stop it first")
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            remedy = "mount its file system with locks (Lustre: -o flock)" if error.errno in _WITHOUT_LOCKS else "see the disk"
            raise self._failed(error, remedy) from error

    def _failed(self, error: OSError, remedy: str) -> TokiodError:
        if error.errno in FULL:
            return DiskFull(f"can't lock {self._locked.thing}", error, self.path)
        return TokiodError(f"can't lock {self._locked.thing}: {error.strerror}: {self.path}; {remedy}")

    def _acquire(self) -> bool:
        """Try until the timeout: a writer whose supervisor was killed needs a moment to end, and lock_owner() a microsecond."""
        for _ in _attempts(lambda: _recorded_pid(self._fd), self.timeout):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            return True
        return False

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        if self._owner_fd >= 0:
            os.close(self._owner_fd)


def lasting_owner(path: Path, timeout: float = RELEASE_SECONDS) -> int | None:
    """Return the process that holds the archive's lock and does not release it within the time that a writer takes to stop.

    A daemon that starts right after its supervisor was killed finds the old writer still storing what it has received.
    """
    for _ in _attempts(lambda: lock_owner(path), timeout):
        if lock_owner(path) is None:
            return None
    return lock_owner(path)


def lock_owner(path: Path, shown: Path | None = None) -> int | None:
    """Return the process that holds the archive's lock; None if no process does, or the lock can't be read or tried.

    shown: the file that shows the owner to users who may not open the lock.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return None if shown is None else _shown_owner(shown)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _recorded_pid(fd)
    except OSError:
        return None
    finally:
        os.close(fd)
    return None


# Readers may open this file, and a lock on it that they could take would not harm the owner: it is write-locked before it gets its name
# and their right, and nothing waits for it.
def _shown(path: Path) -> int:
    """Replace the file that shows the owner, and lock it until its descriptor is closed. Raises OSError."""
    path.parent.mkdir(SHARED_DIRECTORY_MODE, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE_MODE)
    try:
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.fchmod(fd, SHARED_FILE_MODE)
        temporary.replace(path)
    except OSError:
        os.close(fd)
        raise
    return fd


def _shown_owner(path: Path) -> int | None:
    """Return the process that a file shows, while that process holds its lock. It asks for the lock's state and takes none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        kind, *_ = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)))
        return None if kind == fcntl.F_UNLCK else _recorded_pid(fd)
    except OSError:
        return None
    finally:
        os.close(fd)


def _recorded_pid(fd: int) -> int:
    """Return the process that the lock file names, 0 if it names no process."""
    text = os.pread(fd, 32, 0).decode(errors="replace").strip()
    return int(text) if text.isdigit() else 0


def _attempts(owner: Callable[[], int | None], timeout: float) -> Iterator[None]:
    """Yield at once, and then ten times a second while the owner of a lock has time to release it."""
    begun = time.monotonic()
    yield
    while time.monotonic() - begun < (ORPHAN_RELEASE_SECONDS if _is_orphan(owner() or 0) else timeout):
        _PAUSE.wait(POLL_SECONDS)
        yield


def _is_orphan(pid: int) -> bool:
    """Return whether a process was started with --parent and its parent is another process now."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        parent = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1]
    except OSError:
        return False
    return b"--parent" in arguments[:-1] and arguments[arguments.index(b"--parent") + 1] != parent
