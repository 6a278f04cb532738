"""Lustre, as one of its clients sees it: `lfs df` and `lctl dl -t`.

config        what a [[source]] and `archive` take         datasets      outputs to datasets
collector     live: fetch, parse, join                     command       one run of lfs per mount, and of lctl
parse_df      what lfs df prints                           parse_dl      what lctl dl -t prints
homes         the server where each target is at home      to_batches    what was seen at one moment to batches
saved_files   saved outputs                              raw_files     fetched outputs as a saved one
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.lustre.config import Config, Saved

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokiod.collector import Collector, RawSource, SavedCollector, Site

__all__ = ["Config", "Saved", "live", "raw", "saved"]


def live(config: Config, site: Site) -> Collector:
    """Return the collector of a file system that is mounted."""
    from collectors.lustre.collector import Lustre

    return Lustre(config, site)


def saved(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved outputs. Raises TokiodError for a file that cannot be read, and for invalid options."""
    from collectors.lustre.saved_files import opened

    return opened(inputs, options, site)


def raw(config: Config, site: Site) -> RawSource:
    """Return the raw output of the commands."""
    from collectors.lustre.raw_files import RawMoments

    return RawMoments(config, site)
