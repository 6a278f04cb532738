"""Sends documents in bulk requests until each is acknowledged, refused because a newer one is there, or rejected for ever.

Status 429 and 503, of a request or of a document, are tried again, later and later. A rejected document is stored in PREFIX.rejected with
its reason, where a person finds it, and counted.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from collectors.collectd_es.client import Access, Server, basic
from sinks.elasticsearch.documents import actions, groups, index_of
from sinks.elasticsearch.mapping import templates
from tokiod.change_sink import Acknowledged
from tokiod.clock import SystemClock
from tokiod.errors import Fatal, Transient
from tokiod.runtime.backoff import backoff
from tokiod.toolkit.tls import client_context
from tokiod.tts.live.files import replace_file
from tokiod.tts.schema import natural_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sinks.elasticsearch.config import Config
    from sinks.elasticsearch.documents import Action
    from tokiod.change_sink import Block, SinkSite

BULK_BYTES = 900_000
"""Of a request. aiohttp sends a larger body at once, during which the process does nothing else."""
MAX_ANSWER_BYTES = 64 << 20
MAX_RETRY_SECONDS = 30.0
STORED = {200, 201, 409}
"""409: a document with a higher version is there."""
NOT_THERE, DENIED = 404, 403
BUSY = {429, 503}
COMPONENTS_FILE = "components.json"


class _Error(msgspec.Struct):
    type: str = "unknown"
    reason: str | None = None


class _Item(msgspec.Struct):
    status: int
    error: _Error | None = None


class _Bulk(msgspec.Struct):
    items: list[dict[str, _Item]]


class ElasticsearchSink:
    """See tokiod.change_sink.ChangeSink."""

    def __init__(self, config: Config, site: SinkSite) -> None:
        self._config, self._site = config, site
        self._server = Server(_access(config, site), f"{config.prefix}-*")
        self._path = site.state / COMPONENTS_FILE
        self._components = self._known()
        self._rng = random.Random()  # noqa: S311 - jitter

    async def open(self) -> None:
        """Connect, and put the templates of the indices."""
        for name, template in templates(self._config.prefix).items():
            await self._server.request("PUT", f"/_index_template/{name}", msgspec.json.encode(template))

    async def send(self, blocks: Sequence[Block]) -> Acknowledged:
        """Send a document for each component and time."""
        done = Acknowledged()
        for group, members in groups(blocks).items():
            components = self._noted(group, members)
            for batch in _batches(actions(self._config.prefix, group, members, components)):
                done.add(await self._deliver(batch))
        return done

    async def close(self) -> None:
        """Close the connections."""
        await self._server.close()

    async def _deliver(self, batch: list[Action]) -> Acknowledged:
        """Send actions until none is left. Documents whose cells are deleted count as records too."""
        done, failures, rejected = Acknowledged(), 0, list[tuple["Action", _Error]]()
        while batch:
            again = list["Action"]()
            for action, item in zip(batch, await self._bulk(batch), strict=True):
                if item.status in STORED or (item.status == NOT_THERE and not action.body):
                    done.records += 1
                elif item.status in BUSY:
                    again.append(action)
                elif item.status == DENIED:
                    raise Fatal(f"{self._server}: no permission to write to {action.index}: {_text(item.error)}")
                else:
                    rejected.append((action, item.error or _Error()))
            batch = again
            if batch:
                failures += 1
                await asyncio.sleep(backoff(failures, MAX_RETRY_SECONDS, self._rng))
        if rejected:
            done.rejected = Counter(error.type for _, error in rejected)
            await self._store_rejected(rejected)
        return done

    async def _bulk(self, batch: Sequence[Action]) -> list[_Item]:
        body = b"".join(part for action in batch for part in (action.head, action.body))
        answer = await self._server.json("POST", "/_bulk?filter_path=items.*.status,items.*.error.type,items.*.error.reason", _Bulk, body)
        if len(answer.items) != len(batch):
            raise Transient(f"{self._server}: the answer has {len(answer.items)} of {len(batch)} items")
        return [next(iter(item.values())) for item in answer.items]

    async def _store_rejected(self, rejected: Iterable[tuple[Action, _Error]]) -> None:
        """Store rejected documents with their reason, each once; where that fails too, the count and the log have them."""
        lines = []
        for action, error in rejected:
            head = {"index": {"_index": f"{self._config.prefix}.rejected", "_id": action.id}}
            document = {
                "@timestamp": int(SystemClock().time()), "index": action.index, "id": action.id, "reason": _text(error),
                "document": action.body.decode().rstrip("\n"),
            }  # fmt: skip
            lines += [msgspec.json.encode(head), b"\n", msgspec.json.encode(document), b"\n"]
        await self._server.request("POST", "/_bulk", b"".join(lines))

    def _noted(self, group: str, blocks: Sequence[Block]) -> list[str]:
        """Return the components of a group that may have documents in these months, and note those of these rows, durably."""
        first = blocks[0]
        times = first.start, first.end - first.step
        months = dict.fromkeys(f"{index_of(self._config.prefix, first.system, time)}/{group}" for time in times)
        here = {name for block in blocks for name in block.columns}
        known = {name for month in months for name in self._components.get(month, ())}
        components = sorted(here | known, key=natural_key)
        if any(not here <= set(self._components.get(month, ())) for month in months):
            for month in months:
                self._components[month] = components
            try:
                replace_file(self._path, msgspec.json.encode(self._components))
            except OSError as error:
                raise Transient(f"{self._path} can't be written: {error.strerror}") from error
        return components

    def _known(self) -> dict[str, list[str]]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, list[str]])
        except (OSError, msgspec.DecodeError, ValueError):
            return {}


def _batches(found: Iterator[Action]) -> Iterator[list[Action]]:
    """Yield actions in batches of at most BULK_BYTES, and one."""
    batch, nbytes = list["Action"](), 0
    for action in found:
        batch.append(action)
        nbytes += action.nbytes
        if nbytes >= BULK_BYTES:
            yield batch
            batch, nbytes = [], 0
    if batch:
        yield batch


def _text(error: _Error | None) -> str:
    return "unknown" if error is None else f"{error.type}: {error.reason or ''}"[:500]


def _access(config: Config, site: SinkSite) -> Access:
    return Access(
        config.url,
        config.user or "",
        timeout=float(config.request_timeout),
        max_answer=MAX_ANSWER_BYTES,
        compress=False,
        authorization=lambda: _authorization(config, site),
        tls=lambda: client_context(config.tls_ca) if config.url.startswith("https:") else None,
    )


def _authorization(config: Any, site: SinkSite) -> str:
    for kind in ("file", "env"):
        if name := getattr(config, f"password_{kind}"):
            return basic(config.user or "", site.secret(f"{kind}:{name}"))
        if name := getattr(config, f"api_key_{kind}"):
            return f"ApiKey {site.secret(f'{kind}:{name}')}"
    return ""
