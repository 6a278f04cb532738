"""The client library of the topics: all rows that a sink of kind kafka sent, and then each change. docs/sinks-kafka.md."""

from tokiod.consume.consumer import Consumer, Event, Stalled
from tokiod.consume.fold import Fold, Update

__all__ = ["Consumer", "Event", "Fold", "Stalled", "Update"]
