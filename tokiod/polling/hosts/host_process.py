"""`tokiod collectors` on a host that is not the writer's: it collects the windows of its sources that the daemon asks for.

It has no ledger and no archive, and decides nothing: which window, whether again, and what follows from a failure is decided where the
ledger is. So an unreachable host has nothing to reconcile when it returns, and no harm comes from its clock.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import structlog

from tokiod.bus.clock_difference import ClockDifference
from tokiod.bus.connection import DISCONNECTED, REFUSED, ZmqConnector
from tokiod.bus.curve import host_client_keys
from tokiod.bus.sender import ConnectionLost, run_until_failure, watch
from tokiod.collector import Site
from tokiod.config.hosts import sources_of, writers_host
from tokiod.config.load import log_warnings
from tokiod.crossing.answering import Lanes
from tokiod.errors import Malformed
from tokiod.polling.hosts import host_protocol as protocol
from tokiod.runtime.log import Repeats

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokiod.bus.connection import ZmqConnection
    from tokiod.clock import Clock
    from tokiod.config.hosts import HostConfig
    from tokiod.config.schema import Config
    from tokiod.runtime.service import Service

log = structlog.get_logger()

RECONNECT_SECONDS, MAX_RECONNECT_SECONDS = 0.2, 10.0
"""Between two connections, and at most: a host that is refused asks less and less often."""
WELCOME_SECONDS, SILENCE_SECONDS, HELLO_SECONDS = 10.0, 20.0, 1.0
GOODBYE_SECONDS = 0.1
"""For the last message on its way."""


class DaemonClock:
    """The clock of the writer's host, as this host knows it: the samples of sources without a past get their times from it."""

    def __init__(self, clock: Clock) -> None:
        self.difference = ClockDifference()
        self._clock = clock

    def time(self) -> float:
        """Return the time at the writer's host, UTC epoch seconds; by this host's clock until the two are compared."""
        return self._clock.time() + self.difference.seconds

    def monotonic(self) -> float:
        """Return this host's monotonic time."""
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for a span of this clock's seconds."""
        await self._clock.sleep(seconds)


