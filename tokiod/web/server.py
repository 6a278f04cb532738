"""The requests of `tokiod web`: GET only, of a client that names this server as its host, each answer with a strict content policy."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import structlog
from aiohttp import web
from prometheus_client.exposition import choose_encoder

from tokiod.errors import TokiodError
from tokiod.ledger.database import LedgerError
from tokiod.runtime.host_header import resolved_name
from tokiod.runtime.http_server import LimitedServer, Limits
from tokiod.web.counts import Counts
from tokiod.web.events import Stream
from tokiod.web.query import ErrorBody, GapsQuery, LineQuery, MatrixQuery, Refused, only, refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from tokiod.web.views import Views

    Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

log = structlog.get_logger()

T = TypeVar("T")

LIMITS = Limits(connections=2048, request_seconds=10.0, connection_seconds=60.0)
THREADS, MAX_WAITING = 2, 64
"""Answers that are read at the same time, and that wait for it; further requests are refused."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
EVENTS = "/api/v1/events"
MAX_VIEWERS = 512
HEARTBEAT_SECONDS = 15.0
UNREAD_SECONDS = 60.0
"""Seconds after which the connection of a viewer that does not read its events is ended. It may connect again."""
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
MATRIX_TYPE = "application/vnd.tokiod.matrix"


class WebServer:
    """The handlers of all requests. hosts: names besides localhost and IP addresses that a Host header may have; may be replaced."""

    def __init__(self, views: Views, hosts: Collection[str]) -> None:
        self.views, self.hosts = views, frozenset(hosts)
        self.counts, self.stream = Counts(), Stream()
        self.counts.viewers.set_function(lambda: len(self.stream))
        self.counts.feed_up.set_function(lambda: self.stream.is_up)
        self.server = LimitedServer(self._answer, lambda _reason: self.counts.ended.inc(), LIMITS)
        self._threads = ThreadPoolExecutor(THREADS, "views")
        self._waiting = 0
        self.routes: dict[str, Handler] = {
            "/api/v1/systems": self._systems,
            "/api/v1/matrix": self._matrix,
            "/api/v1/gaps": self._gaps,
            "/api/v1/line": self._line,
            EVENTS: self._events,
            "/healthz": self._healthz,
            "/metrics": self._metrics,
            **{path: partial(_static, *content) for path, content in page_files().items()},
        }

    def close(self) -> None:
        """End all connections."""
        self.server.abort()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path if request.path in self.routes else "other"
        begun = time.monotonic()
        try:
            response = await self._routed(request)
        except Refused as error:
            response = _failed(error.status, error.body, **error.headers)
        except (TokiodError, LedgerError, OSError) as error:
            log.warning("web.failed", path=path, reason=str(error))
            response = _failed(503, ErrorBody("archive_unreadable", f"the archive can't be read: {error}"))
        except Exception as error:
            log.exception("web.failed", path=path, reason=str(error))
            response = _failed(500, ErrorBody("internal_error", "internal error: see the log of tokiod web"))
        self.counts.requests.labels(path, str(response.status)).inc()
        if not response.prepared:
            self.counts.seconds.labels(path).observe(time.monotonic() - begun)
            response.headers.update(HEADERS)
        return response

    async def _routed(self, request: web.BaseRequest) -> web.StreamResponse:
        if (name := resolved_name(request.headers.get("Host", ""))) and name not in self.hosts:
            raise refused(403, "forbidden_host", "the Host header names another server; add its name to [web] hosts")
        if request.method != "GET":
            raise refused(405, "method_not_allowed", "use GET", Allow="GET")
        if (handler := self.routes.get(request.path)) is None:
            raise refused(404, "not_found", f"there are {', '.join(sorted(self.routes))}")
        return await handler(request)

    async def _systems(self, request: web.BaseRequest) -> web.Response:
        only(request.query)
        return _json(await self._read(self.views.systems))

    async def _gaps(self, request: web.BaseRequest) -> web.Response:
        query = GapsQuery.parse(request.query, self.views.now())
        return _json(await self._read(partial(self.views.gaps, query)))

    async def _line(self, request: web.BaseRequest) -> web.Response:
        query = LineQuery.parse(request.query, self.views.now())
        return _json(await self._read(partial(self.views.line, query)))

    async def _matrix(self, request: web.BaseRequest) -> web.Response:
        query = MatrixQuery.parse(request.query, self.views.now())
        tag, body = await self._read(partial(self.views.matrix, query, request.headers.get("If-None-Match", "")))
        headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
        if body is None:
            return web.Response(status=304, headers=headers)
        response = web.Response(body=body, content_type=MATRIX_TYPE, headers=headers)
        response.enable_compression()
        return response

    async def _events(self, request: web.BaseRequest) -> web.StreamResponse:
        only(request.query, "system", "dataset")
        if len(self.stream) >= MAX_VIEWERS:
            raise refused(503, "busy", f"{MAX_VIEWERS} clients follow the events already; try again", Retry_After="60")
        self.server.keep(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", **HEADERS})
        viewer = self.stream.join(
            request.query.get("system", ""), request.query.get("dataset", ""), request.headers.get("Last-Event-ID", "")
        )
        try:
            await response.prepare(request)
            while True:
                async with asyncio.timeout(UNREAD_SECONDS + HEARTBEAT_SECONDS):
                    await response.write((await viewer.next(HEARTBEAT_SECONDS)).encode())
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            self.stream.leave(viewer)
        return response

    async def _healthz(self, request: web.BaseRequest) -> web.Response:
        only(request.query)
        try:
            await self._read(self.views.systems)
        except (TokiodError, LedgerError, OSError):
            return _plain("degraded: the archive can't be read")
        return _plain("alive")

    async def _metrics(self, request: web.BaseRequest) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self.counts.registry), headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    async def _read(self, work: Callable[[], T]) -> T:
        """Call a function that reads files in a thread. Raises Refused where too many requests wait for one."""
        if self._waiting >= MAX_WAITING:
            raise refused(503, "busy", f"{MAX_WAITING} requests wait already; try again", Retry_After="1")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1


def page_files() -> dict[str, tuple[bytes, str]]:
    """Return content and type of the page's files, by their paths in URLs."""
    directory = resources.files("tokiod.web") / "page"
    found = {"/": ((directory / "index.html").read_bytes(), "text/html")}
    for file in directory.iterdir():
        if (kind := _TYPES.get(file.name.rpartition(".")[2])) is not None:
            found[f"/page/{file.name}"] = file.read_bytes(), kind
    return found


async def _static(body: bytes, kind: str, _request: web.BaseRequest) -> web.Response:
    response = web.Response(body=body, content_type=kind, charset="utf-8", headers={"Cache-Control": "no-cache"})
    response.enable_compression()
    return response


def _json(value: Any, status: int = 200, **headers: str) -> web.Response:
    response = web.Response(
        status=status, body=msgspec.json.encode(value), content_type="application/json", headers={"Cache-Control": "no-store", **headers}
    )
    response.enable_compression()
    return response


def _failed(status: int, body: ErrorBody, **headers: str) -> web.Response:
    return _json({"error": body}, HTTPStatus(status).value, **headers)


def _plain(text: str) -> web.Response:
    return web.Response(text=f"{text}\n", headers={"Cache-Control": "no-store"})
