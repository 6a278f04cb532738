"""The TCP connections of a server socket, by descriptor: limits for those without a known key, and how one that costs too much is ended.

libzmq does none of this, but it reports the descriptors of its connections, and the process may look at them.
"""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import struct
import termios
from collections import Counter
from ipaddress import IPv6Address, IPv6Network
from typing import TYPE_CHECKING

import zmq

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokiod.clock import Clock

MAX_UNKNOWN_OF_ADDRESS, MAX_UNKNOWN = 256, 4096
"""Connections whose key is not known to be allowed: of one address, and in all, but at most half of the descriptors of the process."""
LOOK_SHARE = 0.1
"""Of the time, for looks at who has shown a key meanwhile where too many have not: each takes some 5 us for a connection."""

_TCP_INFO, _INT = struct.Struct("=120xQQ"), struct.Struct("=i")
"""tcpi_bytes_acked and tcpi_bytes_received."""
_MOST_TO_UNKNOWN = 64 + 170 + 12
"""Bytes that libzmq sends to a client without an allowed key: its greeting, its welcome and the error 400."""


_LONGEST_SHORT_FRAME, _SHORT_HEADER, _LONG_HEADER, _CURVE_BYTES = 255, 2, 9, 33
"""Of a frame on the wire."""


class Connections:
    """The connections to a TCP port, from the moment in which libzmq accepts them.

    An IPv6 address counts as its network of 64 bits: one client may have every address in it.
    has_keys: whether clients must have keys; connections without a known one are limited.

    libzmq keeps all parts of a message until the last one has come, without a limit. What it keeps of a connection is what the kernel has
    received of it, without what waits in the kernel and what the process has read, by their sizes on the wire. Besides the handshake, that
    difference grows by heartbeats, which are not messages, so it is for times when memory is short.
    """

    def __init__(self, port: int, clock: Clock, *, has_keys: bool) -> None:
        self._port, self._clock = port, clock
        self._has_keys, self._frame_bytes = has_keys, _CURVE_BYTES if has_keys else 0
        self._all: dict[int, str] = {}
        self._read: Counter[int] = Counter()
        self._read_before: dict[int, int] = {}
        self._most = min(MAX_UNKNOWN, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._unknown: dict[int, str] = {}
        self._of_address: Counter[str] = Counter()
        self._look_at = float("-inf")

    def begin(self, descriptor: int) -> tuple[int, str] | None:
        """Note a connection; where that makes too many without a known key, end one of them and return its descriptor and address.

        Of the address that has too many, else of the one with most: clients at other addresses can still come. The newest, because if it
        were the oldest, of thousands that dial in one moment none would finish. A client that was ended dials again by itself.
        """
        try:
            with _Borrowed(fileno=descriptor) as connection:
                address = _address(connection)
        except OSError:
            return None  # it has ended
        self.end(descriptor)
        self._all[descriptor] = address
        if not self._has_keys:
            return None
        self._unknown[descriptor] = address
        self._of_address[address] += 1
        if self._crowd(address) and (begun := self._clock.monotonic()) >= self._look_at:
            for one in [one for one in self._unknown if _transferred(one)[0] > _MOST_TO_UNKNOWN]:
                self._forget_unknown(one)
            self._look_at = begun + (self._clock.monotonic() - begun) / LOOK_SHARE
        if (crowd := self._crowd(address)) is None:
            return None
        newest = next(one for one, of in reversed(self._unknown.items()) if of == crowd)
        self._forget_unknown(newest)
        return (newest, crowd) if self._shut(newest, crowd) else None

    def end(self, descriptor: int) -> None:
        """Forget a connection that has ended."""
        self._all.pop(descriptor, None)
        # Not zero: another thread adds to what was read.
        self._read_before[descriptor] = self._read[descriptor]
        self._forget_unknown(descriptor)

    def note_read(self, frames: Sequence[zmq.Frame]) -> None:
        """Note that the process has read a message."""
        try:
            descriptor = int(frames[-1].get(zmq.SRCFD))
        except zmq.ZMQError:
            return  # of libzmq itself: the end of a subscription whose connection has ended
        nbytes = 0
        for frame in frames:
            size = len(frame) + self._frame_bytes
            nbytes += size + (_SHORT_HEADER if size <= _LONGEST_SHORT_FRAME else _LONG_HEADER)
        self._read[descriptor] += nbytes

    def end_unread(self, most: int) -> list[tuple[str, int]]:
        """End each connection whose unread bytes in libzmq exceed `most`; return their addresses and bytes."""
        ended = []
        for descriptor, address in list(self._all.items()):
            unread = _transferred(descriptor)[1] - self._read[descriptor] + self._read_before.get(descriptor, 0)
            if unread > most and (unread := unread - _waiting(descriptor)) > most and self._shut(descriptor, address):
                ended.append((address, unread))
        return ended

    def _forget_unknown(self, descriptor: int) -> None:
        if (address := self._unknown.pop(descriptor, None)) is not None:
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]

    def _crowd(self, address: str) -> str | None:
        """Return the address that has too many connections."""
        if self._of_address[address] > MAX_UNKNOWN_OF_ADDRESS:
            return address
        return self._of_address.most_common(1)[0][0] if len(self._unknown) > self._most else None

    def _shut(self, descriptor: int, address: str) -> bool:
        """End a connection as its client could; libzmq sees it and closes the descriptor. Return whether it was still there.

        libzmq may have given the descriptor to another connection meanwhile: to a copy that can't happen any more.
        """
        try:
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                if is_it := _address(connection) == address and connection.getsockname()[1] == self._port:
                    connection.shutdown(socket.SHUT_RDWR)
                return is_it
        except OSError:
            return False


class _Borrowed(socket.socket):
    """A descriptor of libzmq's, to be looked at. Raises OSError where it is no socket any more."""

    def __exit__(self, *_: object) -> None:
        self.detach()


def _address(connection: socket.socket) -> str:
    """Return the address that counts as one client. Raises OSError where there is none."""
    peer = connection.getpeername()
    if not isinstance(peer, tuple):
        return ""  # of a Unix socket
    if ":" not in peer[0]:
        return str(peer[0])
    address = IPv6Address(peer[0])
    return str(address.ipv4_mapped or IPv6Network((int(address) >> 64 << 64, 64)))


def _transferred(descriptor: int) -> tuple[int, int]:
    """Return how many bytes the client has acknowledged, and how many the kernel has received of it; none where it has ended."""
    try:
        with _Borrowed(fileno=descriptor) as connection:
            acked, received = _TCP_INFO.unpack(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size))
            return acked, received
    except (OSError, struct.error):
        return 0, 0


def _waiting(descriptor: int) -> int:
    """Return how many bytes wait in the kernel."""
    try:
        return int(_INT.unpack(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(_INT.size)))[0])
    except OSError:
        return 0
