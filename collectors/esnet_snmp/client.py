"""What is asked over HTTP: few requests at once, not too fast, and what each answer that is none means."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
from yarl import URL

from tokiod.errors import Fatal, Transient
from tokiod.toolkit.tls import client_context

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST = 64 << 20
"""Bytes of an answer."""
REDIRECTS = 3
_MOVED = {301, 302, 303, 307, 308}
_OK, _NOT_FOUND, _BROKEN = 200, 404, 500
_NOT_ALLOWED, _BUSY = {401, 403}, {408, 425, 429}


class Unknown(Fatal):
    """The service does not know what was asked about; that says nothing of anything else."""


class Service:
    """The service at a URL. rate: requests a second, connections: at once, seconds: for each."""

    def __init__(self, url: str, *, connections: int, rate: float, seconds: float, tls_ca: str | None) -> None:
        self._url = URL(url)
        self._connections = connections
        self._pause = 1.0 / rate
        self._timeout = aiohttp.ClientTimeout(total=seconds)
        self._tls_ca = tls_ca
        self._session: aiohttp.ClientSession | None = None
        self._room = asyncio.Semaphore(connections)
        self._next = 0.0

    def url(self, *parts: str) -> URL:
        """Return where something is found."""
        return self._url.joinpath(*parts)

    async def get(self, url: URL, query: Mapping[str, str]) -> bytes:
        """Return an answer's body. Raises Unknown for status 404, Transient or Fatal for all others but 200, and for no answer."""
        async with self._room:
            await self._turn()
            try:
                return await self._followed(url.with_query(query))
            except TimeoutError:
                raise Transient(f"{url} has not answered within {self._timeout.total:g} s") from None
            except aiohttp.ClientConnectorCertificateError as error:
                raise Fatal(f"{url}: its certificate is not believed: {error.certificate_error}; set tls_ca") from None
            except (aiohttp.ClientError, OSError) as error:
                raise Transient(f"{url} can't be asked now: {str(error) or type(error).__name__}") from None

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _turn(self) -> None:
        """Wait until another request may be sent."""
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next)
        self._next = turn + self._pause
        await asyncio.sleep(turn - now)

    async def _followed(self, url: URL) -> bytes:
        for _ in range(REDIRECTS + 1):
            async with self._opened().get(url, allow_redirects=False) as answer:
                if answer.status not in _MOVED:
                    return await self._body(answer, url)
                url = self._moved(url, answer.headers.get("Location", ""))
        raise Fatal(f"{url.origin()} sends us from one place to the next: set url to where the service is")

    async def _body(self, answer: aiohttp.ClientResponse, url: URL) -> bytes:
        if answer.status != _OK:
            raise _refused(answer, url.with_query(None))
        body = bytearray()
        async for chunk in answer.content.iter_chunked(1 << 16):
            body += chunk
            if len(body) > MOST:
                raise Fatal(f"{url.with_query(None)} answered with more than {MOST >> 20} MiB, which are no rates of a window")
        return bytes(body)

    def _moved(self, url: URL, location: str) -> URL:
        """Return where a redirect leads; only to the same host, and never from https to http."""
        target = url.join(URL(location)) if location else url
        if target.host != url.host or (url.scheme, target.scheme) == ("https", "http") or target.scheme not in {"http", "https"}:
            raise Fatal(f"{url.with_query(None)} sends us on to {target.with_query(None)}: set url to that, if it is meant")
        return target

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            context = client_context(self._tls_ca) if self._url.scheme == "https" else True
            connector = aiohttp.TCPConnector(limit=self._connections, ssl=context)
            self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout, headers={"Accept": "application/json"})
        return self._session


def _refused(answer: aiohttp.ClientResponse, url: URL) -> Unknown | Fatal | Transient:
    said = f"{url}: HTTP status {answer.status} {answer.reason or ''}".rstrip()
    if answer.status == _NOT_FOUND:
        return Unknown(said)
    if answer.status in _BUSY or answer.status >= _BROKEN:
        later = answer.headers.get("Retry-After")
        return Transient(f"{said}; it asks us to wait {later[:40]} s" if later else said)
    if answer.status in _NOT_ALLOWED:
        return Fatal(f"{said}: we are not allowed to ask for that")
    return Fatal(f"{said}: is url the service's, and does it know this aggregate and interval?")
