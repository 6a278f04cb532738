"""Spectrum Scale (GPFS): what `mmperfmon query` prints.

inputs.py   the outputs in files and archives          legend.py   what columns are
tables.py   an output's tables; rows.py: an odd one's  stamps.py   local time stamps to UTC
metrics.py  which dataset each fills; series.py: where  cells.py    tables to batches
config.py   what it may be told; saved_outputs.py: the join of them over saved outputs, whose rows wait in spool.py; parsing.py: many
queries.py  what is asked; collector.py: the join of them over the command
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.mmperfmon.config import Config, Saved

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokiod.collector import Collector, SavedCollector, Site

__all__ = ["Config", "Saved", "live", "saved"]


def live(config: Config, site: Site) -> Collector:  # noqa: ARG001 - mmperfmon is asked in UTC
    """Return the collector that runs mmperfmon."""
    from collectors.mmperfmon.collector import asking

    return asking(config)


def saved(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved outputs. Raises TokiodError for a file that can't be read, and options that can't be."""
    from collectors.mmperfmon.saved_outputs import opened

    return opened(inputs, options, site)
