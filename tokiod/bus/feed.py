"""The writer's end of the feed: the cells that changed, once they are stored, numbered.

The writer publishes to one subscriber, the feed's own process, on a Unix socket that only the daemon's user can open. That process meets
the external clients (tokiod.feed_proxy).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokiod.batch import Batch, Rows, even_rows
from tokiod.bus import feed_message
from tokiod.bus.header import Stored
from tokiod.bus.publisher import Publisher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MAX_FRAME_BYTES = (2 << 20) - 4096
"""Of a frame of the feed; encryption and framing add less than 4096 bytes."""
MAX_PIECE_CELLS = MAX_FRAME_BYTES // 8


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
                self.send(feed_message.encode(system, part, stored=stored))

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


def cut(batch: Batch) -> Iterator[Batch]:
    """Yield a batch in pieces of which each array, and the names, fit into a frame."""
    groups = _column_groups(batch.columns)
    if len(groups) <= 1:
        yield from _cut_rows(batch)
        return
    for first, end in groups:
        yield from _cut_rows(_columns(batch, first, end))


def _columns(batch: Batch, first: int, end: int) -> Batch:
    """Return the part of a batch that lies in some of its columns."""
    inside = (batch.column >= first) & (batch.column < end)
    column = batch.column[inside] - np.uint32(first)
    part = Batch(batch.dataset, batch.form, batch.step, batch.columns[first:end], batch.time[inside], column, batch.value[inside])
    return replace(part, rows=even_rows(part))


def _cut_rows(batch: Batch) -> Iterator[Batch]:
    width = len(batch.columns)
    if len(batch) <= MAX_PIECE_CELLS:
        yield batch
        return
    cells = MAX_PIECE_CELLS if batch.rows is None else MAX_PIECE_CELLS // width * width
    for first in range(0, len(batch), cells):
        some = slice(first, first + cells)
        time = batch.time[some]
        rows = None if batch.rows is None else Rows(batch.rows.start + first // width * batch.step, len(time) // width)
        yield replace(batch, time=time, column=batch.column[some], value=batch.value[some], rows=rows)


# The names of a source are the same in every window.
@lru_cache(maxsize=64)
def _column_groups(columns: tuple[str, ...]) -> list[tuple[int, int]]:
    """Return [first, end) of each group of columns whose names fit into a frame, and of which one row fits into a frame."""
    groups, first, size = [], 0, 0
    for index, name in enumerate(columns):
        nbytes = len(name.encode()) + 1
        if size + nbytes > MAX_FRAME_BYTES or index - first >= MAX_PIECE_CELLS:
            groups.append((first, index))
            first, size = index, 0
        size += nbytes
    return [*groups, (first, len(columns))]
