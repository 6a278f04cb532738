"""The sink: blocks to messages, to the partitions of topics, until all replicas in sync have acknowledged them.

A producer lives until its first error. It is idempotent, so that its own retries don't change the order in a partition; and as an
idempotent producer would retry for ever, the sink gives up after a time without an acknowledgement. What follows has a new producer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import ClusterAuthorizationFailedError, KafkaError, UnknownTopicOrPartitionError
from aiokafka.partitioner import DefaultPartitioner

from sinks.kafka.connection import check_a_server, client_options
from sinks.kafka.errors import of_connection, of_topic
from tokiod.bus.keyed_messages import encode, window_key
from tokiod.change_sink import Acknowledged
from tokiod.errors import Transient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sinks.kafka.config import Config
    from tokiod.bus.keyed_messages import KeyedMessage
    from tokiod.change_sink import Block, SinkSite

REQUEST_BYTES = (1 << 20) - 4096
"""Of the messages in one request; brokers accept 1 MiB without further settings."""
UNACKNOWLEDGED_BYTES = 8 << 20
"""Of messages that wait for their acknowledgement: what the sink holds besides the blocks."""
PATIENCE = 0.8
"""The share of the section's `timeout` after which this sink gives up: its error says more than that of a timeout."""
CLOSE_SECONDS = 3
"""How long close() waits for a producer that is being stopped; it goes on afterwards."""
STOP_TRIES, STOP_SECONDS = 20, 0.25

_by_hash = DefaultPartitioner()
_stopping = set[asyncio.Task[None]]()
"""A reference, because the event loop has none that keeps a task."""


def partition(key: bytes, partitions: list[int], available: list[int]) -> int:
    """Return the partition of a key: the parts of a window have the same one, so that their order is that of their revisions."""
    return int(_by_hash(window_key(key), sorted(partitions), available))


class KafkaSink:
    """A ChangeSink of topics. See tokiod.change_sink for its methods."""

    def __init__(self, config: Config, site: SinkSite) -> None:
        self._config, self._site = config, site
        self._options: dict[str, Any] = {}
        self._producer: AIOKafkaProducer | None = None
        self._starting: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect. Raises Transient and Fatal."""
        self._options = client_options(self._config, self._site.secret)
        await check_a_server(self._config.servers, self._options)
        config, limits = self._config, {"max_batch_size": REQUEST_BYTES, "max_request_size": REQUEST_BYTES}
        compression = None if config.compression == "none" else config.compression
        self._producer = AIOKafkaProducer(
            bootstrap_servers=list(config.servers),
            acks="all",
            enable_idempotence=True,
            compression_type=compression,
            partitioner=partition,
            **limits,
            **self._options,
        )
        # A start that is cancelled leaves a connection open (aiokafka 0.14). Its requests have timeouts, so _stop() lets them end.
        self._starting = asyncio.ensure_future(self._producer.start())
        try:
            async with asyncio.timeout(config.timeout * PATIENCE):
                await asyncio.shield(self._starting)
        except TimeoutError:
            hint = "do the names in the brokers' advertised.listeners lead to them from here?"
            raise Transient(f"Kafka {config.servers[0]} answers, but its cluster does not: {hint}") from None
        except ClusterAuthorizationFailedError as error:
            # What a user gets who may write to no topic at all.
            raise of_topic(error, config.topic, config.user) from error
        except KafkaError as error:
            raise of_connection(error, config.servers[0], config.user) from error

    async def send(self, blocks: Sequence[Block]) -> Acknowledged:
        """Send blocks as messages; return once all are acknowledged. Raises Transient and Fatal."""
        if self._producer is None:
            raise Transient("the sink is not connected")
        sending = _Sending(self._producer, self._config.timeout * PATIENCE)
        topic = self._config.topic_of(blocks[0].system) if blocks else ""
        try:
            for block in blocks:
                for message in encode(block, self._config.window, self._config.value):
                    await sending.add(topic, message)
            await sending.finish()
        except KafkaError as error:
            if isinstance(error, UnknownTopicOrPartitionError):
                # Without an answer of any broker, no topic is known either.
                await check_a_server(self._config.servers, self._options)
            raise of_topic(error, topic, self._config.user) from error
        except TimeoutError:
            raise Transient(f"Kafka acknowledges no message for topic {topic!r} in time (timeout = {self._config.timeout} s)") from None
        return Acknowledged(records=sending.records)

    async def close(self) -> None:
        """Disconnect. A producer that still has messages loses them: it must not send them later, after newer ones."""
        producer, self._producer = self._producer, None
        if producer is not None and self._starting is not None:
            stopping = asyncio.ensure_future(_stop(producer, self._starting, self._config.timeout))
            _stopping.add(stopping)
            stopping.add_done_callback(_stopping.discard)
            # It goes on when this call is cancelled: a sender that is left alone connects again.
            await asyncio.wait({stopping}, timeout=CLOSE_SECONDS)


class _Sending:
    """The messages of one send(). records: how many."""

    def __init__(self, producer: AIOKafkaProducer, timeout: float) -> None:
        self._producer, self._timeout = producer, timeout
        self._waiting: deque[tuple[asyncio.Future[Any], int]] = deque()
        self._bytes = self.records = 0

    async def add(self, topic: str, message: KeyedMessage) -> None:
        """Send a message, once there is room for it. Raises KafkaError and TimeoutError."""
        # This waits for the topic's partitions, and for the batch before.
        async with asyncio.timeout(self._timeout):
            future = await self._producer.send(topic, message.value, message.key, headers=message.headers)
        future.add_done_callback(_retrieve)
        self._waiting.append((future, len(message.value)))
        self._bytes += len(message.value)
        self.records += 1
        while self._bytes > UNACKNOWLEDGED_BYTES:
            await self._oldest()

    async def finish(self) -> None:
        """Wait until all messages are acknowledged. Raises as add()."""
        while self._waiting:
            await self._oldest()

    async def _oldest(self) -> None:
        future, size = self._waiting.popleft()
        async with asyncio.timeout(self._timeout):
            await future
        self._bytes -= size


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Take the exception of a message after the first one that failed: asyncio logs those that are never taken."""
    if not future.cancelled():
        future.exception()


async def _stop(producer: AIOKafkaProducer, starting: asyncio.Task[None], seconds: float) -> None:
    """Stop a producer without waiting for acknowledgements; what it still holds is not sent.

    Its own stop() waits until all messages are acknowledged, for ever while no broker answers; this does the rest of it.
    """
    await asyncio.wait({starting}, timeout=seconds)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    sender = producer._sender.sender_task  # noqa: SLF001 - as above
    for _ in range(STOP_TRIES):
        if sender is None or sender.done():
            break
        # The first time ends its loop, the next one the request that it waits for then.
        sender.cancel()
        await producer.client.close()
        await asyncio.wait({sender}, timeout=STOP_SECONDS)
    await producer.client.close()
    producer._closed = True  # noqa: SLF001 - as above
