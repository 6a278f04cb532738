"""A file seen through a window that slides along, unpacked on the way where it is gzip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.errors import Fatal
from tokiod.toolkit.gzip_stream import GZIP, BrokenGzip, unpacked

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator
    from io import FileIO
    from pathlib import Path

    Fill = Callable[[memoryview], int]


def is_packed(path: Path) -> bool:
    """Whether a file is gzip, whatever its name says. Raises OSError."""
    with path.open("rb") as file:
        return file.read(2) == GZIP


def plain(file: FileIO, seen: Callable[[int], None]) -> Fill:
    """Return what reads the next bytes of a file. seen: called with how many."""

    def fill(view: memoryview) -> int:
        count = file.readinto(view) or 0
        seen(count)
        return count

    return fill


def packed(file: FileIO, path: Path, seen: Callable[[int], None], size: int) -> Fill:
    """Return what reads the next bytes of a gzip file, at most `size` of them, unpacked. Raises Fatal for one that is broken."""
    chunks = _unpacked(file, path, seen, size)

    def fill(view: memoryview) -> int:
        chunk = next(chunks, b"")
        view[: len(chunk)] = chunk
        return len(chunk)

    return fill


def _unpacked(file: FileIO, path: Path, seen: Callable[[int], None], size: int) -> Iterator[bytes]:
    try:
        # A smaller part at a time: what of it was not unpacked yet is copied each time.
        yield from unpacked(_read(file, seen, max(1, size // 16)), size)
    except BrokenGzip as error:
        raise Fatal(f"{path}: {error}") from None


def _read(file: FileIO, seen: Callable[[int], None], size: int) -> Iterator[bytes]:
    while part := file.read(size):
        seen(len(part))
        yield part


class Sliding:
    """The part of a file that is being looked at. data: the file from `place` to `end`; the rest is done with, or unused.

    One buffer, whose parts move: memory that is given back and taken again is filled with pages anew, at the price of reading it.
    """

    def __init__(self, fill: Fill, size: int) -> None:
        self._fill = fill
        self._size = size
        self._base = 0
        self.data = bytearray(2 * size)
        self.place = self.end = 0

    @property
    def start(self) -> int:
        """Where in the file `place` is."""
        return self._base + self.place

    def more(self) -> bool:
        """Let go of what is done, and take in at most `size` bytes more; returns whether there were any."""
        rest = self.end - self.place
        with memoryview(self.data) as view:
            view[:rest] = view[self.place : self.end]
        self._base += self.place
        self.place = 0
        if rest + self._size > len(self.data):
            self.data.extend(bytes(rest + self._size))
        with memoryview(self.data) as view, view[rest : rest + self._size] as room:
            self.end = rest + self._fill(room)
        return self.end > rest

    def skip(self, unwanted: re.Pattern[bytes]) -> bytes:
        """Slide to the first byte that is none of those, and return it; b"" at the end."""
        while True:
            found = unwanted.match(self.data, self.place, self.end)
            self.place = self.place if found is None else found.end()
            if self.place < self.end:
                return bytes(self.data[self.place : self.place + 1])
            if not self.more():
                return b""

    def before(self, separators: re.Pattern[bytes], end: int) -> int:
        """Return where the separators before a place begin."""
        while end > self.place and separators.match(self.data, end - 1, end):
            end -= 1
        return end

    def cut(self, end: int) -> bytes:
        """Slide to a place, and return what was before it."""
        with memoryview(self.data) as view:
            data = bytes(view[self.place : end])
        self.place = end
        return data
