"""ESnet's rates of router interfaces, as its SNMP service gives them out, or as they were saved.

names.py    interfaces, directions, datasets      points.py   what the service answers
rows.py     points to rows of the archive         batches.py  rows of all interfaces to batches
service.py  what is asked over HTTP, politely     collector.py  the join of them
config.py   what it may be told                   saved_rates.py  the join over saved rates
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.esnet_snmp.config import Config, Saved

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokiod.collector import Collector, SavedCollector, Site

__all__ = ["Config", "Saved", "live", "saved"]


def live(config: Config, site: Site) -> Collector:
    """Return the collector of ESnet's service."""
    from collectors.esnet_snmp.collector import EsnetSnmp

    return EsnetSnmp(config, site)


def saved(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector over saved rates. Raises TokiodError for a file that can't be read, and options that can't be."""
    from collectors.esnet_snmp.saved_rates import opened

    return opened(inputs, options, site)
