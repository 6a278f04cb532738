"""LMT, the Lustre Monitoring Tool: what cerebrod stores in MySQL every 5 s, or a copy of that in SQLite.

config            what a [[source]] and `archive` take     datasets          tables and columns to datasets
collector         live: fetch, parse, join                 client            what a database is queried for
client_mysql      a MySQL or MariaDB server                client_sqlite     a SQLite file
sqlite_rights     what a connection to one may do
parse_inventory   OSTs, OSSs, MDSs and MDTs                parse_timestamps  local time stamps to UTC
to_batches        rows to batches                          saved_files       saved copies
raw_files         fetched rows as a copy
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.lmt.config import Config, Saved

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokiod.collector import Collector, RawSource, SavedCollector, Site

__all__ = ["Config", "Saved", "live", "raw", "saved"]


def live(config: Config, site: Site) -> Collector:
    """Return the collector of a database that LMT fills."""
    from collectors.lmt.collector import connected

    return connected(config, site)


def saved(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved copies, or of a server whose data is complete; local times are in the site's time zone.

    Raises TokiodError for a file that is missing or not SQLite, and for an invalid URL.
    """
    from collectors.lmt.saved_files import opened

    return opened(inputs, options, site)


def raw(config: Config, site: Site) -> RawSource:
    """Return the raw output of a database that LMT fills."""
    from collectors.lmt.raw_files import RawTables

    return RawTables(config, site)
