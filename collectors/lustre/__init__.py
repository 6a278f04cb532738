"""Lustre, as a client of it sees it: `lfs df` and `lctl dl -t`.

df.py        what lfs df prints            dl.py      what lctl dl -t prints
homes.py     which server a target is at home on, and which targets are away
snapshots.py what was seen at one moment, and batches of such
datasets.py  what they fill                config.py    what it may be told
mounted.py   the join of them over the commands; saved_outputs.py: over their saved outputs
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.lustre.config import Config, Saved

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokiod.collector import Collector, SavedCollector, Site

__all__ = ["Config", "Saved", "live", "saved"]


def live(config: Config, site: Site) -> Collector:
    """Return the collector of a file system that is mounted."""
    from collectors.lustre.mounted import Lustre

    return Lustre(config, site)


def saved(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved outputs. Raises TokiodError for a file that can't be read."""
    from collectors.lustre.saved_outputs import opened

    return opened(inputs, options, site)
