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
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Literal

from tokiod.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Form = Literal["page", "answer", "hits"]

GZIP = b"\x1f\x8b"
READ = 4 << 20
LONG = 2 << 20
"""Bytes of bare hits that make a page."""

SHORTEST = 64 << 10
"""Bytes in which a file shows what it is, and more than there are between two pages."""

_BLANK = b" \t\r\n"
_CUTS = {
    "page": re.compile(rb"\]\s*,\s*(?=\[)"),
    "answer": re.compile(rb"\]\s*\}[^][{}]*\}\s*,?\s*(?=\{)"),
    "hits": re.compile(rb"\}\s*,\s*(?=\{)"),
}
_SEPARATORS = _BLANK + b","


@dataclass(frozen=True, slots=True)
class Piece:
    """What is probably a page. start, stop: where it stands in the file; once unpacked, where that was packed."""

    form: Form
    start: int
    stop: int
    data: bytes

    def joined(self, following: Piece) -> Piece:
        """Return this piece and the next one, with what is between them."""
        between = b"," * (following.start - self.stop > 0)
        return Piece(self.form, self.start, following.stop, self.data + between + following.data)


def is_packed(path: Path) -> bool:
    """Whether a file is gzip, whatever its name says. Raises OSError."""
    with path.open("rb") as file:
        return file.read(2) == GZIP


def pieces(path: Path, seen: Callable[[int], None] = lambda _bytes: None) -> Iterator[Piece]:
    """Yield the pieces of a file. seen: called with the bytes of it that were read.

    Raises Fatal for a file that is cut off or holds something else, OSError where it can't be read.
    """
    with path.open("rb") as file:
        chunks = _unpacked(file, path, seen) if is_packed(path) else _plain(file, seen)
        yield from _pieces(_Window(chunks), path)


def _plain(file: BinaryIO, seen: Callable[[int], None]) -> Iterator[bytes]:
    while chunk := file.read(READ):
        seen(len(chunk))
        yield chunk


def _unpacked(file: BinaryIO, path: Path, seen: Callable[[int], None]) -> Iterator[bytes]:
    unpacker, is_whole = zlib.decompressobj(wbits=31), False
    for packed in _plain(file, seen):
        rest = packed
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
    """The part of a file that is being looked at: it slides along."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.data = bytearray()
        self.start = 0

    def more(self) -> bool:
        """Take in the next chunk; returns whether there was one."""
        chunk = next(self._chunks, b"")
        self.data += chunk
        return bool(chunk)

    def drop(self, count: int) -> None:
        """Slide beyond so many bytes."""
        del self.data[:count]
        self.start += count

    def skip(self, unwanted: bytes) -> bytes:
        """Slide to the first byte that is none of those, and return it; b"" at the end."""
        while True:
            rest = len(self.data.lstrip(unwanted))
            self.drop(len(self.data) - rest)
            if rest:
                return bytes(self.data[:1])
            if not self.more():
                return b""


def _pieces(window: _Window, path: Path) -> Iterator[Piece]:
    first = window.skip(_BLANK)
    is_list = first == b"["
    if is_list:
        window.drop(1)
        first = window.skip(_BLANK)
    if first not in ((b"[", b"{", b"]") if is_list else (b"{",)):
        raise Fatal(f"{path}: byte {window.start}: expected saved pages, a JSON list of lists of hits, or answers to searches")
    form = _form(window, first)
    while (begin := window.skip(_SEPARATORS)) not in (b"", b"]"):
        if begin not in b"[{":
            raise Fatal(f"{path}: byte {window.start}: expected a page, found {begin.decode(errors='replace')!r}")
        yield _next(window, form, path, is_list=is_list)
    _check_end(window, begin, path, is_list=is_list)


def _form(window: _Window, first: bytes) -> Form:
    if first == b"[":
        return "page"
    while len(window.data) < SHORTEST and window.more():
        pass
    hits, source = window.data.find(b'"hits"'), window.data.find(b'"_source"')
    return "answer" if hits >= 0 and (source < 0 or hits < source) else "hits"


def _next(window: _Window, form: Form, path: Path, *, is_list: bool) -> Piece:
    shortest, looked = LONG if form == "hits" else 0, 0
    while True:
        cut = _CUTS[form].search(window.data, max(looked, shortest))
        if cut is not None:
            length = len(window.data[: cut.end()].rstrip(_SEPARATORS))
            break
        looked = max(0, len(window.data) - SHORTEST)  # what separates may lie across the edge
        if not window.more():
            length = _last(window, path, is_list=is_list)
            break
    data = bytes(window.data[:length])
    piece = Piece(form, window.start, window.start + length, data)
    window.drop(length)
    return piece


def _last(window: _Window, path: Path, *, is_list: bool) -> int:
    """Return the length of the last page, without what ends the list."""
    end = window.data.rstrip(_BLANK)
    if not is_list:
        return len(end)
    if not end.endswith(b"]"):
        raise Fatal(f"{path}: byte {window.start + len(end)}: it ends in the middle of a page that begins at byte {window.start}")
    return len(end[:-1].rstrip(_BLANK))


def _check_end(window: _Window, begin: bytes, path: Path, *, is_list: bool) -> None:
    if is_list and begin == b"":
        raise Fatal(f"{path}: byte {window.start}: it ends before its list does")
    if begin == b"]":
        window.drop(1)
        if not is_list or window.skip(_BLANK):
            raise Fatal(f"{path}: byte {window.start}: there is something behind its end")
