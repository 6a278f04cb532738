"""Compute nodes: what their agents measured, from the hub.

config        what a [[source]] takes             collector   asks for windows
client        the connection to the hub           hub_protocol   its messages
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.nodes.config import Config, Saved
from tokiod.errors import TokiodError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokiod.collector import Collector, SavedCollector, Site

__all__ = ["Config", "Saved", "live", "saved"]


def live(config: Config, site: Site) -> Collector:
    """Return the collector of the nodes that report to the hub."""
    from collectors.nodes.collector import Nodes

    return Nodes(config, site)


def saved(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:  # noqa: ARG001 - the contract's
    """Raise TokiodError: agents keep their rows in memory alone."""
    raise TokiodError(Saved.no_files)
