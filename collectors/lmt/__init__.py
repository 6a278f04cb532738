"""LMT, the Lustre Monitoring Tool: what cerebrod stores in MySQL every 5 s, or a copy of that in SQLite.

tables.py     what is read, and which datasets it becomes
stamps.py     local time stamps to UTC
inventory.py  which OSTs, OSSs and MDTs the file system has
cells.py      rows to batches
database.py   what is asked of a database: sqlite.py (and copy.py), mysql.py
collector.py  the join of them; config.py: what it may be told; stanza.py: made of that
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.lmt.config import Config, Saved

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokiod.collector import Collector, SavedCollector, Site

__all__ = ["Config", "Saved", "live", "saved"]


def live(config: Config, site: Site) -> Collector:
    """Return the collector of a database that LMT is filling."""
    from collectors.lmt.stanza import connected

    return connected(config, site)


def saved(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved copies, or of a server that is read as it stands; local times are in the site's time zone.

    Raises TokiodError for a file that is missing or not SQLite, and for a URL that is none of LMT's.
    """
    from collectors.lmt.stanza import opened

    return opened(inputs, options, site)
