"""A private copy of a watched file: collectors read exactly the bytes that were hashed, whatever users do to the file meanwhile."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tokiod.errors import TokiodError
from tokiod.ledger.found_file import FoundFile
from tokiod.polling.watch.beneath import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

READ_BYTES = 1 << 20
MAX_NAME_BYTES = 200
SPARSE_RATIO = 8
"""A file with a hole that takes less than this part of its size on the disk is refused as sparse."""


class FileChanged(Exception):  # noqa: N818 - says what has happened
    """A file changed while it was collected: the folder finds it again."""


class Unacceptable(TokiodError):  # noqa: N818 - says what the file is
    """A file is refused before it is read."""


# The copy has a name, because SQLite opens no descriptor. A killed process leaves it behind: its directory is locked as long as the process
# lives, and delete_abandoned() deletes those that are not.
class PrivateCopy(msgspec.Struct, frozen=True):
    """A copy in a directory of its own in TMPDIR, with the file's name and time; digest: of its content."""

    path: Path
    digest: str
    lock: int

    def delete(self) -> None:
        """Delete the copy."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
        os.close(self.lock)


def copied(root: Path, found: FoundFile, max_bytes: int, prefix: str) -> PrivateCopy:
    """Copy a file below `root`. Raises Unacceptable for one that is too large or sparse, FileChanged, and OSError."""
    with opened(root, found) as descriptor:
        _check(descriptor, found.size, max_bytes)
        place, lock = _locked_directory(prefix)
        try:
            path = place / (os.fsencode(found.path.name)[-MAX_NAME_BYTES:].decode(errors="ignore") or "file")
            digest = _copy(descriptor, path, found)
            os.utime(path, ns=(found.mtime_ns, found.mtime_ns))
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            os.close(lock)
            raise
    return PrivateCopy(path, digest, lock)


# A process that starts may find the new directory before it is locked, and delete it as abandoned.
def _locked_directory(prefix: str) -> tuple[Path, int]:
    """Make a directory in TMPDIR; return it with the descriptor that locks it."""
    while True:
        place = Path(tempfile.mkdtemp(prefix=prefix))
        with suppress(FileNotFoundError):
            lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with suppress(BlockingIOError, FileNotFoundError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                place.stat()
                return place, lock
            os.close(lock)


def delete_abandoned(prefix: str) -> None:
    """Delete the copies of processes that were killed."""
    for place in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(place, ignore_errors=True)
            finally:
                os.close(lock)


def _check(descriptor: int, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise Unacceptable(f"the file has {size} bytes, more than the {max_bytes} of max_size")
    if os.fstat(descriptor).st_blocks * 512 * SPARSE_RATIO < size and os.lseek(descriptor, 0, os.SEEK_HOLE) < size:
        raise Unacceptable("the file is sparse: most of its bytes were never written")
    os.lseek(descriptor, 0, os.SEEK_SET)


def _copy(descriptor: int, path: Path, found: FoundFile) -> str:
    digest = hashlib.blake2b(digest_size=20)
    with path.open("xb") as copy:
        for part in _parts(descriptor, found.size):
            digest.update(part)
            copy.write(part)
    if FoundFile.of(found.path, os.fstat(descriptor)) != found:
        raise FileChanged
    return digest.hexdigest()


def _parts(descriptor: int, size: int) -> Iterator[bytes]:
    """Yield `size` bytes, no more."""
    while size:
        part = os.read(descriptor, min(size, READ_BYTES))
        if not part:
            raise FileChanged
        size -= len(part)
        yield part
