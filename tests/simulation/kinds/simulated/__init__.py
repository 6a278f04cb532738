"""The kind of source of the simulation: tests.simulation.sources holds what its sources know."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tests.simulation.sources import SOURCES
from tokiod.collector import SavedOptions, SourceConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.sources import SourceCollector
    from tokiod.collector import Site

COUNTER = "datatargets/readbytes"


class Config(SourceConfig, frozen=True):
    """fills: the datasets; max_step: the largest plausible difference of a counter per row."""

    replayable: ClassVar[bool] = True

    fills: tuple[str, ...] = (COUNTER,)
    seconds: int = 3600
    max_step: float = 0.0

    @property
    def step(self) -> int:
        return self.seconds

    def datasets(self) -> frozenset[str]:
        return frozenset(self.fills)

    def max_rates(self) -> Mapping[str, float]:
        return {COUNTER: (self.max_step + 0.5) / self.seconds} if self.max_step and COUNTER in self.fills else {}


class Saved(SavedOptions, frozen=True):
    """The files of a watched folder: tests.simulation.folders. seconds: between two rows."""

    seconds: int = 3600

    @property
    def step(self) -> int:
        return self.seconds

    def datasets(self) -> frozenset[str]:
        return frozenset({COUNTER})


def live(config: Config, site: Site) -> SourceCollector:
    """Return a collector of the source with the section's name."""
    return SOURCES[config.name].collector(site.clock)


def saved(*_: object) -> None:
    """Leave reading to the machine's reader."""
    raise NotImplementedError
