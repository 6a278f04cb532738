"""ESnet's rates of router interfaces.

rows.py   points to rows of the archive      saved.py   the join of them over saved rates
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.esnet_snmp.saved import DATASETS, Saved, saved
from tokiod.collector import SourceConfig
from tokiod.errors import TokiodError
from tokiod.units import Duration

if TYPE_CHECKING:
    from tokiod.collector import Collector, Site

__all__ = ["Config", "Saved", "live", "saved"]


class Config(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """ESnet's service. interfaces: "ROUTER:IFNAME"; interval: between points."""

    interfaces: tuple[str, ...]
    interval: Duration = Duration(30)

    @property
    def step(self) -> int:
        """Seconds between rows."""
        return int(self.interval)

    def datasets(self) -> frozenset[str]:
        """Return both directions."""
        return frozenset(DATASETS.values())

    def faults(self) -> list[str]:
        """Return what is wrong with names and lengths."""
        named = Saved(interface=self.interfaces, interval=self.interval).faults()
        return [fault.replace("interface:", "interfaces:", 1) for fault in named]


def live(config: Config, site: Site) -> Collector:  # noqa: ARG001 - the contract's
    """Return the collector of ESnet's service."""
    raise TokiodError("esnet_snmp: only saved rates can be read yet")
