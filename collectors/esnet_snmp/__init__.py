"""ESnet's rates of router interfaces, from its SNMP service or from saved files.

config        what a [[source]] and `archive` take         datasets      directions to datasets, interface names
collector     live: fetch, parse, join                     client        requests to the service over HTTP
parse         answers and saved files to points            to_batches    points to rows and batches
saved_files   saved rates                                raw_files     fetched points as saved rates
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.esnet_snmp.config import Config, Saved

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokiod.collector import Collector, RawSource, SavedCollector, Site

__all__ = ["Config", "Saved", "live", "raw", "saved"]


def live(config: Config, site: Site) -> Collector:
    """Return the collector of ESnet's service."""
    from collectors.esnet_snmp.collector import EsnetSnmp

    return EsnetSnmp(config, site)


def saved(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved rates. Raises TokiodError for a file that cannot be read, and for invalid options."""
    from collectors.esnet_snmp.saved_files import opened

    return opened(inputs, options, site)


def raw(config: Config, site: Site) -> RawSource:
    """Return the raw output of ESnet's service."""
    from collectors.esnet_snmp.raw_files import RawRates

    return RawRates(config, site)
