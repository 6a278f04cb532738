"""Rows as keyed messages in topics of Kafka: docs/sinks-kafka.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.kafka.config import Config

if TYPE_CHECKING:
    from sinks.kafka.topic_sink import KafkaSink
    from tokiod.change_sink import SinkSite

__all__ = ["Config", "sink"]


def sink(config: Config, site: SinkSite) -> KafkaSink:
    """Return the sink of a section."""
    from sinks.kafka.topic_sink import KafkaSink  # noqa: PLC0415 - aiokafka is an extra, and slow to import

    return KafkaSink(config, site)
