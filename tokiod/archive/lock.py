"""The archive's lock: one writer, and who it is."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tokiod.errors import TokiodError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STOPPING = 5.0
"""Seconds that whoever holds the lock has to let go of it."""
ABANDONED = 60.0
"""The same for a writer whose supervisor is gone, which has been told to stop and finishes what it has begun, slow as the disk may be."""

_PAUSE = threading.Event()


class ArchiveLocked(TokiodError):  # noqa: N818 - says what is the case
    """Another daemon writes to this archive."""


class ArchiveLock:
    """The right to write an archive: an flock that dies with its owner, held before anything is opened or bound.

    Sockets don't tell: a second bind of an ipc path succeeds and silently takes the first one's place.
    """

    def __init__(self, path: Path, patience: float = STOPPING) -> None:
        self.path = path
        self.patience = patience
        self._fd = -1

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise TokiodError(f"can't lock the archive: {error.strerror}: {self.path}; make it writable for this user") from error
        if not self._taken():
            owner = _named(self._fd) or "unknown"
            os.close(self._fd)
            raise ArchiveLocked(f"process {owner} already writes to this archive (it holds {self.path}); stop it first")
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        return self

    def _taken(self) -> bool:
        """Try for a while: a writer whose supervisor was killed needs a moment to end, and lock_owner() a microsecond to look."""
        for _ in _patiently(lambda: _named(self._fd), self.patience):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            return True
        return False

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def lasting_owner(path: Path, patience: float = STOPPING) -> int | None:
    """Return the process that holds the archive's lock and does not let go of it within the time that a writer takes to stop.

    A daemon that is started again right after its supervisor was killed finds the old writer still storing what it has.
    """
    for _ in _patiently(lambda: lock_owner(path), patience):
        if lock_owner(path) is None:
            return None
    return lock_owner(path)


def lock_owner(path: Path) -> int | None:
    """Return the process that holds the archive's lock, or None where nobody does (or it can't be seen)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _named(fd)
    finally:
        os.close(fd)
    return None


def _named(fd: int) -> int:
    """Return the process that a lock's file names, 0 where it names none."""
    text = os.pread(fd, 32, 0).decode(errors="replace").strip()
    return int(text) if text.isdigit() else 0


def _patiently(owner: Callable[[], int | None], patience: float) -> Iterator[None]:
    """Yield at once, and then ten times a second as long as the owner of a lock has time to let go of it."""
    begun = time.monotonic()
    yield
    while time.monotonic() - begun < (ABANDONED if _is_abandoned(owner() or 0) else patience):
        _PAUSE.wait(0.1)
        yield


def _is_abandoned(pid: int) -> bool:
    """Tell whether a process was started with --parent, and that is not its parent any more."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        parent = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1]
    except OSError:
        return False
    return b"--parent" in arguments[:-1] and arguments[arguments.index(b"--parent") + 1] != parent
