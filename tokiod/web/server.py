"""The requests of `tokiod web`: GET only, of a client that names this server as its host, each answer with a strict content policy."""

from __future__ import annotations

import asyncio
import time
import zlib
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import structlog
from aiohttp import web
from prometheus_client.exposition import choose_encoder

from tokiod.clock import SystemClock
from tokiod.errors import TokiodError
from tokiod.ledger.database import LedgerError
from tokiod.runtime.host_header import resolved_name
from tokiod.runtime.http_server import LimitedServer, Limits
from tokiod.runtime.log import Repeats
from tokiod.web.client_limits import MAX_VIEWERS, ClientLimits, client_of
from tokiod.web.counts import Counts
from tokiod.web.events import Stream
from tokiod.web.openapi import encoded as openapi_document
from tokiod.web.operations import EVENTS_TYPE, JSON_TYPE, MATRIX_TYPE, OPERATIONS, Operation
from tokiod.web.query import values
from tokiod.web.refusal import (
    ARCHIVE_UNREADABLE,
    BUSY,
    FORBIDDEN_HOST,
    INTERNAL_ERROR,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    OF_LIMITS,
    Refused,
)
from tokiod.web.shared_work import SharedWork

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Hashable

    from tokiod.web.client_limits import Client
    from tokiod.web.views import Parameters, Views

    Handler = Callable[[web.BaseRequest, Parameters], Awaitable[web.StreamResponse]]

log = structlog.get_logger()

T = TypeVar("T")

