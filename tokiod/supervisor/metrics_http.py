"""Metrics and health by HTTP: /metrics for Prometheus, /healthz and /readyz for whoever restarts and pages.

    /healthz   200 alive, 200 degraded: ... (a source is stale, which no restart heals), 503 dead: ...
    /readyz    200 ready, 503 not ready: ...

Everything is read only. It never ends the daemon: an address that is taken is tried again, a client that hangs is thrown out.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog

from tokiod.clock import SystemClock
from tokiod.metrics import catalogue
from tokiod.metrics import shared_files as counting
from tokiod.supervisor.metrics_snapshot import Health, Now, Watch, said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tokiod.clock import Clock
    from tokiod.config.load import Config

    Answer = tuple[str, str]
    Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

__all__ = ["Health", "Server", "serve"]

log = structlog.get_logger()

AGAIN = 30.0
"""Seconds until an address that can't be had is tried again."""
MOST = 16
"""Connections at once; one more ends the oldest."""
LONGEST = 10.0
"""Seconds after which a connection is ended, whatever it does."""
SILENCE = 5.0
"""Seconds that a client may take for its next word."""
BEAT = 0.25


def serve(config: Config, health: Callable[[], Health], clock: Clock | None = None) -> Server | None:
    """Begin to serve in a thread, before the children are started; None where the configuration has no metrics.

    health is called by that thread's threads, at every request.
    """
    if config.metrics is None:
        return None
    try:
        counting.clear(config.run / "metrics", catalogue.ROLES)
    except OSError as error:
        log.warning("metrics.failed", reason=f"nothing is counted: {error}")
    return Server(config.metrics.address, Watch(config, clock or SystemClock()), health)


class Server:
    """Serves until close()."""

    def __init__(self, address: str, watch: Watch, health: Callable[[], Health]) -> None:
        self._address = address
        self._watch = watch
        self._ended: Counter[str] = Counter()
        self._application = application(watch, health, self._ended)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def reload(self, config: Config) -> None:
        """Tell of the sources of another configuration from now on; the address stays."""
        self._watch.config = config

    def close(self) -> None:
        """Stop; requests that are being answered are left to end with the process."""
        self._closing.set()
        self._thread.join(4 * BEAT)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                with _Listener(self._address, self._application, self._ended) as listener:
                    log.info("metrics.serving", address=self._address)
                    while not self._closing.is_set():
                        listener.handle_request()
                        listener.end_the_overdue()
            except OSError as error:
                reason = f"{self._address} can't be had: {error.strerror or error}; tried again every {AGAIN:.0f} s"
                log.warning("metrics.failed", reason=reason)
                self._closing.wait(AGAIN)


def application(watch: Watch, health: Callable[[], Health], ended: Counter[str]) -> Application:
    """Return the WSGI application. ended: connections that were, by reason."""
    from prometheus_client import CollectorRegistry, make_wsgi_app  # noqa: PLC0415 - only where somebody wants metrics

    def known() -> Health:
        try:
            return health()
        except Exception as error:  # noqa: BLE001 - who can't say how it does is not well
            return Health(alive=False, ready=False, reason=f"it can't be told: {error}")

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Now(watch, known, ended))
    scrape, one_at_a_time = make_wsgi_app(registry), threading.Lock()

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        try:
            match environ["PATH_INFO"]:
                case "/metrics":
                    with one_at_a_time:
                        body: Iterable[bytes] = scrape(environ, start)
                    return body
                case "/healthz":
                    return _said(start, *_alive(known(), watch))
                case "/readyz":
                    return _said(start, *_ready(known()))
            return _said(start, "404 Not Found", "there are /metrics, /healthz and /readyz")
        except Exception as error:
            log.exception("metrics.failed", reason=str(error))
            return _said(start, "500 Internal Server Error", "a fault in tokiod, see its log")

    return answer


def _alive(health: Health, watch: Watch) -> Answer:
    if not health.alive:
        return "503 Service Unavailable", f"dead: {health.reason}"
    if (seen := watch.latest()) is None:
        return "200 OK", "degraded: the ledger can't be read"
    return "200 OK", f"degraded: stale: {said(seen.stale)}" if seen.stale else "alive"


def _ready(health: Health) -> Answer:
    return ("200 OK", "ready") if health.ready else ("503 Service Unavailable", f"not ready: {health.reason}")


def _said(start: Callable[..., Any], status: str, text: str) -> Iterable[bytes]:
    body = f"{text}\n".encode()
    start(status, [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")])
    return [body]


# A thread for each connection, so that nobody waits for a slow one; and an end to each, or MOST slow ones would be all there are.
class _Listener(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 4 * MOST
    timeout = BEAT

    def __init__(self, address: str, answer: Application, ended: Counter[str]) -> None:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._ended = ended
        self._begun: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__((host, int(port)), _Handler)
        self.set_app(answer)

    def server_bind(self) -> None:
        # HTTPServer's would ask for the host's name, which may take a minute.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]  # of an IP socket
        self.setup_environ()

    def verify_request(self, request: Any, _client: Any) -> bool:
        """Make room for one more. What was ended may take a moment to notice."""
        with self._lock:
            oldest = sorted(self._begun.items(), key=lambda item: item[1])[: len(self._begun) - MOST + 1]
            for other, _ in oldest if len(self._begun) >= MOST else ():
                _end(other)
            if has_room := len(self._begun) < 2 * MOST:
                self._begun[request] = time.monotonic()
            else:
                self._ended["many"] += 1
        return has_room

    def end_the_overdue(self) -> None:
        with self._lock:
            for request, begun in self._begun.items():
                if time.monotonic() - begun > LONGEST:
                    _end(request)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._begun.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, _request: Any, client_address: Any) -> None:
        """Somebody was silent, hung up, or was thrown out."""
        with self._lock:
            self._ended["hung"] += 1
        log.debug("metrics.hung_up", client=str(client_address))


class _Handler(WSGIRequestHandler):
    timeout = SILENCE

    def log_message(self, *_: Any) -> None:
        """Tell nobody of each request."""


def _end(request: socket.socket) -> None:
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)
