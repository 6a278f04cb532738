"""Several saved copies read as one database."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tokiod.batch import Batch
from tokiod.sample_spans import joined
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collectors.lmt.collector import Lmt
    from tokiod.window import Window


class Copies:
    """Copies of one file system's database, e.g. of a day each; where two hold a cell, the later one named is right."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = True

    def __init__(self, copies: Sequence[Lmt]) -> None:
        self.step = copies[0].step
        self._copies = copies

    async def collect(self, window: Window) -> WindowData:
        """Return a batch per dataset."""
        found = [await copy.collect(window) for copy in self._copies]
        dropped = sum((Counter(data.dropped) for data in found), Counter[str]())
        return WindowData([merged(parts, window) for parts in zip(*(data.batches for data in found), strict=True)], None, dropped)

    async def count(self, window: Window) -> int | None:
        """Return how many rows the copies hold, together."""
        counts = [await copy.count(window) for copy in self._copies]
        return sum(count or 0 for count in counts)

    async def spans(self) -> list[Window]:
        """Return where the copies have time stamps, together."""
        spans = [span for copy in self._copies for span in await copy.spans()]
        return joined(spans)

    async def close(self) -> None:
        """Close the files."""
        for copy in self._copies:
            await copy.close()


def merged(batches: Sequence[Batch], window: Window) -> Batch:
    """Join batches of one dataset: all their columns, and each cell once, the last batch's."""
    first = batches[0]
    columns = tuple(dict.fromkeys(name for batch in batches for name in batch.columns))
    filled = [batch for batch in batches if len(batch)]
    if len(filled) == 1 and filled[0].columns == columns:
        return filled[0]
    position = {name: index for index, name in enumerate(columns)}
    places = [np.array([position[name] for name in batch.columns], np.uint32) for batch in batches]
    time = np.concatenate([batch.time for batch in batches])
    column = np.concatenate([place[batch.column] for place, batch in zip(places, batches, strict=True)])
    value = np.concatenate([batch.value for batch in batches])
    cell = (time - window.start) // first.step * len(columns) + column
    _, last = np.unique(cell[::-1], return_index=True)
    kept = len(cell) - 1 - last
    return Batch(first.dataset, first.form, first.step, columns, time[kept], column[kept], value[kept])
