"""What the web process counts of itself, for /metrics. It may not write to the files that the daemon's processes count in."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Counts:
    """The metrics of the web process. Labels have fixed values: the paths that are served, "other", and codes of HTTP."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("tokiod_web_requests_total", "Answers, by path and status.", ["path", "status"], registry=self.registry)
        self.seconds = Histogram(
            "tokiod_web_request_seconds",
            "Seconds from a request to its answer, without streams of events.",
            ["path"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.ended = Counter("tokiod_web_ended_total", "Connections that were ended: too slow or too many.", registry=self.registry)
        self.viewers = Gauge("tokiod_web_viewers", "Clients that follow the events.", registry=self.registry)
        self.feed_up = Gauge("tokiod_web_feed_up", "Whether the feed sends messages.", registry=self.registry)
