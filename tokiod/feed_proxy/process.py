"""The feed's process: it opens the socket of the subscribers, and ends all connections where they cost too much memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

from tokiod.archive.rights import check_private
from tokiod.bus.curve import feed_server_keys
from tokiod.bus.publisher import Publisher
from tokiod.bus.server_socket import SHARED_SOCKET_MODE
from tokiod.errors import ConfigError
from tokiod.feed_proxy.proxy import FeedProxy
from tokiod.metrics import catalogue
from tokiod.runtime.process_setup import SignalFlag, limit_data, limit_descriptors, spare_descriptors
from tokiod.runtime.resident_memory import ResidentMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokiod.config.schema import Config
    from tokiod.runtime.sd_notify import Notifier

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
OVERLOADED_EXIT_CODE = 1


class FeedProcess:
    """The proxy with its limits. load: reads the configuration, at the start and at each reload, of which only the keys take effect.

    Raises ConfigError, TokiodError for a socket that can't be opened.
    """

    def __init__(self, load: Callable[[], Config], notifier: Notifier, max_resident: int = MAX_RESIDENT_BYTES) -> None:
        self._load, self._notifier, self._max_resident = load, notifier, max_resident
        config = load()
        check_private(config.run)
        self._memory = ResidentMemory()
        catalogue.start_counting(config, "feed")
        external = Publisher(config.feed.endpoint, keys=feed_server_keys(config), mode=SHARED_SOCKET_MODE)
        self.proxy = FeedProxy(config.feed_inner, external)
        self._notified_at = 0.0
        log.info("feed.ready", endpoint=config.feed.endpoint)
        self._notifier.ready()

    def serve(self, stopping: Callable[[], bool], reloading: SignalFlag) -> None:
        """Forward until stopping() is true; then forward what the writer sent last."""
        while not stopping():
            if reloading():
                reloading.clear()
                self.reload()
            self.turn(SignalFlag.wakeup())
        self._notifier.stopping()
        self.proxy.drain()

    def turn(self, wakeup: int | None = None) -> None:
        """Forward once, check the memory, and report progress. wakeup: see FeedProxy.turn()."""
        external = self.proxy.external
        longest = TURN_MS if external.subscriptions else UNWATCHED_MS if external.is_audited else IDLE_MS
        self.proxy.turn(min(longest, int(1000 * self._notifier.interval)), wakeup)
        if self._memory.nbytes() > self._max_resident:
            self._free()
        if (now := time.monotonic()) - self._notified_at >= self._notifier.interval:
            self._notified_at = now
            self._notifier.alive(f"{len(self.proxy.external.subscriptions)} topics subscribed")

    def reload(self) -> None:
        """Read the configuration again: which keys are allowed. Other changes need another process."""
        self._notifier.reloading()
        try:
            with spare_descriptors():
                config = self._load()
                self.proxy.external.reload_allowed_keys()
                catalogue.start_counting(config, "feed")
        except ConfigError as error:
            log.error("config.refused", faults=error.faults)  # noqa: TRY400 - the faults are the whole message
        self._notifier.ready()

    def close(self) -> None:
        """Close the sockets."""
        self.proxy.close()
        self._memory.close()

    def _free(self) -> None:
        """End all connections; end the process where that is not enough."""
        used = self._memory.nbytes()
        with spare_descriptors():
            self.proxy.external.end_connections(f"{used >> 20} MiB of memory are used, the limit is {self._max_resident >> 20} MiB")
        if (still := self._memory.nbytes()) > self._max_resident:
            log.critical("feed.ended", reason=f"{still >> 20} MiB of memory are still used; the feed is started again")
            raise SystemExit(OVERLOADED_EXIT_CODE)


def run(load: Callable[[], Config], notifier: Notifier, stopping: Callable[[], bool], reloading: SignalFlag) -> None:
    """Forward the feed until stopping() is true; read the keys again when reloading() is.

    Raises ConfigError, TokiodError for a socket that can't be opened.
    """
    limit_descriptors(MAX_DESCRIPTORS)
    process = FeedProcess(load, notifier)
    limit_data(MAX_DATA_BYTES)
    try:
        process.serve(stopping, reloading)
    finally:
        process.close()
    log.info("feed.stopped")
