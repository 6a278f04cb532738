"""Spectrum Scale (GPFS): what `mmperfmon query` prints.

config            what a [[source]] and `archive` take     datasets          metrics to datasets
collector         live: fetch, parse, join                 command           one run of the command
parse             an output: bytes to tables               parse_legend      what its columns are
parse_rectangles  regular outputs, much faster             parse_timestamps  local time stamps to UTC
series            metrics to columns                       to_batches        tables to batches
saved_files       saved outputs                            saved_inputs      outputs in files, directories and archives
parse_numbers     their numbers, many at once              parse_workers     many outputs, in worker processes
raw_files         fetched outputs as an archive of them
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.mmperfmon.config import Config, Saved

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokiod.collector import Collector, RawSource, SavedCollector, Site

__all__ = ["Config", "Saved", "live", "raw", "saved"]


def live(config: Config, site: Site) -> Collector:  # noqa: ARG001 - mmperfmon is queried in UTC
    """Return the collector that runs mmperfmon."""
    from collectors.mmperfmon.collector import connected

    return connected(config)


def saved(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved outputs. Raises TokiodError for a file that cannot be read, and for invalid options."""
    from collectors.mmperfmon.saved_files import opened

    return opened(inputs, options, site)


def raw(config: Config, site: Site) -> RawSource:
    """Return the raw output of mmperfmon."""
    from collectors.mmperfmon.raw_files import RawOutputs

    return RawOutputs(config, site)
