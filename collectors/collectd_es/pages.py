"""Saved pages cut out of files of any size, one at a time, without reading them as JSON: that is the decoder's work, once.

[[hit, ...], [hit, ...], ...]     pages, as pytokio's --output writes them
[answer, ...]   answer answer     whole answers to searches, in a list, behind one another, or a line each
[hit, ...]                        bare hits; they are cut into pages here

A cut is a guess: where a bracket is followed by what must follow a page. The same may stand in a text or deeper inside, but then what was
cut off is no JSON, and whoever decodes it asks for the next piece to be joined to it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from tokiod.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from pathlib import Path

Form = Literal["page", "answer", "hits"]

GZIP = b"\x1f\x8b"
READ = 4 << 20
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


def is_packed(path: Path) -> bool:
    """Whether a file is gzip, whatever its name says. Raises OSError."""
    with path.open("rb") as file:
        return file.read(2) == GZIP


def pieces(path: Path, seen: Callable[[int], None] = lambda _bytes: None, *, copied: bool = True) -> Iterator[Piece]:
    """Yield the pieces of a file. seen: called with the bytes of it that were read; copied: with the data, also of a plain file.

    Raises Fatal for a file that is cut off or holds something else, OSError where it can't be read.
    """
    with path.open("rb") as file:
        packed = is_packed(path)
        chunks = _unpacked(file, path, seen) if packed else _plain(file, seen, READ)
        yield from _pieces(_Window(chunks, copied=copied or packed), path)


def _plain(file: BufferedReader, seen: Callable[[int], None], size: int) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(size))
    while count := file.readinto(buffer):
        seen(count)
        yield buffer[:count]


def _unpacked(file: BufferedReader, path: Path, seen: Callable[[int], None]) -> Iterator[bytes]:
    unpacker, is_whole = zlib.decompressobj(wbits=31), False
    # A smaller part at a time: what of it was not unpacked yet is copied each time.
    for packed in _plain(file, seen, max(1, READ // 16)):
        rest: bytes | memoryview = packed
        while rest:
            try:
                chunk = unpacker.decompress(rest, READ)
            except zlib.error as error:
                raise Fatal(f"{path}: it is gzip and broken: {error}") from None
            rest, is_whole = unpacker.unconsumed_tail, unpacker.eof
            if is_whole:  # gzip files may be put behind one another
                rest, unpacker = unpacker.unused_data, zlib.decompressobj(wbits=31)
            if chunk:
                yield chunk
    while chunk := unpacker.decompress(b"", READ):
        yield chunk
    if not (is_whole or unpacker.eof):
        raise Fatal(f"{path}: it is gzip and cut off")


class _Window:
    """The part of a file that is being looked at: it slides along. data: the file from `place` to `end`; the rest is done with, or unused.

    One buffer, whose parts move: memory that is given back and taken again is filled with pages anew, at the price of reading it.
    """

    def __init__(self, chunks: Iterator[bytes] | Iterator[memoryview], *, copied: bool) -> None:
        self._chunks = chunks
        self._copied = copied
        self._base = 0
        self.data = bytearray(2 * READ)
        self.place = self.end = 0

    @property
    def start(self) -> int:
        """Where in the file `place` is."""
        return self._base + self.place

    def more(self) -> bool:
        """Take in the next chunk, let go of what is done; returns whether there was one."""
        chunk = next(self._chunks, b"")
        rest = self.end - self.place
        with memoryview(self.data) as view:
            view[:rest] = view[self.place : self.end]
        self._base += self.place
        self.place, self.end = 0, rest + len(chunk)
        if self.end > len(self.data):
            self.data.extend(bytes(2 * self.end - len(self.data)))
        with memoryview(self.data) as view:
            view[rest : self.end] = chunk
        return bool(chunk)

    def take(self, form: Form, end: int, following: int) -> Piece:
        """Slide to where the next piece begins, and return what was before its end."""
        start, data = self.start, None
        with memoryview(self.data) as view:
            if self._copied:
                data = bytes(view[self.place : end])
            between = bytes(view[end:following])
        self.place = following
        return Piece(form, start, self._base + end, data, between)

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


def _pieces(window: _Window, path: Path) -> Iterator[Piece]:
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
        yield _next(window, form, cut, path, is_list=is_list)
    window.place += len(begin)
    if window.skip(_BLANK):
        raise Fatal(f"{path}: byte {window.start}: there is something behind its end")


_Cut = Callable[[_Window, int], "int | None"]
"""From a place on, where the next page begins; None where that can't be seen yet."""


def _form(window: _Window, first: bytes) -> tuple[Form, _Cut]:
    if first != b"{":
        return "page", _next_page
    while window.end < SHORTEST and window.more():
        pass
    hits, source = (window.data.find(name, 0, window.end) for name in (b'"hits"', b'"_source"'))
    if hits < 0 or 0 <= source < hits:
        return "hits", _next_hit
    name = _FIRST_NAME.match(window.data, window.place)
    return "answer", partial(_next_answer, b'"took"' if name is None else name[1])


def _next_page(window: _Window, place: int) -> int | None:
    # find() is seven times as fast as a search, and in documents there are few such brackets.
    while (place := window.data.find(b"]", place, window.end)) >= 0:
        if (found := _NEXT_PAGE.match(window.data, place, window.end)) is not None:
            return found.end()
        place += 1
    return None


def _next_hit(window: _Window, place: int) -> int | None:
    found = _NEXT_HIT.search(window.data, place, window.end)
    return None if found is None else found.end()


def _next_answer(name: bytes, window: _Window, place: int) -> int | None:
    """Find where something ends and an object begins with the name that all answers of a file begin with."""
    data = window.data
    while (place := data.find(name, place, window.end)) >= 0:
        begin = window.before(_BLANK, place) - 1
        if data[begin : begin + 1] == b"{" and data[(end := window.before(_SEPARATORS, begin)) - 1 : end] == b"}" and end > window.place:
            return begin
        place += 1
    return None


def _next(window: _Window, form: Form, cut: _Cut, path: Path, *, is_list: bool) -> Piece:
    looked = LONG if form == "hits" else 0
    while True:
        following = cut(window, window.place + looked)
        if following is not None:
            return window.take(form, window.before(_SEPARATORS, following), following)
        # What separates two pages may lie across the edge.
        looked = max(looked, window.end - window.place - SHORTEST)
        if window.end - window.place > LONGEST:
            raise Fatal(f"{path}: byte {window.start}: the page that begins here is too long to be one; save pages of 10,000 hits")
        if not window.more():
            end = _last(window, path, is_list=is_list)
            return window.take(form, end, end)


def _last(window: _Window, path: Path, *, is_list: bool) -> int:
    """Return where the last page ends, before what ends the list."""
    end = window.before(_BLANK, window.end)
    if not is_list:
        return end
    if window.data[end - 1 : end] != b"]" or end - 1 <= window.place:
        raise Fatal(f"{path}: it ends in the middle of the page that begins at byte {window.start}: is it all there?")
    return window.before(_BLANK, end - 1)