LIMITS = Limits(connections=2048, request_seconds=10.0, connection_seconds=60.0)
THREADS, MAX_WAITING = 2, MAX_VIEWERS
"""Answers that are read at the same time, and that wait for it: all viewers ask for the same new pixels. Further requests are refused."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
HEARTBEAT_SECONDS = 15.0
UNREAD_SECONDS = 60.0
"""Seconds after which the connection of a viewer that does not read its events is ended. It may connect again."""
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class WebServer:
    """The handlers of all requests. hosts: names besides localhost and IP addresses that a Host header may have; may be replaced."""

    def __init__(self, views: Views, hosts: Collection[str]) -> None:
        self.views, self.hosts = views, frozenset(hosts)
        self.counts, self.stream = Counts(), Stream()
        self.counts.viewers.set_function(lambda: len(self.stream))
        self.counts.feed_up.set_function(lambda: self.stream.is_up)
        self.server = LimitedServer(self._answer, lambda _reason: self.counts.ended.inc(), LIMITS)
        self._work = SharedWork(THREADS)
        self._clients, self._repeats = ClientLimits(), Repeats(SystemClock())
        self._operations = {one.path: one for one in OPERATIONS}
        self._handlers: dict[str, Handler] = {
            "matrix": self._matrix,
            "events": self._events,
            "document": partial(_document, openapi_document()),
            "health": self._healthz,
            "metrics": self._metrics,
            **{one.name: self._json_of(one.view) for one in OPERATIONS if one.view},
        }
        self._files = page_files()
        self._paths = sorted((*self._operations, *self._files))

    def close(self) -> None:
        """End all connections."""
        self.server.abort()
        self._work.close()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path if request.path in self._paths else "other"
        begun = time.monotonic()
        try:
            response = await self._routed(request)
        except Refused as error:
            response = _failed(error)
            if error.kind in OF_LIMITS:
                self.counts.limited.labels(error.kind.name).inc()
        except (TokiodError, LedgerError, OSError) as error:
            if times := self._repeats((path, type(error))):
                log.warning("web.failed", path=path, reason=str(error), times=times)
            response = _failed(Refused(ARCHIVE_UNREADABLE, f"the archive can't be read: {error}"))
        except Exception as error:
            if times := self._repeats((path, type(error))):
                log.exception("web.failed", path=path, reason=str(error), times=times)
            response = _failed(Refused(INTERNAL_ERROR, "internal error: see the log of tokiod web"))
        self.counts.requests.labels(path, str(response.status)).inc()
        if response.content_type != EVENTS_TYPE:
            self.counts.seconds.labels(path).observe(time.monotonic() - begun)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _routed(self, request: web.BaseRequest) -> web.StreamResponse:
        if (name := resolved_name(request.headers.get("Host", ""))) and name not in self.hosts:
            raise Refused(FORBIDDEN_HOST, "the Host header names another server; add its name to [web] hosts")
        if request.method != "GET":
            raise Refused(METHOD_NOT_ALLOWED, "use GET", Allow="GET")
        if (content := self._files.get(request.path)) is not None:
            return _static(*content)
        if (operation := self._operations.get(request.path)) is None:
            raise Refused(NOT_FOUND, f"there are {', '.join(self._paths)}")
        return await self._operated(operation, request)

    async def _operated(self, operation: Operation, request: web.BaseRequest) -> web.StreamResponse:
        handler, limited = self._handlers[operation.name], self._clients.request(client_of(request), time.monotonic())
        if not operation.is_limited:
            return await handler(request, values(request.query, operation.parameters))
        with limited as client:
            given = values(request.query, operation.parameters)
            if operation.content_type != EVENTS_TYPE:
                return await self._sent(request, client, await handler(request, given))
        return await handler(request, given)  # a stream is not among the requests that run at the same time: it has a limit of its own

    async def _sent(self, request: web.BaseRequest, client: Client, response: web.StreamResponse) -> web.StreamResponse:
        """Send an answer while its request still counts, so that one that is not read leaves its client less to ask for."""
        nbytes = len(response.body) if isinstance(response, web.Response) and isinstance(response.body, bytes) else 0
        with self._clients.answer(client, nbytes), suppress(ConnectionError):
            response.headers.update(HEADERS)
            response.force_close()
            await response.prepare(request)
            await response.write_eof()
        return response

    def _json_of(self, view: Callable[[Views, Parameters], Any]) -> Handler:
        """Return the handler of an answer in JSON that a view makes."""

        async def answered(_request: web.BaseRequest, given: Parameters) -> web.Response:
            return _json(await self._read(partial(view, self.views, given), (view, *given.values())))

        return answered

    async def _matrix(self, request: web.BaseRequest, given: Parameters) -> web.Response:
        known_tag = request.headers.get("If-None-Match", "").removeprefix("W/")  # as a proxy marks it that compresses anew
        key = ("matrix", known_tag, *given.values())
        tag, body = await self._read(partial(self.views.matrix, given, known_tag), key)
        headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
        if body is None:
            return web.Response(status=304, headers=headers)
        if _takes_deflate(request.headers.get("Accept-Encoding", "")):
            headers["Content-Encoding"] = "deflate"
        else:
            body = await self._read(partial(zlib.decompress, body))
        return web.Response(body=body, content_type=MATRIX_TYPE, headers=headers)

    async def _events(self, request: web.BaseRequest, given: Parameters) -> web.StreamResponse:
        with self._clients.stream(client_of(request)):
            self.server.keep(request)
            return await self._followed(request, given)

    async def _followed(self, request: web.BaseRequest, given: Parameters) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": EVENTS_TYPE, "Cache-Control": "no-store", **HEADERS})
        viewer = self.stream.join(given["system"], given["dataset"], request.headers.get("Last-Event-ID", ""))
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

    async def _healthz(self, _request: web.BaseRequest, _given: Parameters) -> web.Response:
        try:
            await self._read(self.views.systems)
        except (TokiodError, LedgerError, OSError):
            return _plain("degraded: the archive can't be read")
        return _plain("alive")

    async def _metrics(self, request: web.BaseRequest, _given: Parameters) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self.counts.registry), headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    async def _read(self, work: Callable[[], T], key: Hashable = None) -> T:
        """Call a function that reads files in a thread. Requests with the same key share it. Raises Refused where too many wait."""
        key = object() if key is None else key
        if len(self._work) >= MAX_WAITING and not self._work.waits(key):
            raise Refused(BUSY, f"{MAX_WAITING} requests wait already; try again")
        return await self._work.result(key, work)


def page_files() -> dict[str, tuple[bytes, str]]:
    """Return content and type of the page's files, by their paths in URLs."""
    directory = resources.files("tokiod.web") / "page"
    found = {"/": ((directory / "index.html").read_bytes(), "text/html")}
    for file in directory.iterdir():
        if (kind := _TYPES.get(file.name.rpartition(".")[2])) is not None:
            found[f"/page/{file.name}"] = file.read_bytes(), kind
    return found


def _static(body: bytes, kind: str) -> web.Response:
    response = web.Response(body=body, content_type=kind, charset="utf-8", headers={"Cache-Control": "no-cache"})
    response.enable_compression()
    return response


def _takes_deflate(accepted: str) -> bool:
    """Return whether an Accept-Encoding allows deflate: a weight of zero forbids it."""
    for one in accepted.lower().split(","):
        name, _, weight = one.replace(" ", "").partition(";q=")
        if name == "deflate":
            return not weight or bool(weight.strip("0."))
    return False


async def _document(body: bytes, _request: web.BaseRequest, _given: Parameters) -> web.Response:
    return _static(body, JSON_TYPE)


def _json(value: Any, status: int = HTTPStatus.OK, **headers: str) -> web.Response:
    response = web.Response(
        status=status, body=msgspec.json.encode(value), content_type=JSON_TYPE, headers={"Cache-Control": "no-store", **headers}
    )
    response.enable_compression()
    return response


def _failed(error: Refused) -> web.Response:
    return _json(error.answer, error.kind.status, **error.headers)


def _plain(text: str) -> web.Response:
    return web.Response(text=f"{text}\n", headers={"Cache-Control": "no-store"})
