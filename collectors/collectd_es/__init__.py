"""collectd's documents in Elasticsearch or OpenSearch, as its write_http or Logstash puts them there, or saved pages of them.

fields.py         what a site calls their fields                        series.py     the names of what they measure
documents.py      pages to samples: hits.py, odd.py, stamps.py, tail.py  cells.py      samples to batches
query.py          what is asked; mapping.py: by which names             server.py     one transport for all servers
search.py         page after page; scroll.py, point_in_time.py: how     answers.py    is this all?
collector.py      the join of them; stanza.py: made of a stanza
config.py         what it may be told; metrics.py: which dataset each fills
saved_pages.py    the same over saved pages: pages.py, sliding.py cut them out, parsing.py decodes them, spool.py keeps their samples
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.collectd_es.config import Config, Saved

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokiod.collector import Collector, SavedCollector, Site

__all__ = ["Config", "Saved", "live", "saved"]


def live(config: Config, site: Site) -> Collector:
    """Return the collector of an index that collectd's documents go into."""
    from collectors.collectd_es.stanza import connected

    return connected(config, site)


def saved(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved pages. Raises TokiodError for a file that can't be read, and options that can't be."""
    from collectors.collectd_es.saved_pages import opened

    return opened(inputs, options, site)
