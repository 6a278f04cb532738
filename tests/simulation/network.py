"""Sockets in memory: messages that are late or lost, connections that break, and messages of a broken one that arrive after all.

A connection delivers in order; different ones overtake each other. Only the end of a connection loses messages, as with ZeroMQ.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import zmq

from tests.simulation.oracle import Wrong
from tokiod.bus.connection import DISCONNECTED, MAX_WAITING_MESSAGES

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from tests.simulation.loop import SimulatedLoop

LATE_SECONDS = 300.0
"""How late messages of a broken connection may arrive."""


class Network:
    """All endpoints, and what goes wrong between them. seconds: the usual delay of a message, at most; max_frame: bytes of a frame.

    A longer frame is wrong, because ZeroMQ ends its connection; the head is not counted.
    """

    def __init__(self, loop: SimulatedLoop, rng: random.Random, seconds: float, max_frame: int = 2**20) -> None:
        self.loop = loop
        self.rng = rng
        self.seconds = seconds
        self.max_frame = max_frame
        self.servers: dict[str, Server] = {}
        self.connections: list[Connection] = []
        self.counts: Counter[str] = Counter()
        self.frozen_until = 0.0
        self.names = 0

    def delay(self) -> float:
        """Return how long the next message takes."""
        frozen = max(0.0, self.frozen_until - self.loop.now)
        return frozen + self.rng.random() * self.seconds * (1 if self.rng.random() < 0.9 else 20)

    def bind(self, _name: str, kind: int, endpoint: str, *_options: object, **_more: object) -> Server:
        """Bind a socket, as a ServerSocket does."""
        self.servers[endpoint] = server = Server(self, endpoint, kind)
        for connection in self.connections:
            if connection.endpoint == endpoint and connection.is_open:
                connection.attached.set()
        return server

    def connector(self) -> NetworkConnector:
        """Return what connects a process."""
        return NetworkConnector(self)

    def break_connections(self) -> None:
        """End all connections to the writer; some messages on their way are lost, others arrive later than those of the next one."""
        for connection in [one for one in self.connections if one.is_open and one.server is not None]:
            self.counts["disconnection"] += 1
            connection.break_off()

    def freeze(self, seconds: float) -> None:
        """Deliver nothing for a while."""
        self.counts["network frozen"] += 1
        self.frozen_until = self.loop.now + seconds


class Server:
    """A bound socket: ROUTER or XPUB, as ServerSocket is; it is its own `socket`."""

    def __init__(self, network: Network, endpoint: str, kind: int) -> None:
        self.socket = self
        self._network = network
        self._endpoint = endpoint
        self._kind = kind
        self._inbox: deque[list[bytes]] = deque()
        self._subscribers: list[Callable[[list[bytes]], None]] = []
        self.peers: dict[bytes, Connection] = {}
        self.readable = asyncio.Event()
        self.is_open = True

    def put(self, frames: list[bytes]) -> None:
        """Let a message arrive."""
        if self.is_open:
            self._inbox.append(frames)
            self.readable.set()

    def subscribe(self, receive: Callable[[list[bytes]], None]) -> None:
        """Connect a subscriber to all topics of an XPUB."""
        self._subscribers.append(receive)
        self.put([b"\x01"])

    def unsubscribe(self, receive: Callable[[list[bytes]], None]) -> None:
        """Disconnect a subscriber."""
        self._subscribers.remove(receive)

    # ---- as a ServerSocket

    def receive(self) -> list[Any]:
        """Return the next message."""
        return [zmq.Frame(frame) for frame in self._next()]

    def close(self, _linger_ms: int = 0) -> None:
        """End all connections."""
        self.is_open = False
        if self._network.servers.get(self._endpoint) is self:
            del self._network.servers[self._endpoint]
        for connection in list(self.peers.values()):
            connection.break_off()

    # ---- as a socket

    def poll(self, _timeout_ms: int) -> bool:
        """Return whether a message has arrived; who runs the writer waits for `readable`."""
        self.readable.clear()
        return bool(self._inbox)

    def recv_multipart(self, _flags: int, *, copy: bool) -> list[Any]:  # noqa: ARG002 - pyzmq's
        """Return the next message."""
        return self.receive()

    def send_multipart(self, message: Sequence[Any], _flags: int) -> None:
        """Send to the peer that the first frame names, or to all subscribers."""
        frames = [bytes(memoryview(getattr(frame, "buffer", frame))) for frame in message]
        if self._kind == zmq.XPUB:
            for receive in list(self._subscribers):
                receive(frames)
        elif (connection := self.peers.get(frames[0])) is not None:
            connection.to_client(frames[1])

    def setsockopt(self, _option: int, _value: int) -> None:
        """Have no options."""

    def _next(self) -> list[bytes]:
        if not self._inbox:
            raise zmq.Again
        return self._inbox.popleft()


class NetworkConnector:
    """Makes connections in memory; close() ends them all, as the death of their process does."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._own: list[Connection] = []

    @contextmanager
    def connected(self, endpoint: str, _keys: object = None) -> Iterator[Connection]:
        """Connect; disconnect in the end."""
        connection = Connection(self._network, endpoint)
        self._own.append(connection)
        try:
            yield connection
        finally:
            connection.close()

    def close(self) -> None:
        """Disconnect."""
        for connection in self._own:
            connection.close()
        self._own.clear()


