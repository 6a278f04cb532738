"""Saved pages cut out of files of any size, one at a time, without reading them as JSON: that is the decoder's work, once.

[[hit, ...], [hit, ...], ...]     pages, as pytokio's --output writes them
[answer, ...]   answer answer     whole answers to searches, in a list, behind one another, or a line each
[hit, ...]                        bare hits; they are cut into pages here

A cut is a guess: where a bracket is followed by what must follow a page. The same may stand in a text or deeper inside, but then what was
cut off is no JSON, and whoever decodes it asks for the next piece to be joined to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from collectors.collectd_es.sliding import Sliding, is_packed, packed, plain
from tokiod.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
