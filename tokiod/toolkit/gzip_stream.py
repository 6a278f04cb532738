"""Decompress gzip that arrives in pieces, with any number of members, and zeros between and after them as tar leaves them.

By ISA-L, which takes a third of zlib's time and releases the GIL. isal.igzip reads files, not pieces: docs/decisions/0016.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, cast

from isal import igzip, isal_zlib

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

GZIP = b"\x1f\x8b"
"""The first bytes of gzip data, whatever a file's name is."""
_BROKEN: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stubs call it an instance


class BrokenGzip(Exception):  # noqa: N818 - a state, damaged or truncated
    """Gzip data that is damaged or truncated."""


def unpacked(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the decompressed bytes of pieces, at most `size` at a time. Raises BrokenGzip."""
    unpacker, is_whole = isal_zlib.decompressobj(wbits=31), False
    for piece in pieces:
        rest = piece
        while rest := rest.lstrip(b"\0") if is_whole else rest:
            if is_whole and not GZIP.startswith(rest[:2]):
                raise BrokenGzip("damaged gzip data: other bytes follow its end")
            chunk = _fed(unpacker, rest, size)
            rest, is_whole = unpacker.unconsumed_tail, unpacker.eof
            if is_whole:
                rest, unpacker = unpacker.unused_data, isal_zlib.decompressobj(wbits=31)
            if chunk:
                yield chunk
    while chunk := b"" if is_whole else _fed(unpacker, b"", size):
        yield chunk
    if not (is_whole or unpacker.eof):
        raise BrokenGzip("truncated gzip data")


def _fed(unpacker: isal_zlib.Decompress, packed: bytes, size: int) -> bytes:
    try:
        return unpacker.decompress(packed, size)
    except _BROKEN as error:
        raise BrokenGzip(f"damaged gzip data: {error}") from None


def packed_file(path: Path) -> BinaryIO:
    """Create a gzip file. Raises OSError."""
    return cast("BinaryIO", igzip.open(path, "wb"))  # type: ignore[no-untyped-call]  # its stubs lack the types
