"""The writer's voice to the world: the cells that changed, once they are stored."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self

import zmq

from tokiod.bus import wire
from tokiod.bus.server_socket import Listening
from tokiod.bus.wire import Stored
from tokiod.metrics import catalogue

if TYPE_CHECKING:
    from collections import Counter

    from tokiod.batch import Batch
    from tokiod.bus.curve import Guard
    from tokiod.bus.wire import Frame

HIGH_WATER = 1000
"""Messages that wait for one who does not read. They are the same for all, so a hundred of those cost hardly more than one."""
BURST = 256
"""Subscriptions read in one poll, so that a flood of them can't keep the writer from storing."""
LONGEST_TOPIC = 1024
"""Bytes that a subscriber may say at once; libzmq ends the connection of one who says more, for it keeps some 100 bytes for each."""


class Feed:
    """Publish stored cells to whoever listens, and never wait for them.

    PUB drops what a slow subscriber doesn't take, and a new one has missed everything so far; both are fine as long as they know it.
    That dropping began is counted (tokiod_feed_fell_behind_total); of which subscriber, and of how many messages, libzmq doesn't tell.
    So each topic is numbered without holes within an epoch (a run of the writer), and the last number and watermark are said again by
    every heartbeat and to every new subscriber. What was missed is in the file.
    XPUB because it tells of subscriptions; verbose, or a second subscriber to the same topic would go unnoticed. `subscriptions` are the
    topics that anybody asks for: they are not counted, because a stranger can unsubscribe from what he never subscribed to.
    malformed: messages that are neither a subscription nor its end.
    """

    def __init__(self, endpoint: str, epoch: str, *, high_water: int = HIGH_WATER, guard: Guard | None = None) -> None:
        self.epoch = epoch
        self.subscriptions: set[bytes] = set()
        self.malformed = 0
        self._newcomers = 0
        self._last: dict[tuple[str, str], Stored] = {}
        options: dict[int, int] = {
            zmq.XPUB_VERBOSE: 1,
            zmq.XPUB_NODROP: 1,
            zmq.SNDHWM: high_water,
            zmq.RCVHWM: BURST,
            zmq.MAXMSGSIZE: LONGEST_TOPIC,
        }
        self._listening = Listening("feed", zmq.XPUB, endpoint, guard, options)

    @property
    def refused(self) -> Counter[str]:
        """Connections that were not let in, by reason (tokiod.bus.zap.REASONS)."""
        return self._listening.refused

    def readmit(self) -> None:
        """Read again who may subscribe, and end all connections where somebody may not any more. Raises ConfigError."""
        if self._listening.readmit():
            self.subscriptions.clear()

    def publish(self, system: str, batch: Batch, watermark: int) -> None:
        """Tell of cells that are stored; a value of NaN has become missing again. watermark: the source's, after it."""
        self._heed_all()
        last = self._last.get((system, batch.dataset))
        stored = self._last[system, batch.dataset] = Stored(self.epoch, last.sequence + 1 if last else 1, watermark)
        if self.subscriptions:
            self._say(wire.encode(system, batch, stored=stored))
            catalogue.FEED_PUBLISHED.inc()

    def poll(self) -> int:
        """Read who comes and goes, tell newcomers the last of every topic, and return how many subscriptions were made since the last time.

        Here alone, and not between the datasets of a window: all hear it, so a crowd that comes would be told as often as it is large.
        """
        self._heed_all()
        newcomers, self._newcomers = self._newcomers, 0
        if newcomers:
            catalogue.FEED_SUBSCRIPTIONS.inc(by=newcomers)
            self.beat()
        return newcomers

    def beat(self) -> None:
        """Say the last of every topic again."""
        if self.subscriptions:
            for (system, dataset), stored in self._last.items():
                self._say(wire.encode_heartbeat(system, dataset, stored))

    def close(self) -> None:
        """Unbind."""
        self._listening.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _say(self, message: list[Frame]) -> None:
        """Send to all who take it. With NODROP, libzmq first refuses what somebody has no room for; whom it drops from, it knows then."""
        socket = self._listening.socket
        try:
            socket.send_multipart(message, zmq.NOBLOCK)
        except zmq.Again:
            catalogue.FEED_FELL_BEHIND.inc()
            socket.setsockopt(zmq.XPUB_NODROP, 0)
            socket.send_multipart(message, zmq.NOBLOCK)
            socket.setsockopt(zmq.XPUB_NODROP, 1)

    def _heed_all(self) -> None:
        with suppress(zmq.Again):
            for _ in range(BURST):
                self._newcomers += self._heed(self._listening.socket.recv(zmq.NOBLOCK))
        catalogue.FEED_TOPICS.set(len(self.subscriptions))

    def _heed(self, message: bytes) -> bool:
        """Note a subscription or its end; tells whether it is a subscription."""
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