class Connection:
    """A DEALER's connection."""

    def __init__(self, network: Network, endpoint: str) -> None:
        network.names += 1
        self.name = b"\0" + network.names.to_bytes(4, "big")
        self.endpoint = endpoint
        self.attached = asyncio.Event()
        self.server: Server | None = None
        self.is_open = True
        self._network = network
        self._broken = asyncio.Event()
        self._received: asyncio.Queue[bytes] = asyncio.Queue()
        self._on_way: deque[list[bytes]] = deque()
        self._room = asyncio.Event()
        self._last_up = self._last_down = 0.0
        network.connections.append(self)
        if endpoint in network.servers:
            self.attached.set()

    async def send(self, frames: Sequence[Any]) -> None:
        """Send once the server is there, and while few messages are on their way."""
        copied = [bytes(memoryview(frame)) for frame in frames]
        while not self.is_open or self.server is None or len(self._on_way) >= MAX_WAITING_MESSAGES:
            if not self.is_open:
                await asyncio.Event().wait()  # its process has ended
            elif self.server is None:
                await self.attached.wait()
                self._attach()
            else:
                self._room.clear()
                await self._room.wait()
        self._on_way.append(copied)
        self._last_up = max(self._last_up, self._network.loop.now + self._network.delay())
        self._network.loop.call_at(self._last_up, self._arrive)

    async def receive(self) -> bytes:
        """Return the next message of the server."""
        return await self._received.get()

    async def ended(self) -> str:
        """Wait until the connection breaks."""
        await self._broken.wait()
        return DISCONNECTED

    def to_client(self, frame: bytes) -> None:
        """Let a message of the server arrive in a while."""
        self._last_down = max(self._last_down, self._network.loop.now + self._network.delay())
        self._network.loop.call_at(self._last_down, self._receive, frame)

    def break_off(self) -> None:
        """End the connection from outside; what is on its way to the server may arrive later."""
        server, self.server = self.server, None
        if server is None:
            return
        network = self._network
        server.peers.pop(self.name, None)
        late = [frames for frames in self._on_way if network.rng.random() < 0.5]
        self._on_way.clear()
        at = network.loop.now
        for frames in late:
            network.counts["late message of a broken connection"] += 1
            at += network.rng.random() * LATE_SECONDS
            network.loop.call_at(at, server.put, [self.name, *frames])
        network.loop.call_later(network.delay(), self._broken.set)

    def close(self) -> None:
        """End the connection from this side."""
        if self.is_open:
            self.is_open = False
            self._network.connections.remove(self)
            self.break_off()

    def _attach(self) -> None:
        self.server = self._network.servers.get(self.endpoint)
        if self.server is None:
            self.attached.clear()
        else:
            self.server.peers[self.name] = self

    def _arrive(self) -> None:
        if self.server is not None and self._on_way:
            frames = self._on_way.popleft()
            if longest := max((len(frame) for frame in frames[1:] if len(frame) > self._network.max_frame), default=0):
                self._network.loop.failure = Wrong(f"a frame of {longest} bytes, and ZeroMQ ends a connection at {self._network.max_frame}")
            self.server.put([self.name, *frames])
            self._room.set()

    def _receive(self, frame: bytes) -> None:
        if self.server is not None and self.is_open:
            self._received.put_nowait(frame)
