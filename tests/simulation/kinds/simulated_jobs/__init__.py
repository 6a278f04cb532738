"""The kind of the jobs of the simulation: the collector of lustre_jobstats, over servers that tests.simulation.jobs plays."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from collectors.lustre_jobstats.collector import JobStats
from collectors.lustre_jobstats.config import Config as Servers
from collectors.lustre_jobstats.config import Saved
from tests.simulation.jobs import SERVERS

if TYPE_CHECKING:
    from tokiod.collector import Collector, Site

__all__ = ["Config", "Saved", "live", "saved"]


class Config(Servers, frozen=True):
    """The servers."""

    selected_by: ClassVar[tuple[str, ...]] = ()


def live(config: Config, site: Site) -> Collector:
    """Return the collector, with servers that are functions."""
    collector = JobStats(config, site)
    collector._commands = SERVERS[config.name].commands()  # type: ignore[assignment]
    return collector


def saved(*_: object) -> None:
    """Read nothing."""
    raise NotImplementedError
