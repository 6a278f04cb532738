"""The kind of the simulation's sources without a past: tests.simulation.momentary."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from collectors.simulated import Config as Replayable
from collectors.simulated import Saved, saved

from tests.simulation.sources import SOURCES

if TYPE_CHECKING:
    from tests.simulation.sources import SourceCollector
    from tokiod.collector import Site

__all__ = ["Config", "Saved", "live", "saved"]


class Config(Replayable, frozen=True):
    """Datasets of which only the present can be had."""

    replayable: ClassVar[bool] = False


def live(config: Config, site: Site) -> SourceCollector:
    """Return a collector of the source with the section's name."""
    return SOURCES[config.name].collector(site.clock)
