"""Requests over HTTP: few at once, at a limited rate; every answer without data becomes an error of the right class."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
from yarl import URL

from tokiod.errors import Fatal, Transient
from tokiod.toolkit.http_answer import read_answer
from tokiod.toolkit.tls import client_context

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_ANSWER_BYTES = 64 << 20
MAX_REDIRECTS = 3
_REDIRECTS = {301, 302, 303, 307, 308}
_OK, _NOT_FOUND, _SERVER_ERROR = 200, 404, 500
_DENIED, _BUSY = {401, 403}, {408, 425, 429}


class NotFound(Fatal):
    """The service does not have what was requested; other requests may succeed."""


class Service:
    """The service at a URL. connections: requests at once; rate: requests per second; seconds: time limit of each."""

    def __init__(self, url: str, *, connections: int, rate: float, seconds: float, tls_ca: str | None) -> None:
        self._url = URL(url)
        self._connections = connections
        self._pause = 1.0 / rate
        self._timeout = aiohttp.ClientTimeout(total=seconds)
        self._tls_ca = tls_ca
        self._session: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(connections)
        self._next_request = 0.0

    def url(self, *parts: str) -> URL:
        """Return the URL of a resource."""
        return self._url.joinpath(*parts)

    async def get(self, url: URL, query: Mapping[str, str]) -> bytes:
        """Return the body of an answer with status 200. Raises NotFound for status 404, Transient or Fatal for everything else."""
        async with self._slots:
            await self._wait_for_turn()
            try:
                return await self._follow_redirects(url.with_query(query))
            except TimeoutError:
                raise Transient(f"{url} did not answer within {self._timeout.total:g} s") from None
            except aiohttp.ClientConnectorCertificateError as error:
                raise Fatal(f"{url}: the certificate is not trusted: {error.certificate_error}; check tls_ca") from None
            except (aiohttp.ClientError, OSError) as error:
                raise Transient(f"{url}: the request failed: {str(error) or type(error).__name__}") from None

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _wait_for_turn(self) -> None:
        """Wait until the rate allows another request."""
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next_request)
        self._next_request = turn + self._pause
        await asyncio.sleep(turn - now)

    async def _follow_redirects(self, url: URL) -> bytes:
        for _ in range(MAX_REDIRECTS + 1):
            async with self._open_session().get(url, allow_redirects=False) as answer:
                if answer.status not in _REDIRECTS:
                    return await self._body(answer, url)
                url = self._redirect_target(url, answer.headers.get("Location", ""))
        raise Fatal(f"{url.origin()}: more than {MAX_REDIRECTS} redirects; set url to the address of the service")

    async def _body(self, answer: aiohttp.ClientResponse, url: URL) -> bytes:
        if answer.status != _OK:
            raise _status_error(answer, url.with_query(None))
        body = await read_answer(answer, MAX_ANSWER_BYTES)
        if body is None:
            raise Fatal(f"{url.with_query(None)}: the answer is larger than {MAX_ANSWER_BYTES >> 20} MiB")
        return body

    def _redirect_target(self, url: URL, location: str) -> URL:
        """Return the target of a redirect: only on the same host, and never from https to http."""
        target = url.join(URL(location)) if location else url
        if target.host != url.host or (url.scheme, target.scheme) == ("https", "http") or target.scheme not in {"http", "https"}:
            raise Fatal(f"{url.with_query(None)} redirects to {target.with_query(None)}; set url to that address if it is the right one")
        return target

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            context = client_context(self._tls_ca) if self._url.scheme == "https" else True
            connector = aiohttp.TCPConnector(limit=self._connections, ssl=context)
            self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout, headers={"Accept": "application/json"})
        return self._session


def _status_error(answer: aiohttp.ClientResponse, url: URL) -> NotFound | Fatal | Transient:
    status = f"{url}: HTTP status {answer.status} {answer.reason or ''}".rstrip()
    if answer.status == _NOT_FOUND:
        return NotFound(status)
    if answer.status in _BUSY or answer.status >= _SERVER_ERROR:
        later = answer.headers.get("Retry-After")
        return Transient(f"{status}; retry after {later[:40]} s" if later else status)
    if answer.status in _DENIED:
        return Fatal(f"{status}: access is denied")
    return Fatal(f"{status}: check url, aggregate and interval")
