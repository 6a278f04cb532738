"""What the web process counts of itself, for /metrics. It may not write to the files that the daemon's processes count in."""

from __future__ import annotations

import prometheus_client

from tokiod.metrics.types import Counter, Gauge, Histogram, Metric
from tokiod.web.refusal import OF_LIMITS

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

REQUESTS = Counter(None, "tokiod_web_requests_total", "Answers, by path and status.", path=(), status=())
SECONDS = Histogram(
    None, "tokiod_web_request_seconds", "Seconds from a request to its answer, without streams of events.", _SECONDS, path=()
)
LIMITED = Counter(
    None, "tokiod_web_limited_total", "Requests that a limit refused, by the type of the error.", error=tuple(one.name for one in OF_LIMITS)
)
ENDED = Counter(None, "tokiod_web_ended_total", "Connections that were ended because they were too slow or too many.")
VIEWERS = Gauge(None, "tokiod_web_viewers", "Clients that follow the events.")
FEED_UP = Gauge(None, "tokiod_web_feed_up", "1 while the feed sends messages.")
RELOADS = Counter(None, "tokiod_web_reloads_total", "Configurations that were read again at SIGHUP.", result=("loaded", "refused"))

METRICS: tuple[Metric, ...] = (REQUESTS, SECONDS, LIMITED, ENDED, VIEWERS, FEED_UP, RELOADS)


class Counts:
    """The metrics of the web process. Labels have fixed values: the paths that are served, "other", codes of HTTP, types of errors."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.requests = prometheus_client.Counter(REQUESTS.name, REQUESTS.text, list(REQUESTS.labels), registry=self.registry)
        self.seconds = prometheus_client.Histogram(
            SECONDS.name, SECONDS.text, list(SECONDS.labels), registry=self.registry, buckets=SECONDS.buckets
        )
        self.limited = prometheus_client.Counter(LIMITED.name, LIMITED.text, list(LIMITED.labels), registry=self.registry)
        self.ended = prometheus_client.Counter(ENDED.name, ENDED.text, registry=self.registry)
        self.viewers = prometheus_client.Gauge(VIEWERS.name, VIEWERS.text, registry=self.registry)
        self.feed_up = prometheus_client.Gauge(FEED_UP.name, FEED_UP.text, registry=self.registry)
        self.reloads = prometheus_client.Counter(RELOADS.name, RELOADS.text, list(RELOADS.labels), registry=self.registry)
        for result in ("loaded", "refused"):
            self.reloads.labels(result)
        for one in OF_LIMITS:
            self.limited.labels(one.name)
