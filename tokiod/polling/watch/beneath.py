"""Find, open and move files below a watched folder, without trust in the users who can write there.

Every directory below the folder is opened by its name in the directory above it, and no link is followed. So a path that is replaced by a
link while it is used leads nowhere else: opening it fails.
"""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tokiod.errors import TokiodError
from tokiod.ledger.found_file import FoundFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

REJECTED = "rejected"
"""The subfolder for malformed files."""
MAX_DEPTH = 16
"""Directories below each other that are scanned."""
MAX_ENTRIES = 200_000
"""Names in all directories of a folder that are scanned."""
MAX_REJECTED = 10_000
"""Files in `rejected`, with their reasons: further malformed files stay where they are."""
RENAME_NOREPLACE = 1

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_REASON = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_VANISHED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""Errors of names that were removed, or replaced by a link, since they were listed."""


@contextmanager
def directory(root: Path, parts: Sequence[str] = ()) -> Iterator[int]:
    """Open a directory below `root`, which itself may be a link. Raises OSError, also where a part is a link."""
    descriptor = os.open(root, _DIRECTORY)
    try:
        for part in parts:
            inner = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def found_at(root: Path, path: Path) -> FoundFile | None:
    """Return the file at a path below `root`; None if it is missing, is no finished regular file, or can't be reached without a link."""
    *parts, name = path.relative_to(root).parts
    try:
        with directory(root, parts) as descriptor:
            return FoundFile.of(path, os.stat(name, dir_fd=descriptor, follow_symlinks=False))
    except OSError:
        return None


@contextmanager
def opened(root: Path, found: FoundFile) -> Iterator[int]:
    """Open a found file for reading. Raises OSError, also for what is not the same file any more."""
    *parts, name = found.path.relative_to(root).parts
    with directory(root, parts) as above:
        descriptor = os.open(name, _FILE, dir_fd=above)
    try:
        if FoundFile.of(found.path, os.fstat(descriptor)) != found:
            raise OSError(errno.ESTALE, "the file was replaced", str(found.path))
        yield descriptor
    finally:
        os.close(descriptor)


class Listing(msgspec.Struct):
    """What a scan found. problems: sentences about what it could not scan; without any, these are all files."""

    files: list[FoundFile] = msgspec.field(default_factory=list)
    directories: list[Path] = msgspec.field(default_factory=list)
    problems: list[str] = msgspec.field(default_factory=list)
    entries: int = 0


def scan(root: Path, is_excluded: Callable[[Path], bool]) -> Listing:
    """List the files and directories below a folder. Raises OSError if the folder itself can't be read."""
    listing = Listing()
    pending: list[tuple[str, ...]] = [()]
    while pending:
        parts = pending.pop()
        try:
            with directory(root, parts) as descriptor:
                pending += _scan_directory(descriptor, root.joinpath(*parts), parts, is_excluded, listing)
        except OSError as error:
            if not parts:
                raise
            if error.errno not in _VANISHED:
                listing.problems.append(f"{Path(*parts)} can't be read: {error.strerror}")
    return listing


def _scan_directory(
    descriptor: int, path: Path, parts: tuple[str, ...], is_excluded: Callable[[Path], bool], listing: Listing
) -> Iterator[tuple[str, ...]]:
    """Add the files of a directory to a listing; yield its subdirectories."""
    listing.directories.append(path)
    with os.scandir(descriptor) as entries:
        for entry in entries:
            if listing.entries >= MAX_ENTRIES:
                listing.problems[:] = [f"the folder has more than {MAX_ENTRIES} files and directories: only so many are scanned"]
                return
            listing.entries += 1
            if is_excluded(path / entry.name):
                continue
            if not entry.is_dir(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    found = FoundFile.of(path / entry.name, entry.stat(follow_symlinks=False))
                    listing.files += [] if found is None else [found]
            elif len(parts) < MAX_DEPTH:
                yield *parts, entry.name
            else:
                listing.problems.append(f"directories more than {MAX_DEPTH} levels deep are not scanned")


def move_rejected(root: Path, found: FoundFile, digest: str) -> Path:
    """Move a file to the folder's `rejected` and return its new path. Raises OSError, and TokiodError where that is not to be trusted."""
    *parts, name = found.path.relative_to(root).parts
    with directory(root) as top, directory(root, parts) as above, _rejected(top, create=True) as rejected:
        if FoundFile.of(found.path, os.stat(name, dir_fd=above, follow_symlinks=False)) != found:
            raise OSError(errno.ESTALE, "the file was replaced", str(found.path))
        target = name
        try:
            _rename(above, name, rejected, target)
        except FileExistsError:
            target = f"{name}.{digest[:8]}"
            _rename(above, name, rejected, target)
    return root / REJECTED / target


def write_reason(root: Path, rejected_path: Path, reason: str) -> None:
    """Write why a file was rejected next to it, in place of an earlier reason. Raises as move_rejected()."""
    name = f"{rejected_path.name}.reason"
    with directory(root) as top, _rejected(top, create=False) as rejected:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=rejected)
        with os.fdopen(os.open(name, _REASON, 0o640, dir_fd=rejected), "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{reason}\n")


@contextmanager
def _rejected(top: int, *, create: bool) -> Iterator[int]:
    if create:
        with suppress(FileExistsError):
            os.mkdir(REJECTED, 0o750, dir_fd=top)
    descriptor = os.open(REJECTED, _DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise TokiodError(f"{REJECTED} must belong to the daemon's user, and its group and other users must not be able to write to it")
        if create and len(os.listdir(descriptor)) >= MAX_REJECTED:  # noqa: PTH208 - by its descriptor
            raise TokiodError(f"{REJECTED} has {MAX_REJECTED} files already: delete those that are not needed")
        yield descriptor
    finally:
        os.close(descriptor)


def _rename(old: int, name: str, new: int, target: str) -> None:
    """Rename without replacing a file. `new` is a directory that only this process writes to."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):
        if libc.renameat2(old, os.fsencode(name), new, os.fsencode(target), RENAME_NOREPLACE) == 0:
            return
        if (number := ctypes.get_errno()) not in {errno.EINVAL, errno.ENOSYS}:
            raise OSError(number, os.strerror(number), target)
    # NFS and old kernels can't do it in one call.
    with suppress(FileNotFoundError):
        os.stat(target, dir_fd=new, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
    os.rename(name, target, src_dir_fd=old, dst_dir_fd=new)
