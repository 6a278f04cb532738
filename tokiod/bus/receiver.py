"""The writer's end of the inner bus: whole windows in, acknowledgements out."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import zmq

from tokiod.bus import protocol, wire
from tokiod.bus.reassembly import Arrived, Staging
from tokiod.bus.server_socket import ServerSocket
from tokiod.errors import Malformed, Refusal

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from tokiod.bus.curve import ServerKeys
    from tokiod.bus.wire import Frame, Piece

__all__ = ["Arrived", "Receiver"]

BURST = 256
"""Messages read in one poll, so that a flood of them can't keep the writer from committing."""
LONGEST = 256 << 20
"""Bytes of a message; libzmq ends the connection of one who announces a longer one, for it would make room for it at once."""
FORGET = 60.0
"""Seconds without a word after which a connection is given up, with what was staged of it."""


@dataclass(slots=True)
class _Peer:
    sender: str
    connection: int
    heard: float


class Receiver:
    """Stage pieces of windows until they are whole, hand them over, and tell the collectors what became of them.

    A plain socket in a plain loop: nothing here waits for anybody. ROUTER drops what it can't send, which is fine because a collector
    that misses an answer asks again. Pieces count only on the newest connection of a sender (see Hello): what a connection still
    had under way when it was given up may be read much later, and must not undo what came over the next one.
    Nothing that comes in raises: `dropped` counts it by reason, and a piece whose header can be read is answered with a Reject,
    so that nobody sends it for ever.
    """

    def __init__(
        self,
        endpoint: str,
        epoch: str,
        *,
        max_staged_bytes: int = 256 << 20,
        monotonic: Callable[[], float] = time.monotonic,
        keys: ServerKeys | None = None,
    ) -> None:
        self.epoch = epoch
        self._monotonic = monotonic
        self._staging = Staging(max_staged_bytes)
        self._peers: dict[bytes, _Peer] = {}
        self._server = ServerSocket("bus", zmq.ROUTER, endpoint, keys, {zmq.MAXMSGSIZE: LONGEST, zmq.RCVHWM: BURST})

    @property
    def refused(self) -> Counter[str]:
        """Connections that were not accepted, by reason (tokiod.bus.zap.REASONS)."""
        return self._server.refused

    def reload_allowed_keys(self) -> None:
        """Read the keys of the senders again; end all connections if one is no longer allowed. Raises ConfigError."""
        if self._server.reload_allowed_keys():
            for peer in list(self._peers):
                self._forget(peer)

    @property
    def dropped(self) -> Counter[str]:
        """Messages that were dropped, by reason."""
        return self._staging.dropped

    @property
    def peers(self) -> int:
        """How many collector processes are connected."""
        return len(self._peers)

    @property
    def staged_bytes(self) -> int:
        """Bytes of pieces that wait for the rest of their window."""
        return self._staging.nbytes

    def poll(self, timeout_ms: int) -> list[Arrived]:
        """Read what has come, waiting at most so long for the first message, and return the windows that are whole now."""
        arrived = []
        if self._server.socket.poll(timeout_ms):
            with suppress(zmq.Again):
                for _ in range(BURST):
                    window = self._read(self._server.socket.recv_multipart(zmq.NOBLOCK, copy=False))
                    if window:
                        arrived.append(window)
        self._forget_the_silent()
        return arrived

    def ack(self, arrived: Arrived, cells: int, dropped: dict[str, int]) -> None:
        """Say that a window is stored: only after its file is synced and the ledger has it."""
        piece = arrived.piece
        self._send(arrived.peer, protocol.Ack(self.epoch, piece.source, piece.start, piece.end, piece.attempt, cells, dropped))

    def refuse(self, arrived: Arrived, refusal: Refusal) -> None:
        """Answer that a window is not stored, and when it may be collected again."""
        self._refuse(arrived.peer, arrived.piece, refusal)

    def beat(self) -> None:
        """Tell every collector that the writer lives."""
        self._send_all(protocol.Beat(self.epoch))

    def reload(self) -> None:
        """Tell every collector to read the ledger again."""
        self._send_all(protocol.Reload(self.epoch))

    def close(self) -> None:
        """Unbind; what was not acknowledged is the collectors' to send again."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, frames: Sequence[zmq.Frame]) -> Arrived | None:
        message: list[Frame] = [frame.buffer for frame in frames[1:]]
        try:
            return self._take(frames[0].bytes, message)
        except Malformed as error:
            self.dropped[error.reason] += 1
            return None

    def _take(self, peer: bytes, message: list[Frame]) -> Arrived | None:
        if len(message) == 1:
            self._welcome(peer, protocol.decode_hello(message[0]))
            return None
        if peer not in self._peers:
            raise Malformed("hello", "a piece on a connection that did not say Hello, or an old one")
        self._peers[peer].heard = self._monotonic()
        header = wire.decode_header(message)
        try:
            arrived = self._staging.add(peer, header, wire.decode_batch(header, message))
        except Malformed as error:
            if header.piece:
                self._staging.settle(peer, header.piece)
                self._refuse(peer, header.piece, Refusal(str(error), "never"))
            raise
        for partial in self._staging.pop_excess():
            self._refuse(partial.peer, partial.piece, Refusal(f"over {self._staging.max_bytes} bytes of incomplete windows", "retry"))
        return arrived

    def _welcome(self, peer: bytes, hello: protocol.Hello) -> None:
        others = [(known, it) for known, it in self._peers.items() if it.sender == hello.sender and known != peer]
        if any(it.connection > hello.connection for _, it in others):
            raise Malformed("hello", "a Hello of a connection that was given up")
        for known, _ in others:
            self._forget(known)
        answer = protocol.Beat(self.epoch) if peer in self._peers else protocol.Welcome(self.epoch)
        self._peers[peer] = _Peer(hello.sender, hello.connection, self._monotonic())
        self._send(peer, answer)

    def _forget_the_silent(self) -> None:
        limit = self._monotonic() - FORGET
        for peer in [peer for peer, it in self._peers.items() if it.heard < limit]:
            self._forget(peer)

    def _forget(self, peer: bytes) -> None:
        del self._peers[peer]
        self._staging.forget(peer)

    def _refuse(self, peer: bytes, piece: Piece, refusal: Refusal) -> None:
        self._send(peer, protocol.Reject.of(self.epoch, piece, refusal))

    def _send_all(self, message: protocol.FromWriter) -> None:
        for peer in self._peers:
            self._send(peer, message)

    def _send(self, peer: bytes, message: protocol.FromWriter) -> None:
        with suppress(zmq.Again):
            self._server.socket.send_multipart([peer, protocol.encode(message)], zmq.NOBLOCK)
