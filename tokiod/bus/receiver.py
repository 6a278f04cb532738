"""The writer's end of the inner bus: complete windows in, acknowledgements out."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import msgspec
import zmq

from tokiod.bus import protocol
from tokiod.bus.server_socket import ServerSocket
from tokiod.crossing.codec import decode
from tokiod.crossing.dialogue import VERSION
from tokiod.crossing.parts import MAX_INCOMPLETE_BYTES, PART_BYTES, Joining
from tokiod.errors import Malformed, Refusal
from tokiod.window_data import Collected

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from tokiod.crossing.codec import Frame

__all__ = ["Arrived", "Receiver"]

MAX_MESSAGES_PER_POLL = 256
"""So that a flood of messages can't keep the writer from committing."""
SILENCE_SECONDS = 60.0
"""After which a connection is forgotten, with its incomplete windows."""


Key = tuple[bytes, str, int, int]
"""Of a window: peer, source, start, end."""


class _Peer(msgspec.Struct):
    sender: str
    connection: int
    last_message: float


class Arrived(msgspec.Struct, frozen=True, eq=False):
    """A complete window. head: of the part that came first; peer: its connection."""

    collected: Collected
    head: protocol.Part
    peer: bytes


class Receiver:
    """Join windows, return them to the writer, and answer the collectors.

    A plain socket in a plain loop that never blocks. ROUTER drops what it can't send, which is safe because a collector that misses an
    answer sends the window again. Parts count only on the newest connection of a sender (see Hello): messages of a connection that was
    replaced may be read much later, and must not undo what came over the next one.
    No incoming message raises: `dropped` counts malformed ones by reason. If its header is valid, a malformed part is answered with a
    Reject, so that its collector does not send it again.
    bind: makes the socket at the endpoint. wakeups: what else ends the waiting of poll() once it can be read.
    """

    def __init__(
        self,
        endpoint: str,
        epoch: str,
        *,
        max_incomplete_bytes: int = MAX_INCOMPLETE_BYTES,
        monotonic: Callable[[], float] = time.monotonic,
        bind: Callable[..., ServerSocket] = ServerSocket,
    ) -> None:
        self.epoch = epoch
        self.wakeups: tuple[int | zmq.SyncSocket, ...] = ()
        self._monotonic = monotonic
        self._joining: Joining[Key, protocol.Part] = Joining(max_incomplete_bytes)
        self._peers: dict[bytes, _Peer] = {}
        self._reloads = 0
        options: dict[int, int] = {zmq.MAXMSGSIZE: PART_BYTES, zmq.RCVHWM: MAX_MESSAGES_PER_POLL}
        self._server = bind("bus", zmq.ROUTER, endpoint, None, options)

    @property
    def dropped(self) -> Counter[str]:
        """Messages that were dropped, by reason."""
        return self._joining.dropped

    @property
    def peers(self) -> int:
        """How many collector processes are connected."""
        return len(self._peers)

    @property
    def incomplete_bytes(self) -> int:
        """Bytes of the parts of incomplete windows."""
        return self._joining.nbytes

    def poll(self, timeout_ms: int) -> list[Arrived]:
        """Read messages, after waiting for the first one at most so long, and return the windows that are complete now."""
        arrived = []
        if self._has_message(timeout_ms):
            with suppress(zmq.Again):
                for _ in range(MAX_MESSAGES_PER_POLL):
                    window = self._read(self._server.socket.recv_multipart(zmq.NOBLOCK, copy=False))
                    if window:
                        arrived.append(window)
        self._forget_silent_peers()
        return arrived

    def ack(self, arrived: Arrived, cells: int, dropped: dict[str, int]) -> None:
        """Answer that a window is stored: only after its file is synced and the ledger has recorded it."""
        head = arrived.head
        self._send(arrived.peer, protocol.Ack(self.epoch, head.source, head.start, head.end, head.attempt, cells, dropped))

    def refuse(self, arrived: Arrived, refusal: Refusal) -> None:
        """Answer that a window is not stored, and when it may be collected again."""
        self._refuse(arrived.peer, arrived.head, refusal)

    def beat(self) -> None:
        """Send a sign of life to every collector."""
        self._send_all(protocol.Beat(self.epoch, self._reloads))

    def reload(self) -> None:
        """Ask every collector to read the ledger again, also one that connects later."""
        self._reloads += 1
        self.beat()

    def close(self) -> None:
        """Unbind; the collectors send again what was not acknowledged."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _has_message(self, timeout_ms: int) -> bool:
        socket = self._server.socket
        if not self.wakeups:
            return bool(socket.poll(timeout_ms))
        ready = zmq.zmq_poll([(one, zmq.POLLIN) for one in (socket, *self.wakeups)], timeout_ms)
        return any(one not in self.wakeups for one, _ in ready)

    def _read(self, frames: Sequence[zmq.Frame]) -> Arrived | None:
        message: list[Frame] = [frame.buffer for frame in frames[1:]]
        try:
            return self._handle(frames[0].bytes, message)
        except Malformed as error:
            self.dropped[error.reason] += 1
            return None

    def _handle(self, peer: bytes, message: list[Frame]) -> Arrived | None:
        if not message:
            raise Malformed("control", "a message without a frame")
        said = protocol.decode_from_collector(message[0])
        if isinstance(said, protocol.Hello):
            self._welcome(peer, said)
            return None
        if peer not in self._peers:
            raise Malformed("hello", "a part on a connection without a Hello, or on a replaced one")
        self._peers[peer].last_message = self._monotonic()
        key = peer, said.source, said.start, said.end
        try:
            arrived = self._joined(key, said, message[1:])
        except (Malformed, Refusal) as error:
            self._joining.settle(key, said.attempt)
            self._refuse(peer, said, Refusal(f"source {said.source}: {error}", "never"))
            raise error if isinstance(error, Malformed) else Malformed("size", str(error)) from None
        for excess in self._joining.pop_excess():
            self._refuse(excess.key[0], excess.head, Refusal(f"over {self._joining.max_bytes} bytes of incomplete windows", "retry"))
        return arrived

    def _joined(self, key: Key, head: protocol.Part, frames: list[Frame]) -> Arrived | None:
        """Take a part; return its window if it is complete now. Raises Malformed and Refusal."""
        if head.start >= head.end:
            raise Malformed("window", f"[{head.start}, {head.end}) is no window")
        if (whole := self._joining.add(key, head, frames)) is None:
            return None
        first, content = whole
        data = decode(content)
        return Arrived(Collected(first.meta(data.records, data.dropped), data.batches, data.tables), first, key[0])

    def _welcome(self, peer: bytes, hello: protocol.Hello) -> None:
        if hello.version != VERSION:
            versions = f"the collectors speak version {hello.version} of the wire, the writer speaks {VERSION}"
            self._send(peer, protocol.Refused(self.epoch, f"{versions}: restart the daemon"))
            raise Malformed("version", versions)
        others = [(known, it) for known, it in self._peers.items() if it.sender == hello.sender and known != peer]
        if any(it.connection > hello.connection for _, it in others):
            raise Malformed("hello", "a Hello of a connection that was replaced")
        for known, _ in others:
            self._forget(known)
        is_known = peer in self._peers
        answer = protocol.Beat(self.epoch, self._reloads) if is_known else protocol.Welcome(self.epoch, self._reloads)
        self._peers[peer] = _Peer(hello.sender, hello.connection, self._monotonic())
        self._send(peer, answer)

    def _forget_silent_peers(self) -> None:
        limit = self._monotonic() - SILENCE_SECONDS
        for peer in [peer for peer, it in self._peers.items() if it.last_message < limit]:
            self._forget(peer)

    def _forget(self, peer: bytes) -> None:
        del self._peers[peer]
        self._joining.forget(lambda key: key[0] == peer)

    def _refuse(self, peer: bytes, head: protocol.Part, refusal: Refusal) -> None:
        self._send(peer, protocol.Reject.of(self.epoch, head, refusal))

    def _send_all(self, message: protocol.FromWriter) -> None:
        for peer in self._peers:
            self._send(peer, message)

    def _send(self, peer: bytes, message: protocol.FromWriter) -> None:
        with suppress(zmq.Again):
            self._server.socket.send_multipart([peer, protocol.encode(message)], zmq.NOBLOCK)
