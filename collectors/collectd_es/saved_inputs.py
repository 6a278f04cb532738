"""Cut saved pages out of files of any size, one at a time, without decoding their JSON: the decoder does that, once.

[[hit, ...], [hit, ...], ...]     pages, as pytokio's --output writes them
[answer, ...]   answer answer     whole answers to searches, in a list, one after another, or a line each
[hit, ...]   hit hit               bare hits or documents, in a list or a line each, as elasticdump and Logstash's file output write
                                  them; they are cut into pages here

A cut is a guess: where a bracket is followed by what must follow a page. The same may occur in a text or deeper inside, but then the part
is no valid JSON, and the caller that decodes it joins the next piece to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Literal

from tokiod.errors import Fatal
from tokiod.toolkit.gzip_stream import GZIP, BrokenGzip, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from io import FileIO
    from pathlib import Path

    Fill = Callable[[memoryview], int]


def is_packed(path: Path) -> bool:
    """Return whether a file is gzip, whatever its name. Raises OSError."""
    with path.open("rb") as file:
        return file.read(2) == GZIP


def plain(file: FileIO, on_read: Callable[[int], None]) -> Fill:
    """Return a function that reads the next bytes of a file. on_read: called with their number."""

    def fill(view: memoryview) -> int:
        count = file.readinto(view) or 0
        on_read(count)
        return count

    return fill


def packed(file: FileIO, path: Path, on_read: Callable[[int], None], size: int) -> Fill:
    """Return a function that unpacks the next bytes of a gzip file, at most `size`. Raises Fatal for a broken file."""
    chunks = _unpacked(file, path, on_read, size)

    def fill(view: memoryview) -> int:
        chunk = next(chunks, b"")
        view[: len(chunk)] = chunk
        return len(chunk)

    return fill


def _unpacked(file: FileIO, path: Path, on_read: Callable[[int], None], size: int) -> Iterator[bytes]:
    try:
        # Smaller parts at a time: the packed rest of each is copied each time.
        yield from unpacked(_read(file, on_read, max(1, size // 16)), size)
    except BrokenGzip as error:
        raise Fatal(f"{path}: {error}") from None


def _read(file: FileIO, on_read: Callable[[int], None], size: int) -> Iterator[bytes]:
    while part := file.read(size):
        on_read(len(part))
        yield part


class Sliding:
    """A window that slides along a file. data: the file's bytes from `place` to `end`; the rest is done or unused.

    One buffer whose parts move: fresh memory costs page faults, as much time as reading the file.
    """

    def __init__(self, fill: Fill, size: int) -> None:
        self._fill = fill
        self._size = size
        self._base = 0
        self.data = bytearray(2 * size)
        self.place = self.end = 0

    @property
    def start(self) -> int:
        """The position of `place` in the file."""
        return self._base + self.place

    def more(self) -> bool:
        """Drop what is done, and read at most `size` bytes more; return whether there were any."""
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
        """Slide to the first byte that does not match, and return it; b"" at the end."""
        while True:
            found = unwanted.match(self.data, self.place, self.end)
            self.place = self.place if found is None else found.end()
            if self.place < self.end:
                return bytes(self.data[self.place : self.place + 1])
            if not self.more():
                return b""

    def before(self, separators: re.Pattern[bytes], end: int) -> int:
        """Return the beginning of the separators before a place."""
        while end > self.place and separators.match(self.data, end - 1, end):
            end -= 1
        return end

    def cut(self, end: int) -> bytes:
        """Slide to a place, and return the bytes before it."""
        with memoryview(self.data) as view:
            data = bytes(view[self.place : end])
        self.place = end
        return data


Form = Literal["page", "answer", "hits"]

READ_BYTES = 4 << 20
MIN_READ_BYTES, MAX_COMPRESSION = 1 << 16, 32
"""Bytes per read of small files, and the largest factor by which a gzip file may grow: pages grow about 20 times."""
HITS_PAGE_BYTES = 2 << 20
"""Bare hits are cut into pages of this size."""

LOOKAHEAD_BYTES = 64 << 10
"""Within this distance a file shows its form; and no separator of pages is longer."""

MAX_PAGE_BYTES = 128 << 20
"""A file with a longer page is rejected: memory must not grow with it."""

_BLANK, _SEPARATORS = re.compile(rb"[ \t\r\n]+"), re.compile(rb"[ \t\r\n,]+")
_NEXT_PAGE, _NEXT_HIT = re.compile(rb"\]\s*,\s*(?=\[)"), re.compile(rb"\}\s*[,\n]\s*(?=\{)")
_LINE_BREAK = re.compile(rb"\}[ \t\r]*\n\s*\{")
_FIRST_NAME = re.compile(rb'\{\s*("[^"\\]*")')


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a file that is probably a page.

    start, stop: its position in the unpacked file; data: None where it can be read there; between: what separates it from the next piece,
    required if the cut is in the middle of a text.
    """

    form: Form
    start: int
    stop: int
    data: bytes | None
    between: bytes = b""


def as_list(hits: bytes) -> bytes:
    """Return bare hits as a JSON list. Between lines there is no comma, and a text has no line break."""
    return b"[" + _LINE_BREAK.sub(b"},{", hits) + b"]"


