"""One HTTP client for Elasticsearch 8 and 9 and OpenSearch 2: requests, and what answers that are errors mean."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from elastic_transport import (
    AiohttpHttpNode,
    AsyncTransport,
    ConnectionTimeout,
    HttpHeaders,
    NodeConfig,
    Serializer,
    TlsError,
    TransportError,
)
from elastic_transport.client_utils import url_to_node_config

from tokiod.errors import CollectError, Fatal, Transient
from tokiod.runtime.secrets import remember
from tokiod.toolkit.http_answer import read_answer

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    import aiohttp

T = TypeVar("T")

JSON = "application/json"
OK = 200
RELEASE_SECONDS = 5.0
PRODUCT = "x-elastic-product"


@dataclass(frozen=True, slots=True)
class Access:
    """Where a server is and how to log in.

    authorization: the header's value, "" for none; timeout: seconds for a whole answer; max_answer: its bytes after decompression.
    indices: a name or wildcard that all requests are about; right: what the user must be allowed to do with them, for messages.
    """

    url: str
    user: str
    timeout: float
    max_answer: int
    compress: bool
    indices: str
    right: str
    authorization: Callable[[], str] = field(repr=False)
    tls: Callable[[], ssl.SSLContext | None] = field(repr=False)


class _Bytes(Serializer):
    """Pass bytes on: each caller decodes its answer once, to its own type."""

    mimetype = JSON

    def loads(self, data: bytes) -> bytes:
        return data

    def dumps(self, data: Any) -> bytes:
        return data if isinstance(data, bytes) else msgspec.json.encode(data)


class _TooLargeError(ValueError):  # elastic_transport passes ValueErrors on
    """An answer is larger than Access.max_answer."""


class _Answer:
    """An answer of aiohttp that is read as far as a number of bytes."""

    def __init__(self, answer: aiohttp.ClientResponse, max_bytes: int) -> None:
        self._answer = answer
        self._max_bytes = max_bytes
        self.status = answer.status
        self.headers = answer.headers

    async def read(self) -> bytes:
        body = await read_answer(self._answer, self._max_bytes)
        if body is None:
            raise _TooLargeError(f"the answer is larger than max_answer, {self._max_bytes >> 20} MiB: reduce page, or increase max_answer")
        return body


class _Session:
    """A session of aiohttp that follows no redirects and bounds answers."""

    def __init__(self, session: aiohttp.ClientSession, max_answer: int) -> None:
        self._session = session
        self._max_answer = max_answer

    @asynccontextmanager
    async def request(self, method: str, url: str, **options: Any) -> AsyncIterator[_Answer]:
        async with self._session.request(method, url, allow_redirects=False, **options) as answer:
            yield _Answer(answer, self._max_answer)

    async def close(self) -> None:
        await self._session.close()


# Its base class follows redirects to any host, and reads answers of any size.
class _Node(AiohttpHttpNode):
    """The connections to a server."""

    session: Any

    def _create_aiohttp_session(self) -> None:
        super()._create_aiohttp_session()
        self.session = _Session(self.session, self.config._extras["max_answer"])  # noqa: SLF001 - meant for other classes of nodes


# This is the transport of the official client without the client, which refuses all servers but its own major version (product check,
# vendor media types) and retries immediately, which loses a page of a scroll.
class Server:
    """A server. The first request connects; so does the first request after a denied one, since the password may have changed."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._transport: AsyncTransport | None = None
        self._releasing: set[asyncio.Task[None]] = set()
        self.product: str | None = None

    def __str__(self) -> str:
        return self._access.url

    async def request(self, method: str, target: str, body: Any = None) -> bytes:
        """Return the body of an answer with status 200. Raises Transient or Fatal."""
        try:
            transport = self._transport = self._transport or self._connected()
            answer = await transport.perform_request(method, target, body=body, headers=self._headers)
        except ConnectionTimeout:
            raise Transient(f"{self} did not answer completely within {self._access.timeout:g} s") from None
        except _TooLargeError as error:
            raise Fatal(f"{self}: {error}") from None
        except TlsError as error:
            await self._disconnect()
            raise Fatal(f"{self}: the server's certificate is not trusted: {error.message}; check tls_ca and the host in url") from None
        except TransportError as error:
            raise Transient(f"{self} does not answer: {error.message}") from None
        if answer.meta.status in REDIRECTS:
            target = (answer.meta.headers.get("location") or "")[:_MAX_REASON_LENGTH].partition("?")[0]
            raise Fatal(f"{self} redirects to {target!r}: redirects are not followed; set url to that address if it is the right one")
        if answer.meta.status != OK:
            problem = status_error(answer.meta.status, _bytes(answer.body), self._access)
            if answer.meta.status in DENIED:
                await self._disconnect()
            raise problem
        self.product = answer.meta.headers.get(PRODUCT)
        return _bytes(answer.body)

    async def json(self, method: str, target: str, into: type[T], body: Any = None) -> T:
        """Return a decoded answer. Raises Transient for an answer of another type."""
        answer = await self.request(method, target, body)
        try:
            return msgspec.json.decode(answer, type=into)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            what = f"{self}: unexpected answer to {target.partition('?')[0]} ({error})"
            raise Transient(f"{what}: is there a proxy or a login page in between?") from None

    @asynccontextmanager
    async def held_open(self, opening: Coroutine[Any, Any, T], release: Callable[[T], Awaitable[object]]) -> AsyncIterator[T]:
        """Open something on the server (a scroll, a point in time), and release it after the block without waiting for that.

        Also if the opening is cancelled: then it may be open on the server although no answer has arrived.
        """
        task = asyncio.ensure_future(opening)
        try:
            yield await asyncio.shield(task)
        finally:
            releasing = asyncio.ensure_future(_release(task, release))
            self._releasing.add(releasing)
            releasing.add_done_callback(self._releasing.discard)

    async def close(self) -> None:
        """Release everything, then close the connections."""
        await asyncio.gather(*self._releasing)
        await self._disconnect()

    def _connected(self) -> AsyncTransport:
        access = self._access
        # It logs every request, at debug level with its content, and warns of every failed one; the errors raised here are the report.
        logging.getLogger("elastic_transport").setLevel(logging.ERROR)
        authorization = access.authorization()
        self._headers = HttpHeaders({"accept": JSON, "content-type": JSON})
        if authorization:
            self._headers["authorization"] = authorization
        config = url_to_node_config(access.url, use_default_ports_for_scheme=True)
        options: dict[str, Any] = {"request_timeout": access.timeout, "http_compress": access.compress}
        options["_extras"] = {"max_answer": access.max_answer}
        if (tls := access.tls()) is not None:
            options["ssl_context"] = tls
        node = NodeConfig(config.scheme, config.host, config.port, config.path_prefix, **options)
        serializers = {mimetype: _Bytes() for mimetype in (JSON, "application/*", "text/*")}
        return AsyncTransport([node], node_class=_Node, serializers=serializers, max_retries=0, retry_on_status=())

    async def _disconnect(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()


async def _release(task: asyncio.Future[T], release: Callable[[T], Awaitable[object]]) -> None:
    """Wait until it is open, then release it. What cannot be released ends by itself after its keep_alive."""
    try:
        async with asyncio.timeout(RELEASE_SECONDS):
            await release(await task)
    except (Transient, Fatal, TimeoutError):
        return


def authorization(login: Any, secret: Callable[[str], str]) -> str:
    """Return the authorization header, "" for none.

    login: a section with the options user, password_file, password_env, api_key_file and api_key_env; secret: returns what a reference
    names, `file:NAME` or `env:NAME`.
    """
    for source, password, key in (("file", login.password_file, login.api_key_file), ("env", login.password_env, login.api_key_env)):
        if password:
            # What encodes a secret is one, too.
            return "Basic " + remember(base64.b64encode(f"{login.user or ''}:{secret(f'{source}:{password}')}".encode()).decode())
        if key:
            return f"ApiKey {secret(f'{source}:{key}')}"
    return ""


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else b""


REDIRECTS = {301, 302, 303, 307, 308}
DENIED = {401, 403}
NOT_FOUND = 404
BUSY = {429, 503}
MAY_PASS = {408}
SERVER_ERROR = 500
_BUSY = re.compile(r"too many|rejected_execution|circuit_breaking", re.IGNORECASE)
_MAX_REASON_LENGTH = 300
NO_JSON = "and no JSON"


class ContextGone(Transient):
    """The scroll or point in time no longer exists on the server."""


class NoIndex(Fatal):
    """No index has that name, or matches that wildcard."""


class Busy(Transient):
    """The server has no room for the request now; it did nothing of it."""


def status_error(status: int, body: bytes, access: Access) -> CollectError:
    """Return the error for a status other than 200."""
    text = f"{access.url}: {reason(status, body)}"
    if b"search_context_missing_exception" in body:
        return ContextGone(text)
    if status in DENIED:
        login = f"check user {access.user} and its password" if access.user else "set user and password_file"
        return Fatal(f"{text}; {login}, and its permission to {access.right} {access.indices}")
    # For a wildcard without a match, the mapping is an empty object.
    if status == NOT_FOUND and (b"index_not_found_exception" in body or body.strip() == b"{}"):
        return NoIndex(f"{text}; no index or alias matches {access.indices}: check index")
    if status in BUSY:
        return Busy(text)
    if status in MAY_PASS or status >= SERVER_ERROR or _BUSY.search(text) or NO_JSON in text:
        return Transient(text)
    return Fatal(f"{text}; the request was for {access.indices}")


def reason(status: int, body: bytes) -> str:
    """Return a server's reason for an error in one line, with the innermost cause, which is the most precise."""
    try:
        error = msgspec.json.decode(body)["error"]
        causes = list(_causes(error)) if isinstance(error, dict) else [str(error)]
    except (msgspec.DecodeError, KeyError, TypeError, UnicodeDecodeError):
        return f"HTTP status {status} {NO_JSON}: is there a proxy in between?"
    return f"HTTP status {status}: {'; '.join(dict.fromkeys(causes))}"[:_MAX_REASON_LENGTH].replace("\n", " ")


def _causes(error: dict[str, Any]) -> Any:
    yield f"{error.get('type')}: {error.get('reason')}"
    inner = [failure.get("reason") for failure in error.get("failed_shards") or []]
    for cause in [*(error.get("root_cause") or [])[:2], *inner[:2], error.get("caused_by")]:
        if isinstance(cause, dict) and cause.get("reason") != error.get("reason"):
            yield f"{cause.get('type')}: {cause.get('reason')}"
