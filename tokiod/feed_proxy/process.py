"""The feed's process: it opens the socket of the subscribers, and ends all connections where they cost too much memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

from tokiod.archive.rights import check_private
from tokiod.bus.curve import feed_server_keys
from tokiod.bus.publisher import Publisher
from tokiod.bus.server_socket import SHARED_SOCKET_MODE
from tokiod.feed_proxy.proxy import FeedProxy
from tokiod.metrics import catalogue
from tokiod.runtime.process_setup import limited, spare_descriptors
from tokiod.runtime.resident_memory import ResidentMemory

if TYPE_CHECKING:
    from tokiod.config.schema import Config
    from tokiod.runtime.service import Service

log = structlog.get_logger()

MAX_DESCRIPTORS = 8192
"""For connections; each subscriber needs one, and each client that has not identified itself, for up to five seconds."""
MAX_RESIDENT_BYTES = 512 << 20
"""Of this process, at which all connections end: messages that wait for subscribers, subscriptions, messages without an end."""
MAX_DATA_BYTES = 1 << 30
"""That the process may allocate beyond what it has at its start, if it grows faster than it looks at its memory: it then ends, and is
started again."""
TURN_MS, UNWATCHED_MS, IDLE_MS = 100, 1000, 10_000
"""How long a turn waits at most: with subscribers; without, where clients over TCP can cost memory that nothing else reports; else."""


class FeedProcess:
    """The proxy with its limits. Raises ConfigError, TokiodError for a socket that can't be opened."""

    def __init__(self, service: Service[Config]) -> None:
        self._service, self._notifier = service, service.notifier
        config = service.load()
        check_private(config.run)
        self._memory = ResidentMemory()
        catalogue.start_counting(config.counters, "feed", config.source)
        external = Publisher(config.feed.endpoint, keys=feed_server_keys(config.feed, config.secrets), mode=SHARED_SOCKET_MODE)
        self.proxy = FeedProxy(config.feed_inner, external)
        self._notified_at = 0.0
        log.info("feed.ready", endpoint=config.feed.endpoint)
        self._notifier.ready()

    def serve(self) -> None:
        """Forward until the service must stop; then forward what the writer sent last."""
        while not self._service.must_stop(self.reload):
            self.turn()
        self._notifier.stopping()
        self.proxy.drain()

    def turn(self) -> None:
        """Forward once, check the memory, and report progress."""
        external = self.proxy.external
        longest = TURN_MS if external.subscriptions else UNWATCHED_MS if external.is_audited else IDLE_MS
        self.proxy.turn(min(longest, int(1000 * self._notifier.interval)), self._service.wakeup)
        self._memory.limit(MAX_RESIDENT_BYTES, external.end_unread, external.end_connections, "feed")
        if (now := time.monotonic()) - self._notified_at >= self._notifier.interval:
            self._notified_at = now
            self._notifier.alive(f"{len(external.subscriptions)} topics subscribed")

    def reload(self) -> None:
        """Read the configuration again: which keys are allowed. Other changes need another process."""
        with self._service.reloading(), spare_descriptors():
            config = self._service.load()
            self.proxy.external.reload_allowed_keys()
            catalogue.start_counting(config.counters, "feed", config.source)

    def close(self) -> None:
        """Close the sockets."""
        self.proxy.close()
        self._memory.close()


def run(service: Service[Config]) -> None:
    """Forward the feed until the service must stop. Raises ConfigError, TokiodError for a socket that can't be opened."""
    with limited(lambda: FeedProcess(service), descriptors=MAX_DESCRIPTORS, data_bytes=MAX_DATA_BYTES) as process:
        process.serve()
    log.info("feed.stopped")
