"""The outputs in files, directories and archives, one after the other, never all at once and never on disk."""

from __future__ import annotations

import queue
import tarfile
import threading
from contextlib import closing
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO, cast

from tokiod.errors import Fatal
from tokiod.toolkit.gzip_stream import GZIP, BrokenGzip, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

LONGEST = 1 << 28
"""Bytes of one output."""

_PIECE = 1 << 18
_BUFFER = 1 << 15
"""Bytes; what is left of them is copied with each header and each member."""

_AHEAD = 8
"""Pieces that are unpacked before they are asked for."""

_BLOCK = 512
_TAR = slice(257, 262)
_BROKEN = (tarfile.TarError, BrokenGzip, EOFError, ValueError, ArithmeticError)


def outputs(path: Path, told: Callable[[int], None]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and bytes of each file in a directory, with those in it, or in an archive, or of a single one; unpacked.

    told: called with the bytes that were read, by any thread. Raises Fatal for what is broken or too large, OSError.
    """
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.is_file():
                yield from outputs(file, told)
        return
    try:
        with closing(_ahead(_unpacked(_pieces(path, told)))) as pieces:
            yield from _in_file(path, _Stream(pieces))
    except _BROKEN as error:
        raise Fatal(f"{path}: broken: {str(error) or 'it ends too early'}") from None


def _in_file(path: Path, stream: _Stream) -> Iterator[tuple[str, bytes]]:
    if stream.peek(_BLOCK)[_TAR] != b"ustar":
        yield str(path), _limited(str(path), stream)
        return
    with tarfile.open(fileobj=cast("BinaryIO", stream), mode="r|", bufsize=_BUFFER) as archive:
        for member in archive:
            if member.isfile() and (file := archive.extractfile(member)) is not None:
                name = f"{path}: {member.name}"
                yield name, _limited(name, _Stream(_unpacked(iter(partial(file.read, _PIECE), b""))))


def _limited(name: str, stream: _Stream) -> bytes:
    data = stream.read(LONGEST + 1)
    if len(data) > LONGEST:
        raise Fatal(f"{name}: longer than {LONGEST >> 20} MiB, which is no output of one query")
    return data


class _Stream:
    """What pieces say, as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._piece = b""
        self._place = 0

    def peek(self, size: int) -> bytes:
        """Return the next bytes and keep them."""
        data = self.read(size)
        self._piece, self._place = data + self._piece[self._place :], 0
        return data

    def read(self, size: int) -> bytes:
        """Return the next bytes, fewer only at the end."""
        found = [self._next(size)]
        left = size - len(found[0])
        while left and (piece := next(self._pieces, None)) is not None:
            self._piece, self._place = piece, 0
            found.append(self._next(left))
            left -= len(found[-1])
        return b"".join(found)

    def _next(self, size: int) -> bytes:
        data = self._piece[self._place : self._place + size]
        self._place += len(data)
        return data


def _pieces(path: Path, told: Callable[[int], None]) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            told(len(piece))
            yield piece


def _unpacked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Unpack what is gzip, also several behind one another, in pieces; pass on what is not. Raises BrokenGzip."""
    first = next(pieces, b"")
    every = chain([first], pieces)
    return unpacked(every, 4 * _PIECE) if first.startswith(GZIP) else every


def _ahead(pieces: Iterator[bytes]) -> Generator[bytes]:
    """Pass pieces on that a thread makes meanwhile: reading and unpacking hold no lock that parsing needs."""
    waiting: queue.Queue[bytes | BaseException | None] = queue.Queue(_AHEAD)
    stopping = threading.Event()

    def run() -> None:
        try:
            for piece in pieces:
                if stopping.is_set():
                    return
                waiting.put(piece)
        except BaseException as error:  # noqa: BLE001 - raised where the pieces are wanted
            waiting.put(error)
        else:
            waiting.put(None)

    thread = threading.Thread(target=run, name="unpacking", daemon=True)
    thread.start()
    try:
        while (piece := waiting.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        stopping.set()
        while thread.is_alive():
            _emptied(waiting)
            thread.join(0.01)


def _emptied(waiting: queue.Queue[bytes | BaseException | None]) -> None:
    while not waiting.empty():
        waiting.get_nowait()
