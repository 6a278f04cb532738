"""Connections of the collectors' process to the writer, and of a host to the daemon: a ZeroMQ socket and its monitor.

A simulation connects processes in memory by classes with the same methods, where messages are late and connections break as it says.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokiod.bus.curve import ClientKeys
    from tokiod.crossing.codec import Frame

MAX_WAITING_MESSAGES = 16
"""In the socket: few, because only what is acknowledged has arrived."""
CONNECT_MS = 5_000
"""Limit for a TCP connection, or the kernel waits longer and longer for an answer while the network is down."""
FIRST_RECONNECT_MS, MAX_RECONNECT_MS = 10, 100
"""To a server that does not listen yet: ZeroMQ doubles the time. Writer and collectors start together."""
DISCONNECTED, REFUSED = "disconnected", "refused"
"""Reasons for the end of a connection. A server that ends during the handshake looks like one that refuses the key."""

_REFUSED = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_AUTH


class ZmqConnector:
    """Makes connections."""

    def __init__(self) -> None:
        self._context = zmq.asyncio.Context()

    @contextmanager
    def connected(self, endpoint: str, keys: ClientKeys | None = None) -> Iterator[ZmqConnection]:
        """Connect to an endpoint, at which a server may be later. keys: if it requires them."""
        socket = self._context.socket(zmq.DEALER)
        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | _REFUSED)
        try:
            socket.linger = 0
            socket.immediate = True
            socket.sndhwm = MAX_WAITING_MESSAGES
            socket.ipv6 = "[" in endpoint
            socket.connect_timeout = CONNECT_MS
            socket.reconnect_ivl, socket.reconnect_ivl_max = FIRST_RECONNECT_MS, MAX_RECONNECT_MS
            if keys is not None:
                keys.secure(socket)
            socket.connect(endpoint)
            yield ZmqConnection(socket, monitor)
        finally:
            socket.disable_monitor()
            monitor.close(0)
            socket.close(0)

    def close(self) -> None:
        """Close all sockets and drop what was not sent."""
        self._context.destroy(linger=0)


class ZmqConnection:
    """One connection to a server. A message that was sent may be lost; the others arrive in their order."""

    def __init__(self, socket: zmq.asyncio.Socket, monitor: zmq.asyncio.Socket) -> None:
        self._socket = socket
        self._monitor = monitor

    async def send(self, frames: Sequence[Frame]) -> None:
        """Send a message, without copying its frames, once the server is there and not too many messages wait for it."""
        await self._socket.send_multipart(frames, copy=False)

    async def receive(self) -> bytes:
        """Return the next message of the server, which has one frame."""
        message: bytes = await self._socket.recv()
        return message

    async def ended(self) -> str:
        """Wait for the end of the connection and return the reason: DISCONNECTED or REFUSED."""
        event = parse_monitor_message(await self._monitor.recv_multipart())["event"]
        return DISCONNECTED if event == zmq.EVENT_DISCONNECTED else REFUSED
