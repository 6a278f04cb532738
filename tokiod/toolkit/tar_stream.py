"""Read a tar archive that arrives in pieces, in bounded memory and time, whatever its headers contain.

archive    (header data)* end       end: a block of zeros, or the end of the stream
header     512 bytes, see _FIELDS
data       `size` bytes, filled up with zeros to whole blocks; of the types L, K, x and g it extends the next header

Not by the module tarfile, which seeks as far as a header claims, keeps names of any length, and parses extended headers in quadratic time
in some releases of Python.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOCK_BYTES = 512
MAX_EXTENSION_BYTES = 64 << 10
"""Bytes of a long name or an extended header."""
MAX_HEADERS = 100_000
MAX_ARCHIVE_BYTES = 8 << 30
"""Bytes of all members."""

MAX_PADDING_BYTES = 1 << 20
"""Bytes after the end that are read."""

_READ_BYTES = 1 << 18
_NAME, _SIZE, _TIME, _CHECKSUM, _TYPE, _MAGIC, _PREFIX = (
    slice(100),
    slice(124, 136),
    slice(136, 148),
    slice(148, 156),
    slice(156, 157),
    slice(257, 263),
    slice(345, 500),
)
_FILES, _DIRECTORY = {b"0", b"\0", b"7"}, b"5"
_LONG_NAME, _LONG_LINK, _OF_NEXT, _OF_ALL = b"L", b"K", {b"x", b"X"}, b"g"
_OTHER_TYPES = {b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a FIFO", b"S": "a sparse file"}
_BASE_256, _NEGATIVE = 0x80, 0xFF


class BrokenTar(Exception):  # noqa: N818 - a state: damaged, truncated or too large
    """A tar archive that is damaged, truncated, too large, or holds other members than files and directories."""


class Member(NamedTuple):
    """A file of an archive. data: its bytes in pieces, which must be read before the next member is.

    written: when the file was written, epoch seconds, None where the header has no time.
    """

    name: str
    data: Iterator[bytes]
    written: int | None = None


class _Header(NamedTuple):
    name: str
    size: int
    type: bytes
    written: int | None


def is_tar(block: bytes) -> bool:
    """Return whether a first block is a header."""
    return block[_MAGIC][:5] == b"ustar"


def members(read: Callable[[int], bytes], max_bytes: int) -> Iterator[Member]:
    """Yield the files of an archive. read: returns the next bytes, fewer only at the end; max_bytes: of one file. Raises BrokenTar."""
    of_all: dict[str, str] = {}
    of_next: dict[str, str] = {}
    headers = total = 0
    while (header := _header(read(BLOCK_BYTES))) is not None:
        headers += 1
        if headers > MAX_HEADERS:
            raise BrokenTar(f"it has more than {MAX_HEADERS} headers")
        if header.type in {_LONG_NAME, _LONG_LINK, _OF_ALL, *_OF_NEXT}:
            found = _extension(header, read)
            (of_all if header.type == _OF_ALL else of_next).update(found)
            continue
        header = _extended(header, of_all | of_next)
        of_next = {}
        total += _checked_size(header, max_bytes)
        if total > MAX_ARCHIVE_BYTES:
            raise BrokenTar(f"its members are larger than {MAX_ARCHIVE_BYTES >> 30} GiB: split it")
        data = _data(header, read)
        if header.type != _DIRECTORY:
            yield Member(header.name, data, header.written)
        for _ in data:
            pass
        read(-header.size % BLOCK_BYTES)
    read(MAX_PADDING_BYTES)  # a truncated stream is an error there too


def _header(block: bytes) -> _Header | None:
    """Parse a header; return None at the end of the archive."""
    if not block.strip(b"\0"):
        return None
    if len(block) < BLOCK_BYTES:
        raise BrokenTar("it is truncated")
    if _number(block[_CHECKSUM]) != sum(block) - sum(block[_CHECKSUM]) + 8 * ord(" "):
        raise BrokenTar("damaged header")
    prefix = _text(block[_PREFIX]) if block[_MAGIC] == b"ustar\0" else ""
    name, kind = _text(block[_NAME]), block[_TYPE]
    is_old_directory = kind == b"\0" and name.endswith("/")
    written = None
    with suppress(BrokenTar):
        written = _number(block[_TIME]) or None
    return _Header(f"{prefix}/{name}" if prefix else name, _number(block[_SIZE]), _DIRECTORY if is_old_directory else kind, written)


def _number(field: bytes) -> int:
    """Parse an octal number, or one in base 256, which its first byte marks."""
    if field[0] & _BASE_256:
        value = int.from_bytes(field[1:], "big")
        return value - (1 << 8 * (len(field) - 1)) if field[0] == _NEGATIVE else value
    digits = field.split(b"\0", 1)[0].strip()
    if digits.translate(None, b"01234567"):
        raise BrokenTar("damaged header")
    return int(digits or b"0", 8)


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode(errors="replace")


def _extension(header: _Header, read: Callable[[int], bytes]) -> dict[str, str]:
    """Read a long name or an extended header."""
    if not 0 <= header.size <= MAX_EXTENSION_BYTES:
        raise BrokenTar(f"an extended header claims {header.size} bytes: at most {MAX_EXTENSION_BYTES >> 10} KiB are read")
    data = b"".join(_data(header, read))
    read(-header.size % BLOCK_BYTES)
    if header.type == _LONG_LINK:
        return {}
    return {"path": _text(data)} if header.type == _LONG_NAME else dict(_records(data))


def _records(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the records of an extended header, `length key=value newline` each."""
    place = 0
    while place < len(data):
        digits = data[place : place + 6].split(b" ", 1)[0]
        end = place + int(digits) if digits.isdigit() else 0
        key, separator, value = data[place + len(digits) + 1 : end - 1].partition(b"=")
        if not separator or end > len(data) or data[end - 1 : end] != b"\n":
            raise BrokenTar("damaged extended header")
        yield key.decode(errors="replace"), value.decode(errors="replace")
        place = end


def _extended(header: _Header, records: dict[str, str]) -> _Header:
    if any(key.startswith("GNU.sparse.") for key in records):
        raise BrokenTar(f"member {header.name} is a sparse file: only files and directories are read")
    size = records.get("size", "")
    if size and not (len(size) < 20 and size.isascii() and size.isdigit()):  # noqa: PLR2004 - an int64 at most
        raise BrokenTar("damaged extended header")
    return _Header(records.get("path", header.name), int(size) if size else header.size, header.type, header.written)


def _checked_size(header: _Header, max_bytes: int) -> int:
    if header.type not in {*_FILES, _DIRECTORY}:
        what = _OTHER_TYPES.get(header.type, f"of the unknown type {header.type!r}")
        raise BrokenTar(f"member {header.name} is {what}: only files and directories are read")
    if not 0 <= header.size <= max_bytes:
        raise BrokenTar(f"member {header.name} claims {header.size} bytes: at most {max_bytes >> 20} MiB are read")
    return header.size


def _data(header: _Header, read: Callable[[int], bytes]) -> Iterator[bytes]:
    left = header.size
    while left:
        piece = read(min(left, _READ_BYTES))
        if not piece:
            raise BrokenTar("it is truncated")
        left -= len(piece)
        yield piece
