"""An aiohttp server with limits: the number of connections, the time until the request, and the time of the whole connection."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MAX_CONNECTIONS = 16
REQUEST_SECONDS = 5.0
CONNECTION_SECONDS = 10.0
ACCEPT_SECONDS = 1.0
"""For a connection that was just accepted, until it has a transport."""


async def stop_accepting(listener: asyncio.Server) -> None:
    """Accept no more connections, and wait for those that were just accepted, which Python 3.11 leaks when the listener closes first."""
    loop = asyncio.get_running_loop()
    for listening in listener.sockets:
        loop.remove_reader(listening.fileno())
    accepted = [task for task in asyncio.all_tasks(loop) if getattr(task.get_coro(), "__name__", "") == "_accept_connection2"]
    if accepted:
        await asyncio.wait(accepted, timeout=ACCEPT_SECONDS)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a server.

    connections: a further one ends the oldest that is not kept; request_seconds: from the connection to the end of the request's headers;
    connection_seconds: after which a connection is ended in any case, unless keep() was called for its request.
    """

    connections: int
    request_seconds: float
    connection_seconds: float


# aiohttp limits the time between requests, but neither the time to the first one nor the number of connections.
class LimitedServer(web.Server):
    """A server that ends connections that are too slow or too many, and calls on_end for each with the reason."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        on_end: Callable[[str], None],
        limits: Limits | None = None,
    ) -> None:
        self._handle = handler
        self._on_end = on_end
        self._limits = limits or Limits(MAX_CONNECTIONS, REQUEST_SECONDS, CONNECTION_SECONDS)
        self._is_closed = False
        self._kept: set[web.RequestHandler] = set()
        self._open: dict[web.RequestHandler, tuple[asyncio.Transport, asyncio.TimerHandle, asyncio.TimerHandle]] = {}
        # aiohttp would log each malformed request as an error with a traceback.
        silent = logging.getLogger("aiohttp.server")
        silent.setLevel(logging.CRITICAL + 1)
        super().__init__(self._request, handler_cancellation=True, access_log=None, logger=silent, lingering_time=0)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Start the limits of a connection; end the oldest one that is not kept if there are too many."""
        super().connection_made(handler, transport)
        if self._is_closed:
            transport.abort()
            return
        if len(self._open) >= self._limits.connections:
            oldest = next((one for one in self._open if one not in self._kept), next(iter(self._open)))
            self._end(oldest, "too many connections")
        after = asyncio.get_running_loop().call_later
        self._open[handler] = (
            transport,
            after(self._limits.request_seconds, self._end, handler, "no request in time"),
            after(self._limits.connection_seconds, self._end, handler, "not finished in time"),
        )

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Forget a connection and its limits."""
        super().connection_lost(handler, exc)
        self._kept.discard(handler)
        for timer in self._open.pop(handler, ())[1:]:
            timer.cancel()

    def keep(self, request: web.BaseRequest) -> None:
        """Keep the connection of a request for as long as its handler runs, which limits the time and the number itself."""
        if (connection := self._open.get(request.protocol)) is not None:
            connection[2].cancel()
            self._kept.add(request.protocol)

    def abort(self) -> None:
        """End all connections, also one that is just being accepted."""
        self._is_closed = True
        for transport, *_ in self._open.values():
            transport.abort()

    async def _request(self, request: web.BaseRequest) -> web.StreamResponse:
        if (connection := self._open.get(request.protocol)) is not None:
            connection[1].cancel()
        response = await self._handle(request)
        response.force_close()
        return response

    def _end(self, handler: web.RequestHandler, reason: str) -> None:
        transport, *timers = self._open.pop(handler)
        self._kept.discard(handler)
        for timer in timers:
            timer.cancel()
        transport.abort()
        self._on_end(reason)
