"""Outputs in files, directories and archives: read one after the other, never all at once, and never unpacked to disk."""

from __future__ import annotations

import queue
import threading
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING

from tokiod.errors import Fatal
from tokiod.toolkit.gzip_stream import GZIP, BrokenGzip, unpacked
from tokiod.toolkit.tar_stream import BLOCK_BYTES, MAX_ARCHIVE_BYTES, BrokenTar, is_tar, members

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from pathlib import Path

MAX_OUTPUT_BYTES = 1 << 28

PIECE_BYTES = 1 << 22
"""Outputs are parsed in pieces of this size."""

_READ_BYTES = 1 << 18
_PIECES_AHEAD = 8
"""Pieces that are unpacked in advance."""


def outputs(path: Path, on_read: Callable[[int], None]) -> Iterator[tuple[bytes, float | None]]:
    """Yield the unpacked bytes of each file in a directory (recursively) or an archive, or of a single file, and when it was written.

    on_read: called with the number of bytes read, from any thread. Raises Fatal for broken or too large files, OSError.
    """
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.is_file():
                yield from outputs(file, on_read)
        return
    try:
        with closing(_read_ahead(_unpacked(_pieces(path, on_read)))) as pieces:
            yield from _in_file(path, _Stream(pieces))
    except (BrokenTar, BrokenGzip) as error:
        raise Fatal(f"{path}: broken: {error}") from None


def pieces(coming: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield outputs some at a time."""
    piece, length = [], 0
    for data in coming:
        piece.append(data)
        length += len(data)
        if length >= PIECE_BYTES:
            yield piece
            piece, length = [], 0
    if piece:
        yield piece


def _in_file(path: Path, stream: _Stream) -> Iterator[tuple[bytes, float | None]]:
    if not is_tar(stream.peek(BLOCK_BYTES)):
        yield _read_limited(str(path), stream), path.stat().st_mtime
        return
    total = 0
    for member in members(stream.read, MAX_OUTPUT_BYTES):
        name = f"{path}: {member.name}"
        data = _read_limited(name, _Stream(_unpacked(member.data)))
        total += len(data)
        if total > MAX_ARCHIVE_BYTES:
            raise Fatal(f"{path}: unpacked, its members are larger than {MAX_ARCHIVE_BYTES >> 30} GiB: split it")
        yield data, member.written


def _read_limited(name: str, stream: _Stream) -> bytes:
    data = stream.read(MAX_OUTPUT_BYTES + 1)
    if len(data) > MAX_OUTPUT_BYTES:
        raise Fatal(f"{name}: larger than {MAX_OUTPUT_BYTES >> 20} MiB, the limit of one output")
    return data


class _Stream:
    """Pieces as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._piece = b""
        self._place = 0

    def peek(self, size: int) -> bytes:
        """Return the next bytes without consuming them."""
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


def _pieces(path: Path, on_read: Callable[[int], None]) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            on_read(len(piece))
            yield piece


def _unpacked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Unpack gzip, also several members in a row, in pieces; pass other data on. Raises BrokenGzip."""
    first = next(pieces, b"")
    every = chain([first], pieces)
    return unpacked(every, 4 * _READ_BYTES) if first.startswith(GZIP) else every


def _read_ahead(pieces: Iterator[bytes]) -> Generator[bytes]:
    """Yield pieces that a thread prepares in advance: reading and unpacking do not hold the interpreter's lock."""
    waiting: queue.Queue[bytes | BaseException | None] = queue.Queue(_PIECES_AHEAD)
    stopping = threading.Event()

    def run() -> None:
        try:
            for piece in pieces:
                if stopping.is_set():
                    return
                waiting.put(piece)
        except BaseException as error:  # noqa: BLE001 - raised in the consumer
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
            _drain(waiting)
            thread.join(0.01)


def _drain(waiting: queue.Queue[bytes | BaseException | None]) -> None:
    while not waiting.empty():
        waiting.get_nowait()
