"""A bound socket, and the limits on what unknown clients can cost the process that binds it."""

from __future__ import annotations

import errno
from collections import Counter
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

import zmq

from tokiod.bus.connections import Connections
from tokiod.bus.zap import ConnectionAudit
from tokiod.clock import SystemClock
from tokiod.errors import TokiodError
from tokiod.runtime.process_setup import free_unused_memory
from tokiod.runtime.unix_socket import is_served

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokiod.bus.curve import ServerKeys

PRIVATE_SOCKET_MODE, SHARED_SOCKET_MODE = 0o600, 0o660
"""Of a Unix socket: a client needs the right to write to it."""
MAX_NEW_CONNECTIONS = 1024
"""Connections that may come at the same moment: those of all subscribers, after a restart of the writer."""
HANDSHAKE_MS = 5_000
"""Limit for a handshake: each costs a descriptor meanwhile."""
UNREAD_MS = 60_000
"""Time without reading, or without an answer to the kernel, after which a peer over TCP is disconnected: its machine is gone, or it does
not read. The messages that wait for it are freed; it may connect again."""
KEEPALIVE_SECONDS = 10
"""Silence after which the kernel checks whether the peer's machine is there, and the time between its checks."""

_TCP_OPTIONS: dict[int, int] = {
    zmq.HANDSHAKE_IVL: HANDSHAKE_MS,
    zmq.TCP_MAXRT: UNREAD_MS,
    # Not ZeroMQ's heartbeats: libzmq 4.3.5 aborts a process that sends or answers one on a connection that broke while either side did not
    # read (libzmq issues 4364 and 4841), here and in subscribers that go on after a break.
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: KEEPALIVE_SECONDS,
    zmq.TCP_KEEPALIVE_INTVL: KEEPALIVE_SECONDS,
    zmq.TCP_KEEPALIVE_CNT: UNREAD_MS // (1000 * KEEPALIVE_SECONDS) - 1,
}


MIN_UNREAD_BYTES = 4 << 20
"""Of one connection: what it may have sent that is not read yet, however small the limits of its socket are, when memory is short."""
FREED_SECONDS = 1.0
"""After the end of such a connection, until libzmq has freed its memory."""


class ServerSocket:
    """A bound socket in a context of its own, with an audit of its connections where it is on TCP or has keys.

    kind, options: of the ZeroMQ socket; keys: of the clients that may connect, all where there are none; mode: of a Unix socket.
    refused: connections that were not accepted, by reason, since the process began; is_audited: whether it has that audit. Raises
    TokiodError for an endpoint that can't be bound.
    """

    def __init__(  # noqa: PLR0913 - all of one socket
        self,
        name: str,
        kind: int,
        endpoint: str,
        keys: ServerKeys | None = None,
        options: Mapping[int, int] | None = None,
        *,
        mode: int = PRIVATE_SOCKET_MODE,
    ) -> None:
        self.refused: Counter[str] = Counter()
        self._name, self._kind, self._endpoint, self._keys = name, kind, endpoint, keys
        self._mode = mode
        is_tcp = endpoint.startswith("tcp://")
        self._options: dict[int, int] = {zmq.LINGER: 0, zmq.IPV6: int("[" in endpoint), zmq.BACKLOG: MAX_NEW_CONNECTIONS}
        self._options |= (_TCP_OPTIONS if is_tcp else {}) | dict(options or {})
        self.is_audited = is_tcp or keys is not None
        self._audit: ConnectionAudit | None = None
        self._open()

    def reload_allowed_keys(self) -> bool:
        """Read the allowed keys again; if one is no longer among them, end all connections. Allowed clients reconnect by themselves.

        Returns whether connections were ended. Raises ConfigError, and then changes nothing.
        """
        if self._keys is None or not self._keys.reload():
            return False
        self.reopen()
        return True

    def reopen(self) -> None:
        """End all connections, and return the memory that they cost to the system."""
        self.close()
        free_unused_memory()
        self._open()

    def receive(self) -> list[zmq.Frame]:
        """Return the next message, which counts as read. Raises zmq.Again where there is none."""
        frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        if self._connections is not None:
            # A ROUTER puts the route before what came.
            self._connections.note_read(frames[self._kind == zmq.ROUTER :])
        return frames

    def end_unread(self) -> None:
        """End each connection that has sent more than is ever read late, as the parts of a message that does not end.

        For times when memory is short.
        """
        most = max(MIN_UNREAD_BYTES, 2 * self._options.get(zmq.RCVHWM, 0) * self._options.get(zmq.MAXMSGSIZE, 0))
        if self._audit is not None and self._audit.end_unread(most):
            # libzmq frees what a connection cost in its own time; only then can it be returned to the system.
            timer = Timer(FREED_SECONDS, free_unused_memory)
            timer.daemon = True
            timer.start()

    def close(self, linger_ms: int = 0) -> None:
        """Unbind, and end all connections, after messages that wait were sent for at most so long."""
        if self._audit is not None:
            self.socket.disable_monitor()
        self.socket.close(linger_ms)
        if self._audit is not None:
            self._audit.close()
        self._context.destroy(linger=linger_ms)

    def _open(self) -> None:
        self._context = zmq.Context()
        self._connections = None
        if self._endpoint.startswith("tcp://"):
            self._connections = Connections(int(self._endpoint.rpartition(":")[2]), SystemClock(), has_keys=self._keys is not None)
        audited = self._name, self._context, self._keys, self._connections, self.refused
        self._audit = ConnectionAudit(*audited) if self.is_audited else None
        self.socket = self._context.socket(self._kind)
        for option, value in self._options.items():
            self.socket.setsockopt(option, value)
        if self._keys is not None:
            self._keys.secure(self.socket)
        if self._audit is not None:
            self._audit.watch(self.socket)
        try:
            self._bind()
        except (zmq.ZMQError, OSError) as error:
            self.close()
            remedy = "stop the process that has it" if error.errno == errno.EADDRINUSE else "its directory must exist and be writable"
            reason = zmq.strerror(error.errno or 0)
            raise TokiodError(f"the {self._name} can't be opened at {self._endpoint}: {reason}; {remedy}") from None

    def _bind(self) -> None:
        if not self._endpoint.startswith("ipc://"):
            self.socket.bind(self._endpoint)
            return
        path = Path(self._endpoint.removeprefix("ipc://"))
        # libzmq deletes a socket that it finds there, also that of a running process, which no client would reach any more.
        with suppress(PermissionError):
            if is_served(path):
                raise zmq.ZMQError(errno.EADDRINUSE)
        self.socket.bind(self._endpoint)
        # Not by the umask, which all threads share. Until here the umask applies, which lets no others connect.
        path.chmod(self._mode)
