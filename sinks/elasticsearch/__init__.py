"""Rows as documents of Elasticsearch or OpenSearch.

config   what a [[sink]] takes     documents   rows to documents     mapping   templates of the indices     delivery   requests and answers
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.elasticsearch.config import Config

if TYPE_CHECKING:
    from tokiod.change_sink import ChangeSink, SinkSite

__all__ = ["Config", "sink"]


def sink(config: Config, site: SinkSite) -> ChangeSink:
    """Return the sink of a section."""
    from sinks.elasticsearch.delivery import ElasticsearchSink  # noqa: PLC0415 - the configuration alone does not need it

    return ElasticsearchSink(config, site)
