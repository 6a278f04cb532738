"""Metrics and health over HTTP: /metrics for Prometheus, /healthz and /readyz for service managers and monitoring.

    /healthz   200 alive, 200 degraded: ... (the trouble of sources, which a restart does not heal), 503 dead: ...
    /readyz    200 ready, 503 not ready: ...

Everything is read-only. The server never ends the daemon: it retries an address that is in use, and ends connections that hang.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from tokiod.config.checks import is_loopback
from tokiod.metrics import catalogue, shared_files
from tokiod.reports.status import troubled
from tokiod.runtime.host_header import resolved_name
from tokiod.runtime.http_server import LimitedServer, stop_accepting
from tokiod.supervisor.health import Health
from tokiod.supervisor.metrics_snapshot import ArchiveCollector, Snapshots, join_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokiod.clock import Clock
    from tokiod.config.schema import Config

log = structlog.get_logger()

RETRY_SECONDS = 30.0
"""Seconds until an address that is in use is tried again."""
BACKLOG = 64
CLOSE_SECONDS = 1.0


class MetricsServer:
    """Serve metrics and health at an address, HOST:PORT or [HOST]:PORT, in a thread with its own event loop.

    health: called by threads of the server, at every request.
    """

    def __init__(self, address: str, config: Config, health: Callable[[], Health], clock: Clock) -> None:
        self._address = address
        self._directory = config.run / "metrics"
        self._health = health
        self._snapshots = Snapshots(config, clock)
        self._ended: Counter[str] = Counter()
        self._closing = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        # One thread, because two scrapes at once would take each other's locks for those of a living process.
        self._scraper = ThreadPoolExecutor(1, "scrape")

    def open(self) -> None:
        """Make the files that the processes count in, and begin to serve. Call it before the processes start."""
        try:
            shared_files.clear(self._directory, catalogue.ROLES)
        except OSError as error:
            log.warning("metrics.failed", reason=f"metrics are not counted: {error}")
        self._thread.start()

    def reload(self, config: Config) -> None:
        """Report the sources of another configuration from now on. The address does not change."""
        self._snapshots.config = config

    def close(self) -> None:
        """Stop; requests in progress end with the process."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())
        self._scraper.shutdown(wait=False, cancel_futures=True)

    async def _serve(self) -> None:
        registry = CollectorRegistry()
        registry.register(ArchiveCollector(self._snapshots, self._known_health, self._ended))
        server = LimitedServer(partial(self._respond, registry), self._count_ended)
        while not self._closing.is_set():
            try:
                bound = _bound(self._address)
                listener = await self._loop.create_server(server, sock=bound, backlog=BACKLOG)
            except OSError as error:
                reason = f"cannot listen on {self._address}: {error.strerror or error}; retrying every {RETRY_SECONDS:.0f} s"
                log.warning("metrics.failed", reason=reason)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), RETRY_SECONDS)
            else:
                log.info("metrics.serving", address=self._address)
                await self._closing.wait()
                await stop_accepting(listener)
                listener.close()
                server.abort()

    async def _respond(self, registry: CollectorRegistry, request: web.BaseRequest) -> web.StreamResponse:
        if not _is_own_name(request.headers.get("Host", ""), self._address):
            return _plain(403, "forbidden: use the address of this server, or its host's name, as Host")
        try:
            match request.path:
                case "/metrics":
                    return await self._scrape(registry, request)
                case "/healthz":
                    return _plain(*await asyncio.to_thread(self._liveness))
                case "/readyz":
                    return _plain(*await asyncio.to_thread(self._readiness))
            return _plain(404, "not found: there are /metrics, /healthz and /readyz")
        except Exception as error:
            log.exception("metrics.failed", reason=str(error))
            return _plain(500, "internal error: see the log of tokiod")

    async def _scrape(self, registry: CollectorRegistry, request: web.BaseRequest) -> web.Response:
        if request.method != "GET":
            return _plain(405, "method not allowed: use GET", Allow="GET")
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        names = request.query.getall("name[]", [])
        chosen = registry.restricted_registry(names) if names else registry
        response = web.Response(
            body=await self._loop.run_in_executor(self._scraper, encode, chosen), headers={"Content-Type": content_type}
        )
        response.enable_compression()
        return response

    def _liveness(self) -> tuple[int, str]:
        health = self._known_health()
        if not health.alive:
            return 503, f"dead: {health.reason}"
        if (seen := self._snapshots.latest()) is None:
            return 200, "degraded: the ledger can't be read"
        named = [f"{trouble}: {join_names(names)}" for trouble, names in troubled(seen.status).items()]
        return 200, f"degraded: {'; '.join(named)}" if named else "alive"

    def _readiness(self) -> tuple[int, str]:
        health = self._known_health()
        return (200, "ready") if health.ready else (503, f"not ready: {health.reason}")

    def _known_health(self) -> Health:
        try:
            return self._health()
        except Exception as error:  # noqa: BLE001 - a daemon that cannot report its health is not well
            return Health(alive=False, ready=False, reason=f"its health is unknown: {error}")

    def _count_ended(self, reason: str) -> None:
        self._ended[reason] += 1
        log.debug("metrics.connection_ended", reason=reason)


def _is_own_name(host: str, address: str) -> bool:
    """Return whether a Host header names this server: an IP address, localhost, and beyond loopback this machine's name."""
    name = resolved_name(host)
    return not name or (not is_loopback(address) and name.partition(".")[0] == socket.gethostname().lower().partition(".")[0])


def _bound(address: str) -> socket.socket:
    """Return a socket that is bound to HOST:PORT or [HOST]:PORT. Raises OSError."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
    except OSError:
        listener.close()
        raise
    return listener


def _plain(status: int, text: str, **headers: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers={"Cache-Control": "no-store", **headers})
