"""Sealed days as Parquet files, in a directory or in an S3-compatible store.

config   what a [[sink]] takes     store   where the files are: a directory or a bucket     days   days to files, and their manifests
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.parquet.config import Config

if TYPE_CHECKING:
    from tokiod.change_sink import DaySink, SinkSite

__all__ = ["Config", "sink"]


def sink(config: Config, site: SinkSite) -> DaySink:
    """Return the sink. Raises ConfigError for a secret that is missing."""
    from sinks.parquet.days import ParquetSink  # noqa: PLC0415 - the configuration alone does not need it

    return ParquetSink(config, site)
