"""collectd's documents in Elasticsearch or OpenSearch, as write_http or Logstash stores them, or saved pages of them.

config            what a [[source]] and `archive` take     datasets          metrics to datasets, names of fields
collector         live: fetch, parse, join                 client            requests, and the meaning of errors
query             what an index is queried for             search            page after page, by scroll or point in time
parse             pages to samples                         parse_hits        pages to documents
parse_timestamps  ISO 8601 to milliseconds                 series            names to columns
to_batches        samples to batches                       saved_files       saved pages
saved_inputs      pages cut out of files                   parse_workers     pages of large files, in worker processes
raw_files         fetched pages as saved pages
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.collectd_es.config import Config, Saved

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokiod.collector import Collector, RawSource, SavedCollector, Site

__all__ = ["Config", "Saved", "live", "raw", "saved"]


def live(config: Config, site: Site) -> Collector:
    """Return the collector of an index that collectd's documents go into."""
    from collectors.collectd_es.collector import connected

    return connected(config, site)


def saved(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved pages. Raises TokiodError for a file that cannot be read, and for invalid options."""
    from collectors.collectd_es.saved_files import opened

    return opened(inputs, options, site)


def raw(config: Config, site: Site) -> RawSource:
    """Return the raw output of an index."""
    from collectors.collectd_es.raw_files import RawPages

    return RawPages(config, site)
