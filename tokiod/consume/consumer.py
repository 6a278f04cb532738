"""Follow topics: first all rows that they hold, then each change.

    with Consumer("broker1:9092", ["tokiod.cscratch"]) as consumer:
        for event in consumer:
            match event:
                case Update(): ...    # rows: they replace what is known of the dataset in [event.start, event.end)
                case Stalled(): ...   # silence

`async for` in `async with` does the same.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from sinks.kafka.connection import check_a_server
from tokiod.consume.fold import Fold, Update
from tokiod.errors import TokiodError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence

__all__ = ["Consumer", "Event", "Stalled", "Update"]

T = TypeVar("T")

MAX_RECORDS = 500
"""Messages that are decoded at once."""
END_SECONDS = 0.2
"""A wait for messages that a topic is known to hold."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """No message for `seconds`: the sink is down, or has nothing to send; or the brokers don't answer."""

    seconds: float


Event = Update | Stalled


class Consumer:
    """Iterate over the rows of topics, with `for` or `async for`; a context manager, or close() it.

    servers: host:port of brokers; topics: their names, such as "tokiod.cscratch". follow: False ends the iteration after what the topics
    hold at its beginning. group: the name under which commit() keeps in Kafka how far was read; a consumer with the same name begins
    there. begin: where a consumer begins otherwise. partitions: numbers of those that are read, of each topic, to divide the topics among
    processes; None for all. silence: seconds without a message after which a Stalled comes. options: of aiokafka.AIOKafkaConsumer, for TLS
    and logins: security_protocol, ssl_context, sasl_mechanism, sasl_plain_username, sasl_plain_password, and others.

    Delivery is at least once: rows may come again. fold: counts what was left out, see Fold. The first event raises TokiodError for brokers
    that can't be used, and for topics that may not be read or, with follow=False, don't exist. Brokers that fail later are waited for.
    """

    def __init__(  # noqa: PLR0913 - each with a default, by name
        self,
        servers: str | Sequence[str],
        topics: Sequence[str],
        *,
        follow: bool = True,
        group: str | None = None,
        begin: Literal["oldest", "newest"] = "oldest",
        partitions: Iterable[int] | None = None,
        silence: float = 10.0,
        **options: Any,
    ) -> None:
        self.fold = Fold()
        self.silence = silence
        self._servers = [servers] if isinstance(servers, str) else list(servers)
        self._topics, self._follow, self._begin = list(topics), follow, begin
        self._numbers = None if partitions is None else set(partitions)
        self._group, self._options = group, options
        self._client: AIOKafkaConsumer | None = None
        self._ends: dict[TopicPartition, int] = {}
        self._read: dict[TopicPartition, int] = {}
        self._received: deque[tuple[Event | None, TopicPartition | None, int]] = deque()
        self._runner: asyncio.Runner | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __iter__(self) -> Iterator[Event]:
        while bool(self._received) or self._run(self._receive()):
            yield from self._noted()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while self._received or await self._receive():
            for event in self._noted():
                yield event

    def commit(self) -> None:
        """Keep in Kafka how far was read: all rows up to the last event that was returned. Needs `group`. Raises TokiodError."""
        self._run(self.acommit())

    async def acommit(self) -> None:
        """As commit(), within an event loop."""
        if self._client is None or self._group is None:
            raise TokiodError("commit() needs a group, and an iteration that has begun")
        if self._read:
            try:
                await self._client.commit(dict(self._read))
            except KafkaError as error:
                raise TokiodError(f"the brokers don't keep how far group {self._group!r} has read: {error}") from error

    def close(self) -> None:
        """Disconnect."""
        if self._runner is not None:
            self._run(self.aclose())
            self._runner.close()
            self._runner = None

    async def aclose(self) -> None:
        """As close(), within an event loop."""
        client, self._client = self._client, None
        if client is not None:
            await client.stop()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._runner is None:
            self._runner = asyncio.Runner()
        # Not its run(), which sets a handler of SIGINT each time: to reset it, Python 3.11 formats the events that were returned.
        loop = self._runner.get_loop()
        task = loop.create_task(work)
        try:
            with _cancelled_by_sigint(task):
                return loop.run_until_complete(task)
        except KeyboardInterrupt:
            # It must not take messages later that nothing waits for any more: the caller may go on.
            task.cancel()
            loop.run_until_complete(asyncio.wait([task]))
            raise

    def _noted(self) -> Iterator[Event]:
        """Yield the received events; note after each how far was read without a window that lacks parts.

        What is left when the caller stops is what the next iteration begins with.
        """
        while self._received:
            event, partition, offset = self._received.popleft()
            if event is not None:
                yield event
            if partition is not None:
                self._read[partition] = offset

    async def _receive(self) -> bool:
        """Receive the next events, each with its partition and the offset up to which is read then; return False at the end."""
        events = await self._next()
        self._received.extend(events or ())
        return events is not None

    async def _next(self) -> list[tuple[Event | None, TopicPartition | None, int]] | None:
        """Return the next events; None at the end."""
        try:
            client = self._client or await self._connected()
            if client is None:
                await asyncio.sleep(self.silence)
                return [(Stalled(self.silence), None, 0)]
            if not self._follow and await self._is_at_end(client):
                return None
            wait = self.silence if self._follow else END_SECONDS
            received = await client.getmany(timeout_ms=int(wait * 1000), max_records=MAX_RECORDS)
        except KafkaError as error:
            await check_a_server(self._servers, self._options)
            raise TokiodError(f"Kafka {self._servers[0]} can't be read: {error}") from error
        if not received:
            return [(Stalled(self.silence), None, 0)] if self._follow else []
        return [self._event(partition, record) for partition, records in received.items() for record in records]

    def _event(self, partition: TopicPartition, record: Any) -> tuple[Update | None, TopicPartition, int]:
        place = partition.topic, partition.partition
        update = self.fold.take(record.key, record.headers, record.value, place, record.offset)
        first = self.fold.first_incomplete(place)
        return update, partition, record.offset + 1 if first is None else first

    async def _is_at_end(self, client: AIOKafkaConsumer) -> bool:
        for partition, end in self._ends.items():
            if await client.position(partition) < end:
                return False
        return True

    async def _connected(self) -> AIOKafkaConsumer | None:
        """Return a client that reads all partitions of the topics; None while one of the topics does not exist."""
        partitions = await self._partitions()
        if not partitions:
            return None
        client = self._client = self._new_client(self._group)
        client.assign(partitions)
        try:
            await client.start()
        except BaseException:
            await self.aclose()
            raise
        return client

    def _new_client(self, group: str | None = None) -> AIOKafkaConsumer:
        begin = "earliest" if self._begin == "oldest" else "latest"
        own = {"bootstrap_servers": self._servers, "group_id": group, "enable_auto_commit": False, "auto_offset_reset": begin}
        return AIOKafkaConsumer(**own, **self._options)

    async def _partitions(self) -> list[TopicPartition]:
        """Return the partitions to read, and note where they end; [] while one of the topics does not exist. Raises KafkaError."""
        # A client of a group may not change its partitions, and a client knows only those of topics that it reads.
        client = self._new_client()
        try:
            await client.start()
            if missing := sorted(set(self._topics) - await client.topics()):
                if not self._follow:
                    raise TokiodError(f"topic {missing[0]!r} does not exist on {self._servers[0]}, or its user may not read it")
                return []
            some = [TopicPartition(topic, 0) for topic in self._topics]
            client.assign(some)
            await client.end_offsets(some)
            known = {topic: client.partitions_for_topic(topic) for topic in self._topics}
            wanted = {topic: numbers if self._numbers is None else numbers & self._numbers for topic, numbers in known.items()}
            partitions = [TopicPartition(topic, number) for topic, numbers in wanted.items() for number in sorted(numbers)]
            self._ends = {} if self._follow else await client.end_offsets(partitions)
        finally:
            await client.stop()
        return partitions


@contextmanager
def _cancelled_by_sigint(task: asyncio.Task[Any]) -> Iterator[None]:
    """Let SIGINT cancel a task whose loop runs in the block, and raise KeyboardInterrupt after it.

    The handler of Python raises it in whatever runs at that moment. A task of the client would keep it, and raise it again when the client
    is stopped. A handler that a program has set stays.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    is_interrupted, loop = False, task.get_loop()

    def interrupt(*_: object) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        loop.call_soon_threadsafe(task.cancel)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except asyncio.CancelledError:
        if not is_interrupted:
            raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if is_interrupted:
        raise KeyboardInterrupt
