"""A socket that publishes to subscribers without ever waiting for one, and bounds what they can cost."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self

import structlog
import zmq

from tokiod.bus.header import encode_heartbeat
from tokiod.bus.server_socket import PRIVATE_SOCKET_MODE, ServerSocket
from tokiod.metrics import catalogue

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from tokiod.bus.curve import ServerKeys
    from tokiod.bus.header import Stored
    from tokiod.crossing.codec import Frame

log = structlog.get_logger()

MAX_WAITING_MESSAGES = 1000
"""Of a subscriber that does not read. All subscribers share them, so a hundred that do not read cost hardly more than one."""
MAX_SUBSCRIPTIONS_PER_POLL = 256
"""So that a flood of subscriptions can't keep the process from its other work."""
MAX_SUBSCRIPTION_BYTES, MAX_ENCRYPTED_BYTES = 210, 512
"""Of a message from a subscriber: a topic of 200 bytes in a command of ZeroMQ; with keys also the handshake, which is longer. libzmq ends
the connection of one that sends more."""
MAX_TOPICS, MAX_TOPIC_BYTES = 4096, 256 << 10
"""Of all different topics that subscribers asked for: libzmq keeps a node of some 50 bytes for each byte of a topic, and frees none of them
while the socket is open."""


class Publisher:
    """Publish messages to all subscribers, and never wait for them.

    PUB drops what a slow subscriber does not read, and a new one has missed everything so far; both are acceptable as long as they know.
    So every message has its number, and the last number of each topic is repeated when a client subscribes (tokiod.bus.feed).
    tokiod_feed_fell_behind_total counts when dropping begins; for which subscriber, and how many messages, libzmq does not report.
    XPUB because it reports subscriptions; verbose, or it would not report a second subscriber to a topic. `subscriptions` is a set of
    topics, not a count of subscribers, because a client can unsubscribe from what it never subscribed to.
    malformed: messages that are neither a subscription nor its end. keys: of the subscribers; mode: of a Unix socket; bind: makes the
    socket at the endpoint.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        high_water: int = MAX_WAITING_MESSAGES,
        keys: ServerKeys | None = None,
        mode: int = PRIVATE_SOCKET_MODE,
        bind: Callable[..., ServerSocket] = ServerSocket,
    ) -> None:
        self.subscriptions: set[bytes] = set()
        self.malformed = 0
        self.new_subscriptions = 0
        self._last: dict[tuple[str, str], Stored] = {}
        options: dict[int, int] = {
            zmq.XPUB_VERBOSE: 1,
            zmq.XPUB_NODROP: 1,
            zmq.SNDHWM: high_water,
            zmq.RCVHWM: MAX_SUBSCRIPTIONS_PER_POLL,
            zmq.MAXMSGSIZE: MAX_SUBSCRIPTION_BYTES if keys is None else MAX_ENCRYPTED_BYTES,
        }
        self._server = bind("feed", zmq.XPUB, endpoint, keys, options, mode=mode)

    @property
    def socket(self) -> zmq.SyncSocket:
        """The socket; another one after reload_allowed_keys() and end_connections()."""
        return self._server.socket

    @property
    def is_audited(self) -> bool:
        """Whether more clients can reach the socket than those with a right to its file."""
        return self._server.is_audited

    @property
    def refused(self) -> Counter[str]:
        """Connections that were not accepted, by reason (catalogue.REFUSALS)."""
        return self._server.refused

    def reload_allowed_keys(self) -> None:
        """Read the keys of the subscribers again; end all connections if one is no longer allowed. Raises ConfigError."""
        if self._server.reload_allowed_keys():
            self.subscriptions.clear()

    def end_connections(self, reason: str) -> None:
        """End all connections and free all memory that they cost; subscribers connect again by themselves."""
        log.error("feed.overloaded", reason=reason, action="all subscribers were disconnected; they connect again by themselves")
        catalogue.FEED_OVERLOADS.inc()
        self._server.reopen()
        self.subscriptions.clear()

    def end_unread(self) -> None:
        """End the connections of which too much waits to be read (ServerSocket.end_unread)."""
        self._server.end_unread()

    def poll(self) -> int:
        """Handle subscriptions, send new ones the last of every topic, and return how many were made since the last call.

        Only here, and not between the datasets of a window: all subscribers receive it, so a crowd would receive it once per member.
        """
        self._handle_subscriptions()
        count, self.new_subscriptions = self.new_subscriptions, 0
        if len(self.subscriptions) > MAX_TOPICS or sum(map(len, self.subscriptions)) > MAX_TOPIC_BYTES:
            self.end_connections(f"subscriptions to more than {MAX_TOPICS} topics or {MAX_TOPIC_BYTES >> 10} KiB of them")
        elif count:
            catalogue.FEED_SUBSCRIPTIONS.inc(by=count)
            self.beat()
        return count

    def note(self, system: str, dataset: str, stored: Stored) -> None:
        """Note the last number of a topic. Those of another epoch are forgotten: its numbers and watermarks hold no longer."""
        if self._last and next(iter(self._last.values())).epoch != stored.epoch:
            self._last.clear()
        self._last[system, dataset] = stored

    def last(self, system: str, dataset: str) -> Stored | None:
        """Return the last number of a topic."""
        return self._last.get((system, dataset))

    def beat(self) -> None:
        """Repeat the last number and watermark of every topic."""
        if self.subscriptions:
            for (system, dataset), stored in self._last.items():
                self.send(encode_heartbeat(system, dataset, stored))

    def send(self, message: Sequence[Frame | zmq.Frame]) -> None:
        """Send to all subscribers with room for it.

        With NODROP, libzmq refuses a message that one of them has no room for; without, it drops the message for that one only.
        """
        try:
            self.socket.send_multipart(message, zmq.NOBLOCK)
        except zmq.Again:
            catalogue.FEED_FELL_BEHIND.inc()
            self.socket.setsockopt(zmq.XPUB_NODROP, 0)
            self.socket.send_multipart(message, zmq.NOBLOCK)
            self.socket.setsockopt(zmq.XPUB_NODROP, 1)

    def close(self, linger_ms: int = 0) -> None:
        """Unbind, after messages that wait were sent for at most so long."""
        self._server.close(linger_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _handle_subscriptions(self) -> None:
        with suppress(zmq.Again):
            for _ in range(MAX_SUBSCRIPTIONS_PER_POLL):
                self.new_subscriptions += self._handle_subscription(self._server.receive()[-1].bytes)
        catalogue.FEED_TOPICS.set(len(self.subscriptions))

    def _handle_subscription(self, message: bytes) -> bool:
        """Note a subscription or its end; return whether it is a subscription."""
        match message[:1]:
            case b"\x01":
                self.subscriptions.add(message[1:])
                return True
            case b"\x00":
                self.subscriptions.discard(message[1:])
            case _:
                self.malformed += 1
                catalogue.FEED_MALFORMED.inc()
        return False
