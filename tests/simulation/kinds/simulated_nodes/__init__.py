"""The kind of the nodes of the simulation: the collector of `nodes`, with a hub that tests.simulation.hub plays."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from collectors.nodes.collector import Nodes
from collectors.nodes.config import Config as OfHub
from collectors.nodes.config import Saved
from tests.simulation.hub import HUBS

if TYPE_CHECKING:
    from tokiod.collector import Collector, Site

__all__ = ["Config", "Saved", "live", "saved"]


class Config(OfHub, frozen=True):
    """The nodes."""

    selected_by: ClassVar[tuple[str, ...]] = ()


def live(config: Config, site: Site) -> Collector:
    """Return the collector, with a connection to the hub in memory."""
    collector = Nodes(config, site)
    collector._hub = collector._lane._peer = HUBS[config.name].client()  # type: ignore[assignment]
    return collector


def saved(*_: object) -> None:
    """Read nothing."""
    raise NotImplementedError
