"""What collectors of saved files share: inputs that can be read, small ones that may be packed, large ones in a spool, read once."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tokiod.errors import Fatal, TokiodError, Transient
from tokiod.toolkit.gzip_stream import GZIP, BrokenGzip, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")
S = TypeVar("S", bound="Spool")

LARGEST = 1 << 30
"""Bytes of a file that is read as a whole, unpacked."""


class Spool(Protocol):
    """Where what was read waits, in a file in TMPDIR."""

    def close(self) -> None:
        """Let go of it."""
        ...


def readable(inputs: Sequence[str | Path], *, directories: bool = False) -> list[Path]:
    """Return inputs, files or also directories, as paths. Raises TokiodError for one that can't be read."""
    paths = [Path(name) for name in inputs]
    for path in paths:
        try:
            next(path.iterdir(), None) if directories and path.is_dir() else path.open("rb").close()
        except OSError as error:
            raise TokiodError(f"{path} can't be read: {error.strerror}") from None
    return paths


def content(path: Path) -> bytes:
    """Return all of a file, unpacked where it is gzip. Raises Fatal for one that can't be read, is broken or too large."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Fatal(f"{path} can't be read: {error.strerror}") from None
    if data.startswith(GZIP):
        data = b"".join(_unpacked(path, data))
    if len(data) > LARGEST:
        raise Fatal(f"{path}: longer than {LARGEST >> 30} GiB; save it in smaller pieces")
    return data


def _unpacked(path: Path, data: bytes) -> Iterator[bytes]:
    """Unpack a gzip file, a little more than LARGEST at most."""
    length = 0
    try:
        for part in unpacked([data], LARGEST + 1):
            yield part
            length += len(part)
            if length > LARGEST:
                return
    except BrokenGzip as error:
        raise Fatal(f"{path}: {error}") from None


def spooled(spool: S, fill: Callable[[S], None]) -> S:
    """Fill a spool; it is closed where that fails. Raises Transient where there is no room, Fatal for a file that can't be read."""
    try:
        fill(spool)
    except OSError as error:
        spool.close()
        is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        raise (Transient if is_full else Fatal)(f"{error.filename or 'the spool in TMPDIR'}: {error.strerror}") from None
    except BaseException:
        spool.close()
        raise
    return spool


class Loading(Generic[T]):
    """Something that is read once, in a thread, when it is first asked for; whoever asks may be cancelled, the reading goes on."""

    def __init__(self, load: Callable[[], T]) -> None:
        self._load = load
        self._task: asyncio.Future[T] | None = None

    async def loaded(self) -> T:
        """Return it, or raise what reading it raised."""
        if self._task is None:
            self._task = asyncio.ensure_future(asyncio.to_thread(self._load))
        return await asyncio.shield(self._task)

    async def close(self) -> T | None:
        """Wait until it is read, where that has begun; return what came of it."""
        task, self._task = self._task, None
        if task is None:
            return None
        (result,) = await asyncio.gather(task, return_exceptions=True)
        return None if isinstance(result, BaseException) else result
