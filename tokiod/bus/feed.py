"""The writer's voice to the world: the cells that changed, once they are stored."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self

import zmq

from tokiod import metrics, sample
from tokiod.errors import TokiodError
from tokiod.sample import Stored

if TYPE_CHECKING:
    from tokiod.sample import Batch

HIGH_WATER = 1000
BURST = 256
"""Subscriptions read in one poll, so that a flood of them can't keep the writer from storing."""


class Feed:
    """Publish stored cells to whoever listens, and never wait for them.

    PUB drops what a slow subscriber doesn't take, and a new one has missed everything so far; both are fine as long as they know it.
    So each topic is numbered without holes within an epoch (a run of the writer), and the last number and watermark are said again by
    every heartbeat and to every new subscriber. What was missed is in the file.
    XPUB because it tells of subscriptions; verbose, or a second subscriber to the same topic would go unnoticed. `subscriptions` are the
    topics that anybody asks for: they are not counted, because a stranger can unsubscribe from what he never subscribed to.
    """

    def __init__(self, endpoint: str, epoch: str, *, high_water: int = HIGH_WATER) -> None:
        self.epoch = epoch
        self.subscriptions: set[bytes] = set()
        self._last: dict[tuple[str, str], Stored] = {}
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._socket.sndhwm = high_water
        self._socket.linger = 0
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise TokiodError(
                f"the feed can't be opened at {endpoint}: {zmq.strerror(error.errno or 0)}; its directory must be there and writable"
            ) from None

    def publish(self, system: str, batch: Batch, watermark: int) -> None:
        """Tell of cells that are stored; a value of NaN has become missing again. watermark: the source's, after it."""
        self.poll()
        last = self._last.get((system, batch.dataset))
        stored = self._last[system, batch.dataset] = Stored(self.epoch, last.sequence + 1 if last else 1, watermark)
        if self.subscriptions:
            self._socket.send_multipart(sample.encode(system, batch, stored=stored))
            metrics.PUBLISHED.inc()

    def poll(self) -> int:
        """Read who comes and goes, tell newcomers the last of every topic, and return how many subscriptions were made."""
        newcomers = 0
        with suppress(zmq.Again):
            for _ in range(BURST):
                newcomers += self._heed(self._socket.recv(zmq.NOBLOCK))
        if newcomers:
            metrics.SUBSCRIBED.inc(by=newcomers)
            self.beat()
        metrics.TOPICS.set(len(self.subscriptions))
        return newcomers

    def beat(self) -> None:
        """Say the last of every topic again."""
        if self.subscriptions:
            for (system, dataset), stored in self._last.items():
                self._socket.send_multipart(sample.encode_heartbeat(system, dataset, stored))

    def close(self) -> None:
        """Unbind."""
        self._context.destroy(linger=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _heed(self, message: bytes) -> bool:
        """Note a subscription or its end; tells whether it is a subscription."""
        match message[:1]:
            case b"\x01":
                self.subscriptions.add(message[1:])
                return True
            case b"\x00":
                self.subscriptions.discard(message[1:])
        return False
