"""Forward what the writer publishes to the subscribers, and bound what they can cost.

    writer, XPUB ──Unix socket of the daemon's user──► XSUB, this process, XPUB ──feed.endpoint──► subscribers

The writer numbers the messages and repeats the last numbers every second. What is lost on the way, also while this process is down, is a
hole in the numbers, so subscribers find it as they find all losses. Nothing is kept here but the last number of each topic, which a new
subscriber receives at once. Without subscribers the writer sends nothing.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import zmq

from tokiod.bus.header import decode_header
from tokiod.bus.publisher import MAX_WAITING_MESSAGES, Publisher
from tokiod.errors import Malformed
from tokiod.metrics import catalogue

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_MESSAGES_PER_TURN = 256
"""So that a busy writer can't keep this process from its subscribers."""
DRAIN_SECONDS, DRAIN_LIMIT_SECONDS = 0.1, 2.0
"""At the end: silence of the writer after which all that it sent was forwarded; and the limit."""
LINGER_MS = 1000
"""At the end, for messages on their way to subscribers."""


class FeedProxy:
    """Both ends of the feed's process.

    inner: the endpoint of the writer, whose messages that can't be decoded are dropped; external: the socket of the subscribers.
    """

    def __init__(self, inner: str, external: Publisher) -> None:
        self.external = external
        self._is_following = False
        self._context = zmq.Context()
        self._inner = self._context.socket(zmq.XSUB)
        self._inner.linger = 0
        self._inner.rcvhwm = MAX_WAITING_MESSAGES
        self._inner.connect(inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def turn(self, timeout_ms: int, wakeup: int | None = None) -> int:
        """Forward messages and handle subscriptions, after waiting at most so long; return how many messages were forwarded.

        wakeup: a descriptor that ends the waiting once it can be read.
        """
        waited_for = (self._inner, self.external.socket, *(() if wakeup is None else (wakeup,)))
        zmq.zmq_poll([(one, zmq.POLLIN) for one in waited_for], timeout_ms)
        self.external.poll()
        if self.external.subscriptions and not self._is_following:
            # From then on always: a client can unsubscribe from what only others subscribed to.
            self._is_following = True
            self._inner.send(b"\x01")
        return self._forward()

    def drain(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Forward what the writer has sent, until it is silent."""
        begun = forwarded = monotonic()
        while (now := monotonic()) < min(forwarded + DRAIN_SECONDS, begun + DRAIN_LIMIT_SECONDS):
            if self.turn(20):
                forwarded = now

    def close(self) -> None:
        """Disconnect from the writer, and close the socket of the subscribers."""
        self._inner.close(0)
        self._context.term()
        self.external.close(LINGER_MS)

    def _forward(self) -> int:
        count = 0
        with suppress(zmq.Again):
            while count < MAX_MESSAGES_PER_TURN:
                frames = self._inner.recv_multipart(zmq.NOBLOCK, copy=False)
                count += 1
                try:
                    header = decode_header([frame.buffer for frame in frames])
                except Malformed:
                    continue
                if header.stored is not None:
                    self.external.note(header.system, header.dataset, header.stored)
                    self.external.send(frames)
                    catalogue.FEED_PUBLISHED.inc(by=header.step > 0)
        return count
