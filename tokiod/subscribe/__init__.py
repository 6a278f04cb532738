"""The client library for the feed: follow what a daemon stores, and know what was missed."""

from tokiod.subscribe.subscriber import Follower, Gap, Reader, Stalled, Subscriber, Update

__all__ = ["Follower", "Gap", "Reader", "Stalled", "Subscriber", "Update"]
