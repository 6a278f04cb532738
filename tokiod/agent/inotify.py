"""Linux's inotify, which the standard library does not have."""

from __future__ import annotations

import ctypes
import os
import struct

MODIFY, CREATE, DELETE, ONLYDIR, IGNORED, OVERFLOW = 0x2, 0x100, 0x200, 0x01000000, 0x8000, 0x4000
_HEADER = struct.Struct("iIII")
_BUFFER_BYTES = 64 << 10


class Inotify:
    """Watches of files and directories. `fileno()` is readable when there are events. Raise OSError if the kernel gives no more."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._check(self._fd, "inotify_init1")

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._fd

    def watch(self, path: str, mask: int) -> int:
        """Watch a file or directory; return the number that its events carry."""
        number: int = self._libc.inotify_add_watch(self._fd, os.fsencode(path), mask)
        self._check(number, path)
        return number

    def unwatch(self, number: int) -> None:
        """End a watch: that of a removed file of the kernel does not end by itself. One that has ended is no error."""
        self._libc.inotify_rm_watch(self._fd, number)

    def events(self) -> list[tuple[int, int, str]]:
        """Return what happened since the last call: number, mask, name in the directory."""
        found: list[tuple[int, int, str]] = []
        while True:
            try:
                data = os.read(self._fd, _BUFFER_BYTES)
            except BlockingIOError:
                return found
            offset = 0
            while offset < len(data):
                number, mask, _, length = _HEADER.unpack_from(data, offset)
                offset += _HEADER.size
                found.append((number, mask, os.fsdecode(data[offset : offset + length].rstrip(b"\0"))))
                offset += length

    def close(self) -> None:
        """Give the watches back."""
        os.close(self._fd)

    @staticmethod
    def _check(result: int, what: str) -> None:
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), what)