def joined(parts: Sequence[Piece]) -> Piece:
    """Return pieces that follow each other as one, with what is between them."""
    first, last = parts[0], parts[-1]
    data = None
    if all(part.data is not None for part in parts):
        data = b"".join(chain.from_iterable((part.data or b"", part.between) for part in parts[:-1])) + (last.data or b"")
    return Piece(first.form, first.start, last.stop, data, last.between)


_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+("|\\?\Z)', re.DOTALL)
_UNFINISHED = (b"'", b"'\\")


class Brackets:
    """Counts the brackets of JSON that arrives in pieces, without those in its texts."""

    def __init__(self) -> None:
        self._depth = 0
        self._unfinished = b""

    @property
    def balanced(self) -> bool:
        """Whether all brackets and texts are closed."""
        return not self._depth and not self._unfinished

    def add(self, data: bytes) -> None:
        """Count the next bytes. A text that they end in continues in the following ones."""
        outside = _TEXT.sub(rb"'\1", self._unfinished + data)
        self._depth += sum(map(outside.count, (b"[", b"{"))) - sum(map(outside.count, (b"]", b"}")))
        unfinished = next((end for end in _UNFINISHED if outside.endswith(end)), b"")
        self._unfinished = unfinished.replace(b"'", b'"')


def pieces(path: Path, on_read: Callable[[int], None] = lambda _bytes: None, *, copied: bool = True) -> Iterator[Piece]:
    """Yield the pieces of a file. on_read: called with the number of bytes read; copied: include the data, also of a plain file.

    Raises Fatal for a truncated file and for other content, OSError if it cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        is_gzip = is_packed(path)
        # Not larger than required: a buffer is filled with zeros first.
        size = min(READ_BYTES, max(MIN_READ_BYTES, MAX_COMPRESSION * path.stat().st_size))
        window = Sliding(packed(file, path, on_read, size) if is_gzip else plain(file, on_read), size)
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
        end, following = _next_page_bounds(window, form, cut, path, is_list=is_list)
        yield _take_piece(window, form, end, following, copied=copied)
    window.place += len(begin)
    if window.skip(_BLANK):
        raise Fatal(f"{path}: byte {window.start}: unexpected data after the end of the list")


_Cut = Callable[[Sliding, int], "int | None"]
"""Return the beginning of the next page after a place; None where that is not visible yet."""


def _form(window: Sliding, first: bytes) -> tuple[Form, _Cut]:
    if first != b"{":
        return "page", _next_page
    while window.end < LOOKAHEAD_BYTES and window.more():
        pass
    hits, source = (window.data.find(name, 0, window.end) for name in (b'"hits"', b'"_source"'))
    if hits < 0 or 0 <= source < hits:
        return "hits", _next_hit
    name = _FIRST_NAME.match(window.data, window.place)
    return "answer", partial(_next_answer, b'"took"' if name is None else name[1])


def _next_page(window: Sliding, place: int) -> int | None:
    # find() is seven times as fast as a search, and documents contain few such brackets.
    while (place := window.data.find(b"]", place, window.end)) >= 0:
        if (found := _NEXT_PAGE.match(window.data, place, window.end)) is not None:
            return found.end()
        place += 1
    return None


def _next_hit(window: Sliding, place: int) -> int | None:
    found = _NEXT_HIT.search(window.data, place, window.end)
    return None if found is None else found.end()


def _next_answer(name: bytes, window: Sliding, place: int) -> int | None:
    """Return where an object begins with the first name of all answers of the file, after the end of another."""
    data = window.data
    while (place := data.find(name, place, window.end)) >= 0:
        begin = window.before(_BLANK, place) - 1
        if data[begin : begin + 1] == b"{" and data[(end := window.before(_SEPARATORS, begin)) - 1 : end] == b"}" and end > window.place:
            return begin
        place += 1
    return None


def _next_page_bounds(window: Sliding, form: Form, cut: _Cut, path: Path, *, is_list: bool) -> tuple[int, int]:
    """Return where this page ends, and where the next one begins."""
    looked = HITS_PAGE_BYTES if form == "hits" else 0
    while True:
        following = cut(window, window.place + looked)
        if following is not None:
            return window.before(_SEPARATORS, following), following
        # The separator of two pages may lie across the edge.
        looked = max(looked, window.end - window.place - LOOKAHEAD_BYTES)
        if window.end - window.place > MAX_PAGE_BYTES:
            raise Fatal(f"{path}: byte {window.start}: the page that begins here is too long; save pages of 10,000 hits")
        if not window.more():
            end = _last_page_end(window, path, is_list=is_list)
            return end, end


def _take_piece(window: Sliding, form: Form, end: int, following: int, *, copied: bool) -> Piece:
    start, stop = window.start, window.start + end - window.place
    data = window.cut(end) if copied else None
    window.place = end
    return Piece(form, start, stop, data, window.cut(following))


def _last_page_end(window: Sliding, path: Path, *, is_list: bool) -> int:
    """Return where the last page ends, before the end of the list."""
    end = window.before(_BLANK, window.end)
    if not is_list:
        return end
    if window.data[end - 1 : end] != b"]" or end - 1 <= window.place:
        raise Fatal(f"{path}: truncated in the page that begins at byte {window.start}")
    return window.before(_BLANK, end - 1)
