"""The feed: the writer publishes the cells that changed, once they are stored."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import msgspec
import zmq

from tokiod.bus import wire
from tokiod.bus.server_socket import SHARED_SOCKET_MODE, ServerSocket
from tokiod.bus.wire import Stored
from tokiod.metrics import catalogue

if TYPE_CHECKING:
    from tokiod.batch import Batch
    from tokiod.bus.curve import ServerKeys
    from tokiod.bus.wire import Frame

MAX_WAITING_MESSAGES = 1000
"""Of a subscriber that does not read. All subscribers share them, so a hundred that do not read cost hardly more than one."""
MAX_SUBSCRIPTIONS_PER_POLL = 256
"""So that a flood of subscriptions can't keep the writer from storing."""
MAX_SUBSCRIPTION_BYTES = 1024
"""Of a message from a subscriber; libzmq ends the connection of one that sends more, because it keeps memory for each subscription."""


class Feed:
    """Publish stored cells to all subscribers, and never wait for them.

    PUB drops what a slow subscriber does not read, and a new one has missed everything so far; both are acceptable as long as they know.
    tokiod_feed_fell_behind_total counts when dropping begins; for which subscriber, and how many messages, libzmq does not report.
    So each topic is numbered without holes within an epoch (a run of the writer). Every heartbeat repeats its last number and watermark,
    also when a client subscribes. What was missed is in the file.
    XPUB because it reports subscriptions; verbose, or it would not report a second subscriber to a topic. `subscriptions` is a set of
    topics, not a count of subscribers, because a client can unsubscribe from what it never subscribed to.
    malformed: messages that are neither a subscription nor its end.
    """

    def __init__(self, endpoint: str, epoch: str, *, high_water: int = MAX_WAITING_MESSAGES, keys: ServerKeys | None = None) -> None:
        self.epoch = epoch
        self.subscriptions: set[bytes] = set()
        self.malformed = 0
        self._new_subscriptions = 0
        self._numbers: Counter[tuple[str, str]] = Counter()
        self._last: dict[tuple[str, str], Stored] = {}
        options: dict[int, int] = {
            zmq.XPUB_VERBOSE: 1,
            zmq.XPUB_NODROP: 1,
            zmq.SNDHWM: high_water,
            zmq.RCVHWM: MAX_SUBSCRIPTIONS_PER_POLL,
            zmq.MAXMSGSIZE: MAX_SUBSCRIPTION_BYTES,
        }
        self._server = ServerSocket("feed", zmq.XPUB, endpoint, keys, options, mode=SHARED_SOCKET_MODE)

    @property
    def refused(self) -> Counter[str]:
        """Connections that were not accepted, by reason (tokiod.bus.zap.REASONS)."""
        return self._server.refused

    def reload_allowed_keys(self) -> None:
        """Read the keys of the subscribers again; end all connections if one is no longer allowed. Raises ConfigError."""
        if self._server.reload_allowed_keys():
            self.subscriptions.clear()

    def publish(self, system: str, batch: Batch, watermark: int) -> None:
        """Publish cells that are stored; a value of NaN has become missing again. watermark: the source's, after them."""
        self._handle_subscriptions()
        topic = system, batch.dataset
        self._numbers[topic] += 1
        stored = self._last[topic] = Stored(self.epoch, self._numbers[topic], watermark)
        if self.subscriptions:
            self._send(wire.encode(system, batch, stored=stored))
            catalogue.FEED_PUBLISHED.inc()

    def skip(self, system: str, dataset: str) -> None:
        """Leave out a number of a topic, so that subscribers notice that they missed cells: in the files, these changed unpublished."""
        topic = system, dataset
        self._numbers[topic] += 1
        if topic in self._last:
            self._last[topic] = msgspec.structs.replace(self._last[topic], sequence=self._numbers[topic])

    def poll(self) -> int:
        """Handle subscriptions, send new ones the last of every topic, and return how many were made since the last call.

        Only here, and not between the datasets of a window: all subscribers receive it, so a crowd would receive it once per member.
        """
        self._handle_subscriptions()
        count, self._new_subscriptions = self._new_subscriptions, 0
        if count:
            catalogue.FEED_SUBSCRIPTIONS.inc(by=count)
            self.beat()
        return count

    def beat(self) -> None:
        """Repeat the last number and watermark of every topic."""
        if self.subscriptions:
            for (system, dataset), stored in self._last.items():
                self._send(wire.encode_heartbeat(system, dataset, stored))

    def close(self) -> None:
        """Unbind."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, message: list[Frame]) -> None:
        """Send to all subscribers with room for it.

        With NODROP, libzmq refuses a message that one of them has no room for; without, it drops the message for that one only.
        """
        socket = self._server.socket
        try:
            socket.send_multipart(message, zmq.NOBLOCK)
        except zmq.Again:
            catalogue.FEED_FELL_BEHIND.inc()
            socket.setsockopt(zmq.XPUB_NODROP, 0)
            socket.send_multipart(message, zmq.NOBLOCK)
            socket.setsockopt(zmq.XPUB_NODROP, 1)

    def _handle_subscriptions(self) -> None:
        with suppress(zmq.Again):
            for _ in range(MAX_SUBSCRIPTIONS_PER_POLL):
                self._new_subscriptions += self._handle_subscription(self._server.socket.recv(zmq.NOBLOCK))
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