class HostProcess:
    """Answers for the sources of one host, until cancelled.

    find: returns this host's section; program: the version of tokiod; connector: makes connections.
    Raises ConfigError for a key that is missing.
    """

    def __init__(
        self,
        service: Service[Config],
        find: Callable[[Config], HostConfig],
        clock: Clock,
        program: str,
        connector: Callable[[], ZmqConnector] = ZmqConnector,
    ) -> None:
        self._service, self._find, self._notifier, self._connector = service, find, service.notifier, connector
        self._own_clock, self._clock, self._repeats = clock, DaemonClock(clock), Repeats(clock)
        self._session, self._program = uuid4().hex, program
        self._epoch, self._is_welcome, self._is_refused, self._why = "", False, False, "not connected yet"
        self._renewed = asyncio.Event()
        config = service.load()
        self._lanes = Lanes(f"host {find(config).name}", self._clock, protocol.PART_BYTES)
        self._use(config)

    async def run(self) -> None:
        """Stay connected to the daemon; ends only by cancellation."""
        self._notifier.ready()
        reporting = asyncio.create_task(self._report())
        connector = self._connector()
        try:
            wait = RECONNECT_SECONDS
            while True:
                self._is_refused = False
                await self._run_connection(connector)
                wait = min(2 * wait, MAX_RECONNECT_SECONDS) if self._is_refused else RECONNECT_SECONDS
                await asyncio.sleep(wait)
        finally:
            reporting.cancel()
            connector.close()
            await self._lanes.close()
            log.info("collectors.stopped", unanswered=0)

    def reload(self) -> None:
        """Read the configuration again; a wrong one is refused, and the one before stays."""
        with self._service.reloading():
            before = self._host, self._keys, self._endpoint, self._lanes.names
            self._use(self._service.load())
            if (self._host, self._keys, self._endpoint, self._lanes.names) != before:
                self._renewed.set()

    def _use(self, config: Config) -> None:
        host, writer = self._find(config), writers_host(config.host)
        keys = host_client_keys(config.host, host, config.secrets)
        log_warnings(config)
        self._host, self._keys = host, keys
        sources = {source.name: source for source in sources_of(config, host)}
        self._lanes.use(sources, Site(config.calendar, self._clock, config.secret))
        self._endpoint = str(writer.endpoint if writer else "")

    async def _run_connection(self, connector: ZmqConnector) -> None:
        self._renewed.clear()
        with connector.connected(self._endpoint, self._keys) as link:
            try:
                await run_until_failure(watch(link), self._greet(link), self._receive(link), self._until_renewed())
            except ConnectionLost as lost:
                self._note_lost(str(lost))
            except asyncio.CancelledError:
                await self._part(link)
                raise
            finally:
                self._is_welcome = False
                await self._lanes.cancel_all()

    async def _until_renewed(self) -> None:
        await self._renewed.wait()
        raise ConnectionLost("the configuration has changed")

    async def _greet(self, link: ZmqConnection) -> None:
        while not self._is_welcome:
            hello = protocol.Hello(self._host.name, self._session, protocol.VERSION, self._program, self._lanes.names)
            await link.send([protocol.encode(hello)])
            await asyncio.sleep(HELLO_SECONDS)
        await asyncio.Event().wait()

    async def _part(self, link: ZmqConnection) -> None:
        if self._is_welcome:
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await link.send([protocol.encode(protocol.Goodbye())])
                    await asyncio.sleep(GOODBYE_SECONDS)

    async def _receive(self, link: ZmqConnection) -> None:
        try:
            while True:
                async with asyncio.timeout(SILENCE_SECONDS if self._is_welcome else WELCOME_SECONDS):
                    frame = await link.receive()
                await self._handle(link, frame)
        except TimeoutError:
            raise ConnectionLost("silent") from None

    async def _handle(self, link: ZmqConnection, frame: bytes) -> None:
        try:
            message = protocol.decode_to_host(frame)
        except Malformed as error:
            raise ConnectionLost(str(error)) from None
        match message:
            case protocol.Welcome():
                await self._welcome(message)
            case protocol.Refused():
                self._note_refused(message)
            case protocol.Beat():
                await self._compare_clocks(link, message)
            case _:
                self._lanes.handle(link.send, message)

    async def _welcome(self, message: protocol.Welcome) -> None:
        if message.epoch != self._epoch:
            await self._lanes.close()
        self._epoch, self._is_welcome = message.epoch, True
        log.info("host.welcome", host=self._host.name, wire=protocol.VERSION)

    async def _compare_clocks(self, link: ZmqConnection, beat: protocol.Beat) -> None:
        now, difference = self._own_clock.time(), self._clock.difference
        await link.send([protocol.encode(protocol.Alive(now, beat.time))])
        if beat.echo is not None:
            difference.note(now, beat.time, beat.echo, beat.held)
        limit = self._host.max_clock_difference
        if difference.exceeds(limit) and (times := self._repeats("clock")):
            log.warning("host.clock", host=self._host.name, seconds=round(-difference.seconds, 1), limit=int(limit), times=times)

    def _note_refused(self, message: protocol.Refused) -> None:
        self._is_refused = True
        raise ConnectionLost(message.reason)

    def _note_lost(self, reason: str) -> None:
        if reason == REFUSED:
            self._is_refused = True
            reason = "it refuses the key of this host; hosts.refused in its log gives the reason"
        self._why = "the connection was lost" if reason == DISCONNECTED else reason
        if (self._is_welcome or self._is_refused) and (times := self._repeats(reason)):
            log.warning("host.disconnected", host=self._host.name, reason=self._why, times=times)

    async def _report(self) -> None:
        while True:
            state = "connected" if self._is_welcome else f"waiting for the writer's host ({self._why})"
            names, requests = self._lanes.names, self._lanes.requests
            self._notifier.alive(f"{state}, {len(names)} source{'' if len(names) == 1 else 's'}, {requests} being asked")
            await asyncio.sleep(self._notifier.interval)


def run(service: Service[Config], find: Callable[[Config], HostConfig], clock: Clock, program: str) -> None:
    """Answer until SIGTERM or SIGINT; read the configuration again at SIGHUP. Raises ConfigError."""
    asyncio.run(_answer(service, find, clock, program))


async def _answer(service: Service[Config], find: Callable[[Config], HostConfig], clock: Clock, program: str) -> None:
    process = HostProcess(service, find, clock, program)
    await service.until_signal(process.run(), process.reload)
