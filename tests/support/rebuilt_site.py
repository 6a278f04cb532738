"""A site of a few short days, archived with a real sink and a real ledger, whose ledger then gets lost."""

from __future__ import annotations

from contextlib import closing
from typing import ClassVar

import archive_model as model

from tokiod.collector import SourceConfig
from tokiod.config.schema import Config
from tokiod.config.sections import ArchiveConfig
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.testing.clock import FakeClock
from tokiod.tts.live.files import REAL
from tokiod.units import Duration
from tokiod.window_data import WindowMeta
from tokiod.writer.rebuild_ledger import rebuild_if_untrusted

HOUR, DAY = 3600, 86400
SAMPLES = {name: {row: 100 * row + i + 1 for row in range(6 * model.ROWS)} for i, name in enumerate(model.NAMES)}


class Past(SourceConfig, frozen=True):
    """A source that can be asked again, of hourly steps and windows."""

    name: str = "past"
    kind: str = "lmt"
    system: str = "fs"
    window: Duration = Duration(HOUR)
    filled: tuple[str, ...] = (model.COUNTER, model.GAUGE)

    @property
    def step(self):
        return HOUR

    def datasets(self):
        return frozenset(self.filled)


class Now(Past, frozen=True):
    """One that can't."""

    replayable: ClassVar[bool] = False


class Site:
    """Hours are counted from the model's epoch; `now` is the clock's."""

    def __init__(self, directory, *sources):
        archive = ArchiveConfig(path=f"{directory}/%Y-%m-%d/{{system}}.hdf5")
        self.config = Config(timezone="UTC", archive=archive, source=sources or (Past(),))
        self.directory = directory
        self.clock = FakeClock(model.EPOCH)

    @property
    def path(self):
        return self.config.archive.ledger

    def at(self, hours):
        self.clock.jump(model.EPOCH + hours * HOUR - self.clock.time())
        return self

    def start(self, files=REAL):
        """Open the ledger as a writer does when it starts; the caller closes it."""
        ledger = Ledger.open_or_quarantine(self.path, self.clock.time())
        rebuild_if_untrusted(self.config, ledger, self.clock, files)
        return ledger

    def store(self, ledger, first, last, samples=SAMPLES):
        """Store hours of the first source, one window after the other."""
        source = self.config.source[0]
        with closing(model.sink_in(self.directory)) as sink:
            for hour in range(first, last):
                collected = model.window(samples, hour, hour + 1)
                sink.apply(collected)
                assert sink.commit() == []
                meta = WindowMeta(source.name, source.kind, source.system, collected.meta.window)
                ledger.store([StoredEntry(meta, 1)], self.clock.time())

    def stored(self, ledger):
        """What is stored of the first source, in hours."""
        return [((s - model.EPOCH) // HOUR, (e - model.EPOCH) // HOUR) for s, e in ledger.stored(self.config.source[0].name)]

    def lose(self):
        """Delete the ledger and what belongs to it."""
        for path in self.path.parent.glob(f"{self.path.name}*"):
            path.unlink()
