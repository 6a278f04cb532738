"""Gzip as it comes, in pieces: several members behind one another too, with zeros between and behind them as tar leaves them.

By ISA-L, which takes a third of zlib's time, lets go of the GIL, and is fed the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isal import isal_zlib

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GZIP = b"\x1f\x8b"
"""How it begins, whatever a file's name says."""
_BROKEN: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stubs call it an instance


class BrokenGzip(Exception):  # noqa: N818 - what it is
    """Gzip that can't be unpacked, or is not all there."""


def unpacked(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Unpack what comes in pieces, at most `size` bytes at a time. Raises BrokenGzip."""
    unpacker, is_whole = isal_zlib.decompressobj(wbits=31), False
    for piece in pieces:
        rest = piece
        while rest := rest.lstrip(b"\0") if is_whole else rest:
            if is_whole and not GZIP.startswith(rest[:2]):
                raise BrokenGzip("it is gzip and broken: what is behind its end is none")
            chunk = _fed(unpacker, rest, size)
            rest, is_whole = unpacker.unconsumed_tail, unpacker.eof
            if is_whole:
                rest, unpacker = unpacker.unused_data, isal_zlib.decompressobj(wbits=31)
            if chunk:
                yield chunk
    while chunk := b"" if is_whole else _fed(unpacker, b"", size):
        yield chunk
    if not (is_whole or unpacker.eof):
        raise BrokenGzip("it is gzip and cut off")


def _fed(unpacker: isal_zlib.Decompress, packed: bytes, size: int) -> bytes:
    try:
        return unpacker.decompress(packed, size)
    except _BROKEN as error:
        raise BrokenGzip(f"it is gzip and broken: {error}") from None
