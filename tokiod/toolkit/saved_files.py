"""Saved files, for collectors: check inputs, read small ones whole, also compressed, read large ones once into a spool."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tokiod.errors import Fatal, TokiodError, Transient
from tokiod.toolkit.gzip_stream import GZIP, BrokenGzip, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")
S = TypeVar("S", bound="Spool")

MAX_WHOLE_BYTES = 64 << 20
"""Bytes of a file that is read as a whole, after decompression: what is parsed from it takes several times as much memory."""


class Spool(Protocol):
    """A temporary file in TMPDIR that holds what was read."""

    def close(self) -> None:
        """Delete it."""
        ...


def readable(inputs: Sequence[str | Path], *, directories: bool = False) -> list[Path]:
    """Return inputs as paths: files, with directories=True also directories. Raises TokiodError for one that can't be read."""
    paths = [Path(name) for name in inputs]
    for path in paths:
        try:
            next(path.iterdir(), None) if directories and path.is_dir() else path.open("rb").close()
        except OSError as error:
            raise TokiodError(f"{path} can't be read: {error.strerror}") from None
    return paths


def content(path: Path) -> bytes:
    """Return the content of a file, decompressed if it is gzip. Raises Fatal for one that can't be read, is damaged or too large.

    A file that is too large is refused before more than MAX_WHOLE_BYTES of it are in memory.
    """
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > MAX_WHOLE_BYTES:
                raise _too_large(path)
            data = file.read(MAX_WHOLE_BYTES + 1)
    except OSError as error:
        raise Fatal(f"{path} can't be read: {error.strerror}") from None
    if data.startswith(GZIP):
        data = b"".join(_unpacked(path, data))
    if len(data) > MAX_WHOLE_BYTES:
        raise _too_large(path)
    return data


def _too_large(path: Path) -> Fatal:
    return Fatal(f"{path}: larger than {MAX_WHOLE_BYTES >> 20} MiB; save it in smaller pieces")


def _unpacked(path: Path, data: bytes) -> Iterator[bytes]:
    """Yield the decompressed content of a gzip file, a little more than MAX_WHOLE_BYTES at most."""
    length = 0
    try:
        for part in unpacked([data], 1 << 20):
            yield part
            length += len(part)
            if length > MAX_WHOLE_BYTES:
                return
    except BrokenGzip as error:
        raise Fatal(f"{path}: {error}") from None


def spooled(spool: S, fill: Callable[[S], None]) -> S:
    """Fill a spool; close it if that fails. Raises Transient if the disk is full, Fatal for a file that can't be read."""
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
    """A value that is read once, in a thread, at the first request. Reading continues if a caller is cancelled."""

    def __init__(self, load: Callable[[], T]) -> None:
        self._load = load
        self._task: asyncio.Future[T] | None = None

    async def loaded(self) -> T:
        """Return the value, or raise what reading raised."""
        if self._task is None:
            self._task = asyncio.ensure_future(asyncio.to_thread(self._load))
        return await asyncio.shield(self._task)

    async def close(self) -> T | None:
        """Wait for a read in progress; return its value, None if there is none."""
        task, self._task = self._task, None
        if task is None:
            return None
        (result,) = await asyncio.gather(task, return_exceptions=True)
        return None if isinstance(result, BaseException) else result
