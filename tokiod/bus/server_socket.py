"""A socket that others connect to: what is bound, who may come, and what no stranger may do to the process behind it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from tokiod.bus.zap import Door
from tokiod.errors import TokiodError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokiod.bus.curve import Guard

MODE = 0o660
"""Of a Unix socket: whoever may write to it may connect."""
BACKLOG = 1024
"""Connections that may come at the same moment: all subscribers, when a writer has been restarted."""
HANDSHAKE = 5_000
"""Milliseconds in which a connection has to say who it is: each costs a descriptor meanwhile."""
UNREAD = 60_000
"""Milliseconds without taking anything, or answering the kernel, until a peer is given up over TCP: its machine is gone, or it doesn't
read. What waits for it is freed, and it may come again."""
IDLE = 10
"""Seconds without a word after which the kernel asks whether the peer's machine lives, and between its questions."""

_OVER_TCP: dict[int, int] = {
    zmq.HANDSHAKE_IVL: HANDSHAKE,
    zmq.TCP_MAXRT: UNREAD,
    # Not ZeroMQ's heartbeats: libzmq 4.3.5 aborts the process that sends one, or answers one, on a connection that broke while its peer, or
    # we, did not read (libzmq issues 4364 and 4841), here and at subscribers who go on after a break.
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: IDLE,
    zmq.TCP_KEEPALIVE_INTVL: IDLE,
    zmq.TCP_KEEPALIVE_CNT: UNREAD // (1000 * IDLE) - 1,
}


class Listening:
    """A bound socket of a kind in a context of its own, with the door's thread where strangers could come: over TCP, or by keys.

    options: of the socket. refused: connections that were not let in, by reason, ever.
    Raises TokiodError where the endpoint can't be had.
    """

    def __init__(self, name: str, kind: int, endpoint: str, guard: Guard | None = None, options: Mapping[int, int] | None = None) -> None:
        self.refused: Counter[str] = Counter()
        self._name, self._kind, self._endpoint, self._guard = name, kind, endpoint, guard
        is_tcp = endpoint.startswith("tcp://")
        self._options: dict[int, int] = {zmq.LINGER: 0, zmq.IPV6: int("[" in endpoint), zmq.BACKLOG: BACKLOG}
        self._options |= (_OVER_TCP if is_tcp else {}) | dict(options or {})
        self._is_watched = is_tcp or guard is not None
        self._open()

    def readmit(self) -> bool:
        """Read again who may come. Where somebody may not any more, all connections are ended: those who may come again by themselves.

        Returns whether that was so. Raises ConfigError, and then all stays as it was.
        """
        if self._guard is None or not self._guard.read():
            return False
        self.close()
        self._open()
        return True

    def close(self) -> None:
        """Unbind, and end all connections."""
        if self._door is not None:
            self.socket.disable_monitor()
        self.socket.close(0)
        if self._door is not None:
            self._door.close()
        self._context.destroy(linger=0)

    def _open(self) -> None:
        self._context = zmq.Context()
        self._door = Door(self._name, self._context, self._guard, self.refused) if self._is_watched else None
        self.socket = self._context.socket(self._kind)
        for option, value in self._options.items():
            self.socket.setsockopt(option, value)
        if self._guard is not None:
            self._guard.secure(self.socket)
        if self._door is not None:
            self._door.watch(self.socket)
        try:
            self.socket.bind(self._endpoint)
            if self._endpoint.startswith("ipc://"):
                # Not by the mask, which is all threads': until now the socket was as the mask has it, which no others can connect to.
                Path(self._endpoint.removeprefix("ipc://")).chmod(MODE)
        except (zmq.ZMQError, OSError) as error:
            self.close()
            told = zmq.strerror(error.errno or 0)
            raise TokiodError(
                f"the {self._name} can't be opened at {self._endpoint}: {told}; its directory must be there and writable"
            ) from None
