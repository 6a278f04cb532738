"""A subscriber of the feed: messages are late and some are lost, and what is missed is read from the files."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tests.simulation.oracle import Wrong, read
from tokiod.errors import TokiodError
from tokiod.ranges import Ranges
from tokiod.subscribe.catch_up import Archive
from tokiod.subscribe.subscriber import Follower, Gap, Reader, Update
from tokiod.window import Calendar, Window, iso

if TYPE_CHECKING:
    import random
    from collections import Counter
    from collections.abc import Mapping

    from tests.simulation.clock import MachineClock
    from tests.simulation.loop import SimulatedLoop
    from tests.simulation.network import Server
    from tests.simulation.sources import Source
    from tokiod.config.schema import Config
    from tokiod.window_data import Collected

LOST = 0.015
"""The share of messages that a slow subscriber loses."""
DELAY_SECONDS = 30.0


class SlowSubscriber:
    """Follows the feed of one system. cells: {(dataset, component, time): value}."""

    def __init__(
        self,
        config: Config,
        sources: Mapping[str, Source],
        loop: SimulatedLoop,
        clock: MachineClock,
        rng: random.Random,
        counts: Counter[str],
    ) -> None:
        self.cells: dict[tuple[str, str, int], float] = {}
        self.sent = {name: Ranges() for name in sources}
        self.loses = True
        self._config, self._sources, self._loop, self._rng, self._counts = config, sources, loop, rng, counts
        self.system = min(source.system for source in sources.values())
        origin = min(source.origin for source in sources.values())
        archive = Archive(config.archive.path, config.timezone, reach=1 << 40, clock=clock)
        self._follower = Follower(Reader(), archive, since=origin)
        self._due = 0.0

    def connect(self, server: Server) -> None:
        """Subscribe at the feed of another run of the writer."""
        server.subscribe(self._receive)

    def note_sent(self, collected: Collected) -> None:
        """Note that the writer has a window: only such windows can be before a watermark."""
        meta = collected.meta
        if collected.tables or meta.source not in self.sent:
            return  # the feed has cells only, and this follows sources that have a past
        self.sent[meta.source].add(meta.window.start, meta.window.end)

    def _receive(self, frames: list[bytes]) -> None:
        if self.loses and self._rng.random() < LOST:
            self._counts["message of the feed lost"] += 1
            return
        self._due = max(self._due, self._loop.now + self._rng.random() * DELAY_SECONDS)
        self._loop.call_at(self._due, self._read, frames)

    def _read(self, frames: list[bytes]) -> None:
        if not frames[0].startswith(f"{self.system}/".encode()):
            return
        try:
            for event in self._follower.read(frames):
                if isinstance(event, Update):
                    self._take(event)
                else:
                    self._counts["gap of the feed"] += isinstance(event, Gap)
        except TokiodError:
            self._counts["file unreadable for a subscriber"] += 1

    def _take(self, update: Update) -> None:
        batch = update.batch
        names = batch.columns
        for time, column, value in zip(batch.time.tolist(), batch.column.tolist(), batch.value.tolist(), strict=True):
            key = batch.dataset, names[column], time
            if math.isnan(value):
                self.cells.pop(key, None)
            else:
                self.cells[key] = value
        self._check_watermark(update)

    def _check_watermark(self, update: Update) -> None:
        source = next(one for one in self._sources.values() if one.system == update.system and update.dataset in one.datasets)
        reached = min(update.watermark, source.end)
        if source.live < reached and not self.sent[source.name].covers(Window(source.live, reached)):
            hole = self.sent[source.name].oldest_hole(source.live, source.end)
            raise Wrong(f"the watermark of {update.dataset} is {iso(update.watermark)}, but {hole} was never sent")

    def check(self) -> None:
        """Compare with the files. Raises Wrong."""
        held: dict[tuple[str, str, int], float] = {}
        calendar, origin = Calendar(self._config.timezone), min(source.origin for source in self._sources.values())
        day, end = calendar.day(origin), max(source.end for source in self._sources.values())
        while day.start < end:
            if (file := read(self._config.archive.file(day, self.system))) is not None:
                held |= {(*key, time): value for key, cells in file.cells.items() for time, value in cells.items()}
            day = calendar.day(day.end)
        if held != self.cells:
            wrong = {k: (self.cells.get(k), held.get(k)) for k in held.keys() | self.cells.keys() if held.get(k) != self.cells.get(k)}
            raise Wrong(f"a subscriber has {len(wrong)} other cells than the files (it, files): {dict(sorted(wrong.items())[:4])}")
