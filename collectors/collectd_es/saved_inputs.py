"""Cut saved pages out of files of any size, one at a time, without decoding their JSON: the decoder does that, once.

[[hit, ...], [hit, ...], ...]     pages, as pytokio's --output writes them
[answer, ...]   answer answer     whole answers to searches, in a list, one after another, or a line each
[hit, ...]                        bare hits; they are cut into pages here

A cut is a guess: where a bracket is followed by what must follow a page. The same may occur in a text or deeper inside, but then the part
is no valid JSON, and the caller that decodes it joins the next piece to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from tokiod.errors import Fatal
from tokiod.toolkit.gzip_stream import GZIP, BrokenGzip, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator
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


Form = Literal["page", "answer", "hits"]

READ = 4 << 20
LEAST, UNPACKS = 1 << 16, 32
"""Bytes read at a time of small files, and how many times as large a gzip file may become: pages are some 20."""
LONG = 2 << 20
"""Bytes of bare hits that make a page."""

SHORTEST = 64 << 10
"""Bytes in which a file shows what it is, and more than there are between two pages."""

LONGEST = 128 << 20
"""Bytes of one page, beyond which a file is given up: memory must not grow with it."""

_BLANK, _SEPARATORS = re.compile(rb"[ \t\r\n]+"), re.compile(rb"[ \t\r\n,]+")
_NEXT_PAGE, _NEXT_HIT = re.compile(rb"\]\s*,\s*(?=\[)"), re.compile(rb"\}\s*,\s*(?=\{)")
_FIRST_NAME = re.compile(rb'\{\s*("[^"\\]*")')


@dataclass(frozen=True, slots=True)
class Piece:
    """What is probably a page.

    start, stop: where it stands in the file, as it is unpacked; data: None where that can be read there; between: what separates it
    from the next piece, which matters if that is the middle of a text.
    """

    form: Form
    start: int
    stop: int
    data: bytes | None
    between: bytes = b""

    def joined(self, following: Piece) -> Piece:
        """Return this piece and the next one, with what is between them."""
        data = None if self.data is None or following.data is None else self.data + self.between + following.data
        return Piece(self.form, self.start, following.stop, data, following.between)


def pieces(path: Path, seen: Callable[[int], None] = lambda _bytes: None, *, copied: bool = True) -> Iterator[Piece]:
    """Yield the pieces of a file. seen: called with the bytes of it that were read; copied: with the data, also of a plain file.

    Raises Fatal for a file that is cut off or holds something else, OSError where it can't be read.
    """
    with path.open("rb", buffering=0) as file:
        is_gzip = is_packed(path)
        size = min(READ, max(LEAST, UNPACKS * path.stat().st_size))  # a buffer is filled with zeros first, which takes its time
        window = Sliding(packed(file, path, seen, size) if is_gzip else plain(file, seen), size)
        yield from _pieces(window, path, copied=copied or is_gzip)


def _pieces(window: Sliding, path: Path, *, copied: bool) -> Iterator[Piece]:
    first = window.skip(_BLANK)
    is_list = first == b"["
    if is_list:
        window.place += 1
        first = window.skip(_BLANK)
    if first not in ((b"[", b"{", b"]") if is_list else (b"{",)):
        raise Fatal(f"{path}: byte {window.start}: expected saved pages, a JSON list of lists of hits, or answers to searches")
    form, cut = _form(window, first)
    while (begin := window.skip(_SEPARATORS)) not in (b"", b"]"):
        if begin not in b"[{":
            raise Fatal(f"{path}: byte {window.start}: expected a page, found {begin.decode(errors='replace')!r}")
        end, following = _next(window, form, cut, path, is_list=is_list)
        yield _taken(window, form, end, following, copied=copied)
    window.place += len(begin)
    if window.skip(_BLANK):
        raise Fatal(f"{path}: byte {window.start}: there is something behind its end")


_Cut = Callable[[Sliding, int], "int | None"]
"""From a place on, where the next page begins; None where that can't be seen yet."""


def _form(window: Sliding, first: bytes) -> tuple[Form, _Cut]:
    if first != b"{":
        return "page", _next_page
    while window.end < SHORTEST and window.more():
        pass
    hits, source = (window.data.find(name, 0, window.end) for name in (b'"hits"', b'"_source"'))
    if hits < 0 or 0 <= source < hits:
        return "hits", _next_hit
    name = _FIRST_NAME.match(window.data, window.place)
    return "answer", partial(_next_answer, b'"took"' if name is None else name[1])


def _next_page(window: Sliding, place: int) -> int | None:
    # find() is seven times as fast as a search, and in documents there are few such brackets.
    while (place := window.data.find(b"]", place, window.end)) >= 0:
        if (found := _NEXT_PAGE.match(window.data, place, window.end)) is not None:
            return found.end()
        place += 1
    return None


def _next_hit(window: Sliding, place: int) -> int | None:
    found = _NEXT_HIT.search(window.data, place, window.end)
    return None if found is None else found.end()


def _next_answer(name: bytes, window: Sliding, place: int) -> int | None:
    """Find where something ends and an object begins with the name that all answers of a file begin with."""
    data = window.data
    while (place := data.find(name, place, window.end)) >= 0:
        begin = window.before(_BLANK, place) - 1
        if data[begin : begin + 1] == b"{" and data[(end := window.before(_SEPARATORS, begin)) - 1 : end] == b"}" and end > window.place:
            return begin
        place += 1
    return None


def _next(window: Sliding, form: Form, cut: _Cut, path: Path, *, is_list: bool) -> tuple[int, int]:
    """Return where the page that begins here ends, and where the next one begins."""
    looked = LONG if form == "hits" else 0
    while True:
        following = cut(window, window.place + looked)
        if following is not None:
            return window.before(_SEPARATORS, following), following
        # What separates two pages may lie across the edge.
        looked = max(looked, window.end - window.place - SHORTEST)
        if window.end - window.place > LONGEST:
            raise Fatal(f"{path}: byte {window.start}: the page that begins here is too long to be one; save pages of 10,000 hits")
        if not window.more():
            end = _last(window, path, is_list=is_list)
            return end, end


def _taken(window: Sliding, form: Form, end: int, following: int, *, copied: bool) -> Piece:
    start, stop = window.start, window.start + end - window.place
    data = window.cut(end) if copied else None
    window.place = end
    return Piece(form, start, stop, data, window.cut(following))


def _last(window: Sliding, path: Path, *, is_list: bool) -> int:
    """Return where the last page ends, before what ends the list."""
    end = window.before(_BLANK, window.end)
    if not is_list:
        return end
    if window.data[end - 1 : end] != b"]" or end - 1 <= window.place:
        raise Fatal(f"{path}: it ends in the middle of the page that begins at byte {window.start}: is it all there?")
    return window.before(_BLANK, end - 1)
