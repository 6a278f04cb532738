"""The writer's end of the feed: the cells that changed, once they are stored, numbered.

The writer publishes to one subscriber, the feed's own process, on a Unix socket that only the daemon's user can open. That process meets
the external clients (tokiod.feed_proxy).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from tokiod.bus import wire
from tokiod.bus.header import Stored
from tokiod.bus.pieces import cut
from tokiod.bus.publisher import Publisher

if TYPE_CHECKING:
    from typing import Any

    from tokiod.batch import Batch


class Feed(Publisher):
    """Publish stored cells.

    Each topic is numbered without holes within an epoch (a run of the writer), with and without subscribers. Every heartbeat repeats its
    last number and watermark, also when a client subscribes. What was missed is in the file.
    """

    def __init__(self, endpoint: str, epoch: str, **options: Any) -> None:
        super().__init__(endpoint, **options)
        self.epoch = epoch
        self._numbers: Counter[tuple[str, str]] = Counter()

    def publish(self, system: str, batch: Batch, watermark: int) -> None:
        """Publish cells that are stored; a value of NaN has become missing again. watermark: the source's, after them."""
        self._handle_subscriptions()
        for part in cut(batch):
            self._numbers[system, batch.dataset] += 1
            stored = Stored(self.epoch, self._numbers[system, batch.dataset], watermark)
            self.note(system, batch.dataset, stored)
            if self.subscriptions:
                self.send(wire.encode(system, part, stored=stored))

    # A writer that was killed may have changed cells that it did not publish, and that the next attempt at their window finds in the file.
    def announce(self, system: str, dataset: str, watermark: int) -> None:
        """Let subscribers know of a topic with stored cells before this run publishes any: they notice that they missed some."""
        self._numbers[system, dataset] += 1
        self.note(system, dataset, Stored(self.epoch, self._numbers[system, dataset], watermark))

    def skip(self, system: str, dataset: str) -> None:
        """Leave out a number of a topic, so that subscribers notice that they missed cells: in the files, these changed unpublished."""
        self._numbers[system, dataset] += 1
        if (last := self.last(system, dataset)) is not None:
            self.note(system, dataset, msgspec.structs.replace(last, sequence=self._numbers[system, dataset]))
