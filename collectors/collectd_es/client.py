"""One HTTP client for Elasticsearch 8 and 9 and OpenSearch 2: requests, and answers that are errors or incomplete."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from elastic_transport import AsyncTransport, ConnectionTimeout, HttpHeaders, NodeConfig, Serializer, TlsError, TransportError
from elastic_transport.client_utils import url_to_node_config

from tokiod.errors import CollectError, Fatal, Transient
from tokiod.runtime.secrets import remember

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from collectors.collectd_es.parse import Answer
    from collectors.collectd_es.parse_hits import Shards

T = TypeVar("T")

JSON = "application/json"
OK = 200
GIVE_BACK_SECONDS = 5.0
PRODUCT = "x-elastic-product"


@dataclass(frozen=True, slots=True)
class Access:
    """Where a server is and how to get in. authorization: the header's value, "" for none; timeout: seconds for a whole answer."""

    url: str
    user: str
    timeout: float
    compress: bool
    authorization: Callable[[], str] = field(repr=False)
    tls: Callable[[], ssl.SSLContext | None] = field(repr=False)


class _Bytes(Serializer):
    """What comes is decoded by those who know what it is, once."""

    mimetype = JSON

    def loads(self, data: bytes) -> bytes:
        return data

    def dumps(self, data: Any) -> bytes:
        return data if isinstance(data, bytes) else msgspec.json.encode(data)


