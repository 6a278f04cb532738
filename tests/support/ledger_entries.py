"""What tests record in a ledger: sources, stored windows, and windows that are not stored."""

from tokiod.collector import SourceConfig
from tokiod.ledger.ledger import StoredEntry, Unstored
from tokiod.window import Window
from tokiod.window_data import WindowMeta

NOW = 1_517_126_400.0


class Config(SourceConfig, frozen=True):
    @property
    def step(self):
        return 5


def config(name="lmt", system="cscratch", **fields):
    return Config(name=name, kind="lmt", system=system, **fields)


def entry(start, end, source="lmt", cells=10, dropped=None, system="cscratch"):
    return StoredEntry(WindowMeta(source, "lmt", system, Window(start, end), dropped=dropped or {}), cells)


def failure(start, end, state="failed", attempts=1, error="gone", last_try=NOW, next_try=NOW + 5):
    return Unstored("lmt", Window(start, end), state, attempts, "Transient", error, last_try, next_try)
