"""Sends documents in bulk requests until each is acknowledged, refused because a newer one is there, or rejected for ever.

Status 429 and 503, of a request or of a document, are tried again, later and later. A rejected document is stored in PREFIX.rejected with
its reason, where a person finds it, and counted.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from sinks.elasticsearch.documents import Action, actions, groups, index_of
from sinks.elasticsearch.mapping import templates
from tokiod.change_sink import Acknowledged
from tokiod.clock import SystemClock
from tokiod.errors import Fatal, Transient
from tokiod.runtime.backoff import backoff
from tokiod.toolkit.search_server import Access, Busy, Server, authorization
from tokiod.toolkit.tls import client_context
from tokiod.tts.live.files import replace_file
from tokiod.tts.schema import natural_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sinks.elasticsearch.config import Config
    from tokiod.change_sink import Block, SinkSite

BULK = "/_bulk?filter_path=items.*.status,items.*.error.type,items.*.error.reason"
BULK_BYTES = 900_000
"""Of a request. aiohttp sends a larger body at once, during which the process does nothing else."""
MAX_ANSWER_BYTES = 64 << 20
MAX_RETRY_SECONDS = 30.0
STORED = {200, 201, 409}
"""409: a document with a higher version is there."""
NOT_THERE, DENIED = 404, 403
TOO_MANY = 429
BUSY = {TOO_MANY, 503}
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
        self._server = Server(_access(config, site))
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
        """Send actions; store those that are rejected apart. Documents whose cells are deleted count as records too."""
        rejected = await self._until_taken(batch)
        # Where one is rejected there too, the count still has it.
        await self._until_taken([self._with_reason(action, error) for action, error in rejected])
        return Acknowledged(len(batch) - len(rejected), Counter(error.type for _, error in rejected))

    async def _until_taken(self, batch: list[Action]) -> list[tuple[Action, _Error]]:
        """Send actions until the server has stored or rejected each; return those that it rejected, and why. Raises Transient and Fatal."""
        failures, rejected = 0, list[tuple[Action, _Error]]()
        while batch:
            again = list[Action]()
            for action, item in zip(batch, await self._bulk(batch), strict=True):
                if item.status in BUSY:
                    again.append(action)
                elif item.status == DENIED:
                    raise Fatal(f"{self._server}: no permission to write to {action.index}: {_text(item.error)}")
                elif item.status not in STORED and (item.status != NOT_THERE or action.body):
                    rejected.append((action, item.error or _Error()))
            batch = again
            if batch:
                failures += 1
                await asyncio.sleep(backoff(failures, MAX_RETRY_SECONDS, self._rng))
        return rejected

    async def _bulk(self, batch: Sequence[Action]) -> list[_Item]:
        body = b"".join(part for action in batch for part in (action.head, action.body))
        try:
            answer = await self._server.json("POST", BULK, _Bulk, body)
        except Busy:
            return [_Item(TOO_MANY)] * len(batch)
        if len(answer.items) != len(batch):
            raise Transient(f"{self._server}: the answer has {len(answer.items)} of {len(batch)} items")
        return [next(iter(item.values())) for item in answer.items]

    def _with_reason(self, action: Action, error: _Error) -> Action:
        """Return the action that stores a rejected document with its reason, once however often it is rejected."""
        index = f"{self._config.prefix}.rejected"
        document = {
            "@timestamp": int(SystemClock().time()), "index": action.index, "id": action.id, "reason": _text(error),
            "document": action.body.decode().rstrip("\n"),
        }  # fmt: skip
        head = msgspec.json.encode({"index": {"_index": index, "_id": action.id}})
        return Action(index, action.id, head + b"\n", msgspec.json.encode(document) + b"\n")

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
    batch, nbytes = list[Action](), 0
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
        indices=f"{config.prefix}-*",
        right="manage index templates, and to create, write and delete in",
        authorization=lambda: authorization(config, site.secret),
        tls=lambda: client_context(config.tls_ca) if config.url.startswith("https:") else None,
    )