# The transport of the official client without the client: that refuses every server but its own major version's (product check, vendor
# media types), and retries by itself, at once, which loses a page of a scroll.
class Server:
    """A server, connected to when it is first asked, and anew after it has refused us: the password may be another then."""

    def __init__(self, access: Access, pattern: str) -> None:
        self._access = access
        self._pattern = pattern
        self._transport: AsyncTransport | None = None
        self._giving_back: set[asyncio.Task[None]] = set()
        self.product: str | None = None

    def __str__(self) -> str:
        return self._access.url

    async def ask(self, method: str, target: str, body: Any = None) -> bytes:
        """Return the body of an answer with status 200. Raises Transient or Fatal."""
        try:
            transport = self._transport = self._transport or self._connected()
            answer = await transport.perform_request(method, target, body=body, headers=self._headers)
        except ConnectionTimeout:
            raise Transient(f"{self} gave no whole answer within {self._access.timeout:g} s") from None
        except TlsError as error:
            await self._disconnect()
            raise Fatal(f"{self} shows a certificate that is not trusted: {error.message}; check tls_ca and the host in url") from None
        except TransportError as error:
            raise Transient(f"{self} does not answer: {error.message}") from None
        if answer.meta.status != OK:
            problem = refused(answer.meta.status, _bytes(answer.body), str(self), self._pattern, self._access.user)
            if answer.meta.status in NOT_ALLOWED:
                await self._disconnect()
            raise problem
        self.product = answer.meta.headers.get(PRODUCT)
        return _bytes(answer.body)

    async def json(self, method: str, target: str, into: type[T], body: Any = None) -> T:
        """Return an answer as what it should be; raises Transient for what is no JSON, or another."""
        answer = await self.ask(method, target, body)
        try:
            return msgspec.json.decode(answer, type=into)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            what = f"{self} answered {target.partition('?')[0]} with something else ({error})"
            raise Transient(f"{what}: is there something between us and the server?") from None

    @asynccontextmanager
    async def lent(self, opening: Coroutine[Any, Any, T], give_back: Callable[[T], Awaitable[object]]) -> AsyncIterator[T]:
        """Hold what the server lends (a scroll, a point in time), and give it back in the end, without waiting for that.

        Also if we are cancelled while it is being opened: then it is there, though nobody has heard of it yet.
        """
        task = asyncio.ensure_future(opening)
        try:
            yield await asyncio.shield(task)
        finally:
            giving_back = asyncio.ensure_future(_give_back(task, give_back))
            self._giving_back.add(giving_back)
            giving_back.add_done_callback(self._giving_back.discard)

    async def close(self) -> None:
        """Give everything back, then the connections."""
        await asyncio.gather(*self._giving_back)
        await self._disconnect()

    def _connected(self) -> AsyncTransport:
        access = self._access
        # It tells of every request, at debug with all that is in it: the poller says what matters.
        logging.getLogger("elastic_transport").setLevel(logging.WARNING)
        authorization = access.authorization()
        self._headers = HttpHeaders({"accept": JSON, "content-type": JSON})
        if authorization:
            self._headers["authorization"] = authorization
        config = url_to_node_config(access.url, use_default_ports_for_scheme=True)
        options: dict[str, Any] = {"request_timeout": access.timeout, "http_compress": access.compress}
        if (tls := access.tls()) is not None:
            options["ssl_context"] = tls
        node = NodeConfig(config.scheme, config.host, config.port, config.path_prefix, **options)
        serializers = {mimetype: _Bytes() for mimetype in (JSON, "application/*", "text/*")}
        return AsyncTransport([node], node_class="aiohttp", serializers=serializers, max_retries=0, retry_on_status=())

    async def _disconnect(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()


async def _give_back(task: asyncio.Future[T], give_back: Callable[[T], Awaitable[object]]) -> None:
    """Wait until it is known what there is to give back. What can't be given back ends by itself, when its keep_alive is over."""
    try:
        async with asyncio.timeout(GIVE_BACK_SECONDS):
            await give_back(await task)
    except (Transient, Fatal, TimeoutError):
        return


def basic(user: str, password: str) -> str:
    """Return the header of a user and a password, as much a secret as they are."""
    return "Basic " + remember(base64.b64encode(f"{user}:{password}".encode()).decode())


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else b""


NOT_ALLOWED = {401, 403}
NOT_FOUND = 404
BUSY = {408, 429}
BROKEN = 500
_BUSY = re.compile(r"too many|rejected_execution|circuit_breaking", re.IGNORECASE)
_LONGEST = 300
NO_JSON = "and no JSON"


class ContextGone(Transient):
    """The server does not have the scroll or point in time any more."""


class NoIndex(Fatal):
    """There is no index of that name, or none that a wildcard matches."""


class Incomplete(Transient):
    """An answer, or all of them together, that is not all there is."""


def check_whole(answer: Answer) -> None:
    """Raise Incomplete unless every shard answered in full; status 200 alone says nothing."""
    if answer.timed_out:
        raise Incomplete("the search ran out of time on the server: what it had found by then is not all")
    if answer.terminated_early:
        raise Incomplete("the search was ended early by the server: what it had found by then is not all")
    if answer.shards is None:
        raise Incomplete("the answer does not say which shards it is from")
    check_shards(answer.shards)


def check_shards(shards: Shards) -> None:
    """Raise Incomplete unless every shard answered; servers count those that are gone as failed, or don't count them at all."""
    if shards.failed or shards.successful < shards.total:
        raise Incomplete(f"only {shards.successful} of {shards.total} shards answered: the rest of the documents is elsewhere")


def check_all_read(read: int, total: int | None) -> None:
    """Raise Incomplete unless as many documents were read as the server had found."""
    if total is not None and read != total:
        raise Incomplete(f"{read} documents came of {total} that the server had found")


def refused(status: int, body: bytes, server: str, pattern: str, user: str) -> CollectError:
    """Return the error that a status which is not 200 means. pattern: the indices that were asked; user: who asked, "" for nobody."""
    said = f"{server}: {reason(status, body)}"
    if b"search_context_missing_exception" in body:
        return ContextGone(said)
    if status in NOT_ALLOWED:
        who = f"as {user}: check the user and its password" if user else "without a user: set user and password_file"
        return Fatal(f"{said}; we came {who}, and it must be allowed to read {pattern}")
    # No fields of no indices is what a wildcard without a match has for a mapping.
    if status == NOT_FOUND and (b"index_not_found_exception" in body or body.strip() == b"{}"):
        return NoIndex(f"{said}; there is no index and no alias {pattern}: check index")
    if status in BUSY or status >= BROKEN or _BUSY.search(said) or NO_JSON in said:
        return Transient(said)
    return Fatal(f"{said}; that was about {pattern}")


def reason(status: int, body: bytes) -> str:
    """Return what a server says of an error, in one line; the innermost cause, which says most."""
    try:
        error = msgspec.json.decode(body)["error"]
        causes = list(_causes(error)) if isinstance(error, dict) else [str(error)]
    except (msgspec.DecodeError, KeyError, TypeError, UnicodeDecodeError):
        return f"HTTP status {status} {NO_JSON}: is there something else between us and the server?"
    return f"HTTP status {status}: {'; '.join(dict.fromkeys(causes))}"[:_LONGEST].replace("\n", " ")


def _causes(error: dict[str, Any]) -> Any:
    yield f"{error.get('type')}: {error.get('reason')}"
    inner = [failure.get("reason") for failure in error.get("failed_shards") or []]
    for cause in [*(error.get("root_cause") or [])[:2], *inner[:2], error.get("caused_by")]:
        if isinstance(cause, dict) and cause.get("reason") != error.get("reason"):
            yield f"{cause.get('type')}: {cause.get('reason')}"
