"""How much one client may ask: requests per second and at the same time, bytes unread, streams of events. Others are served meanwhile.

A client is the address that the reverse proxy adds to X-Forwarded-For, or that of the connection. All processes on the Unix socket that
send no such header are one client: the operating system names none of them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokiod.web.refusal import BUSY, TOO_MANY_REQUESTS, TOO_MANY_STREAMS, TOO_MANY_VIEWERS, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web

REQUESTS_PER_SECOND = 50.0
"""Some ten pages that follow every dataset of a system."""
BURST_REQUESTS = 300
"""A month of days for several datasets at once."""
MAX_AT_ONCE = 32
MAX_UNREAD_BYTES, MAX_UNREAD_BYTES_IN_ALL = 16 << 20, 64 << 20
"""Of answers that a client, or that all of them, have not read yet."""
MAX_VIEWERS = 512
"""Streams of events in all."""
MAX_STREAMS = MAX_VIEWERS // 2
"""Of one client, which may be a building of users: as many are left for all others."""
MAX_CLIENTS = 4096
"""Clients whose requests are counted; the one that has asked for nothing for the longest time is forgotten first."""
MAX_NAME_LENGTH = 64


def client_of(request: web.BaseRequest) -> str:
    """Return the client's address: the last one of X-Forwarded-For is the proxy's own word, those before it are the client's."""
    forwarded = ",".join(request.headers.getall("X-Forwarded-For", []))
    return forwarded.rpartition(",")[2].strip()[:MAX_NAME_LENGTH] or request.remote or "local"


@dataclass(slots=True)
class Client:
    """left: requests that it may send at once, at a time; running: requests that it has sent and not read the answer of; unread: bytes."""

    left: float
    at: float
    running: int = 0
    unread: int = 0


class ClientLimits:
    """The requests of each client. A client has BURST_REQUESTS to begin with and gets REQUESTS_PER_SECOND more each second."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, Client] = OrderedDict()
        self._unread = 0
        self._streams: Counter[str] = Counter()

    @contextmanager
    def request(self, name: str, now: float) -> Iterator[Client]:
        """Count a request while it runs. now: seconds of a clock that never goes back. Raises Refused."""
        client = self._client(name, now)
        if client.left < 1:
            raise Refused(TOO_MANY_REQUESTS, f"a client may send {REQUESTS_PER_SECOND:g} requests per second; try again")
        if client.running >= MAX_AT_ONCE:
            raise Refused(TOO_MANY_REQUESTS, f"a client may send {MAX_AT_ONCE} requests at the same time; try again")
        client.left -= 1
        client.running += 1
        try:
            yield client
        finally:
            client.running -= 1

    @contextmanager
    def answer(self, client: Client, nbytes: int) -> Iterator[None]:
        """Count an answer until it is read. Raises Refused."""
        if client.unread + nbytes > MAX_UNREAD_BYTES:
            raise Refused(TOO_MANY_REQUESTS, "this client has not read its answers yet; try again")
        if self._unread + nbytes > MAX_UNREAD_BYTES_IN_ALL:
            raise Refused(BUSY, "clients have not read their answers yet; try again")
        client.unread += nbytes
        self._unread += nbytes
        try:
            yield
        finally:
            client.unread -= nbytes
            self._unread -= nbytes

    @contextmanager
    def stream(self, name: str) -> Iterator[None]:
        """Count a stream of events until it ends. Raises Refused."""
        if self._streams[name] >= MAX_STREAMS:
            raise Refused(TOO_MANY_STREAMS, f"{MAX_STREAMS} connections of this client follow the events already; try again")
        if self._streams.total() >= MAX_VIEWERS:
            raise Refused(TOO_MANY_VIEWERS, f"{MAX_VIEWERS} connections follow the events already; try again")
        # Not in Client: one that is forgotten would begin to count anew.
        self._streams[name] += 1
        try:
            yield
        finally:
            self._streams[name] -= 1
            if not self._streams[name]:
                del self._streams[name]

    def _client(self, name: str, now: float) -> Client:
        client = self._clients.pop(name, None) or Client(BURST_REQUESTS, now)
        client.left = min(BURST_REQUESTS, client.left + (now - client.at) * REQUESTS_PER_SECOND)
        client.at = now
        self._clients[name] = client
        if len(self._clients) > MAX_CLIENTS:
            self._clients.popitem(last=False)
        return client
