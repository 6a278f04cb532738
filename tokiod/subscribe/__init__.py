"""The client library of the feed: follow what a daemon stores, and know what was missed."""

from tokiod.subscribe.catch_up import Archive
from tokiod.subscribe.subscriber import Event, Follower, Gap, Reader, Stalled, Subscriber, Update

__all__ = ["Archive", "Event", "Follower", "Gap", "Reader", "Stalled", "Subscriber", "Update"]
