"""The collectors' end of the inner bus: windows out, answers back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Self
from uuid import uuid4

import msgspec
import structlog

from tokiod.bus import protocol
from tokiod.bus.connection import ZmqConnector
from tokiod.bus.in_flight import InFlightWindows
from tokiod.clock import SystemClock
from tokiod.crossing.dialogue import VERSION
from tokiod.crossing.parts import PART_BYTES, encoded
from tokiod.errors import Malformed, Refusal
from tokiod.metrics import catalogue, stages
from tokiod.runtime.log import Repeats
from tokiod.window_data import WindowData
from tokiod.window_result import Answer, Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tokiod.bus.connection import ZmqConnection
    from tokiod.window_data import Collected

__all__ = ["Answer", "Sender", "State", "Stored"]

log = structlog.get_logger()

RECONNECT_SECONDS = 0.05
"""Between two connections, for a writer that ends each one at once."""
MAX_SILENCE_SECONDS = 60.0
STUCK_SECONDS = 300.0
"""Without an answer to any window, from a writer that sends signs of life: one of the two processes has a fault."""
SILENCE_SECONDS = 30.0
"""Three heartbeats of the writer."""
WELCOME_FACTOR, WELCOME_SECONDS = 10, 10.0
"""Times `silence`, but no more than so long, or `silence` where that is longer, after which a connection without a Welcome is replaced:
its peer may have disappeared without a trace."""
HELLOS_PER_SILENCE = 20
"""Until the Welcome; but one per second at most."""


class ConnectionLost(Exception):  # noqa: N818 - an event, not an error
    """The connection is no longer usable; the text is the reason."""


class State(msgspec.Struct, frozen=True):
    """The state of the bus, as this process knows it.

    in_flight: windows. Since the process began: resent windows; answered, postponed: windows with a final answer, and answers "busy".
    """

    connected: bool
    epoch: str | None
    in_flight: int
    in_flight_bytes: int
    resent: int
    answered: int
    postponed: int


class Sender:
    """Send windows to a writer that may be slow, frozen, killed and restarted, until it has answered each of them.

    ZeroMQ reports neither that a peer is gone nor what it had read, and a socket that outlives its peer delivers old messages to the next
    one. So only acknowledgements count, and a connection is never repaired: when the peer disconnects, sends another epoch or is silent for
    too long, the socket is closed, and on a new one every window in flight is sent again as a new attempt.
    A writer that was silent and then answers with the same epoch was only slow (a long sync): from then on the limit is twice as long, or
    windows for a disk that always takes longer would never be acknowledged.

    silence: seconds (real ones: this is about processes) without a message after which the writer counts as gone.
    on_reload: called when stored windows may have been lost: at each new epoch, including the first, and when the writer asks for it, if
    need be on the next connection.
    connector: makes what connects to the writer.
    """

    def __init__(  # noqa: PLR0913 - each with a default, by name
        self,
        endpoint: str,
        *,
        max_windows: int = 4,
        max_bytes: int = 64 << 20,
        silence: float = SILENCE_SECONDS,
        on_reload: Callable[[], None] = lambda: None,
        connector: Callable[[], ZmqConnector] = ZmqConnector,
    ) -> None:
        self._endpoint = endpoint
        self._connector = connector
        self._silence = silence
        self._silence_limit = silence
        self._on_reload = on_reload
        self._name = uuid4().hex
        self._windows = InFlightWindows(max_windows, max_bytes)
        self._welcomed = asyncio.Event()
        self._epoch: str | None = None
        self._repeats = Repeats(SystemClock())
        self._read_ledger: tuple[str, int] | None = None
        self._was_silent = False
        self._answered = self._postponed = 0
        self._last_progress = 0.0

    @property
    def state(self) -> State:
        """The current state."""
        windows = self._windows
        return State(self._welcomed.is_set(), self._epoch, len(windows), windows.nbytes, windows.resent, self._answered, self._postponed)

    def _set_metrics(self, resent: int = 0) -> None:
        catalogue.set_in_flight(len(self._windows), self._windows.nbytes, resent)

    async def welcomed(self) -> None:
        """Wait until a writer has welcomed this process."""
        await self._welcomed.wait()

    async def submit(self, collected: Collected) -> Answer:
        """Take a window once there is room for it, and return the future of the writer's answer, however long that takes.

        The batches must not change before the answer. The future is cancelled when run() ends first. A window that can never cross the
        bus is refused at once: one with names that the writer would not accept, or that is too large.
        """
        meta = collected.meta
        try:
            protocol.Part.of(meta, 0)
            parts = encoded(meta.source, WindowData(collected.batches, meta.records, meta.dropped, collected.tables), PART_BYTES)
        except (Malformed, Refusal) as error:
            return _refused(error if isinstance(error, Refusal) else Refusal(f"source {meta.source}: {error}", "never"))
        if not self._windows:
            self._last_progress = asyncio.get_running_loop().time()
        with stages.Submission(collected) as submission:
            answer = await self._windows.add(meta, parts, collected.nbytes)
        submission.accepted(answer)
        self._set_metrics()
        return answer

    def stuck(self, now: float) -> str:
        """Return a sentence if a connected writer has not answered for STUCK_SECONDS, else ""; now: the loop's time."""
        waited = now - self._last_progress
        return (
            f"no answer from the writer for {waited:.0f} s" if self._welcomed.is_set() and self._windows and waited > STUCK_SECONDS else ""
        )

    async def run(self) -> None:
        """Stay connected to the writer; ends only by cancellation."""
        connector = self._connector()
        try:
            for number in count(1):
                await self._run_connection(connector, number)
                await asyncio.sleep(RECONNECT_SECONDS)
        finally:
            connector.close()
            self._windows.cancel()

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running
        self._windows.cancel()

    async def _run_connection(self, connector: ZmqConnector, number: int) -> None:
        """Run one connection from its first Hello until it is lost."""
        with connector.connected(self._endpoint) as writer:
            try:
                await run_until_failure(watch(writer), self._send_hellos(writer, number), self._receive(writer), self._send(writer))
            except ConnectionLost as lost:
                self._report_lost(str(lost))
            finally:
                self._welcomed.clear()

    async def _send_hellos(self, writer: ZmqConnection, number: int) -> None:
        while True:
            await writer.send([protocol.encode(protocol.Hello(self._name, number))])
            before = min(self._silence, max(1.0, self._silence / HELLOS_PER_SILENCE))
            await asyncio.sleep(2 / 3 * self._silence if self._welcomed.is_set() else before)

    async def _send(self, writer: ZmqConnection) -> None:
        await self._welcomed.wait()
        while True:
            attempt, window = await self._windows.next()
            for number, frames in enumerate(window.parts):
                head = protocol.Part.of(window.meta, attempt, number, len(window.parts))
                await writer.send([protocol.encode(head), *frames])
                if not self._windows.is_current(attempt):
                    break

    async def _receive(self, writer: ZmqConnection) -> None:
        try:
            async with asyncio.timeout(max(self._silence, min(WELCOME_FACTOR * self._silence, WELCOME_SECONDS))):
                while not self._welcomed.is_set():
                    self._handle(await writer.receive())
            while True:
                async with asyncio.timeout(self._silence_limit):
                    self._handle(await writer.receive())
        except TimeoutError:
            raise ConnectionLost("silent") from None

    def _handle(self, frame: bytes) -> None:
        try:
            message = protocol.decode_from_writer(frame)
        except Malformed as error:
            raise ConnectionLost(str(error)) from None
        if self._welcomed.is_set() and message.epoch != self._epoch:
            raise ConnectionLost("another epoch")
        match message:
            case protocol.Welcome():
                self._welcome(message)
            case protocol.Refused():
                if times := self._repeats(message.reason):
                    log.error("bus.refused", reason=message.reason, times=times)
            case protocol.Ack():
                self._resolve(message.attempt, Stored(message.cells, message.dropped))
            case protocol.Reject():
                self._resolve(message.attempt, message.refusal)
            case protocol.Beat():
                self._reload_after(message)

    def _resolve(self, attempt: int, outcome: Stored | Refusal) -> None:
        if isinstance(outcome, Refusal) and outcome.when == "busy":
            self._postponed += 1
        else:
            self._answered += 1
        self._last_progress = asyncio.get_running_loop().time()
        self._windows.resolve(attempt, outcome)
        self._set_metrics()

    def _reload_after(self, message: protocol.Welcome | protocol.Beat) -> None:
        """Have the ledger read again unless it was, since it last lost windows."""
        if (state := (message.epoch, message.reloads)) != self._read_ledger:
            self._read_ledger = state
            self._on_reload()

    def _welcome(self, message: protocol.Welcome) -> None:
        epoch = message.epoch
        if self._welcomed.is_set():
            raise ConnectionLost("forgotten by the writer")
        if epoch != self._epoch:
            self._silence_limit = self._silence
        elif self._was_silent:
            self._silence_limit = min(2 * self._silence_limit, max(MAX_SILENCE_SECONDS, self._silence))
        self._epoch = epoch
        self._was_silent = False
        log.info("bus.connected", epoch=epoch, in_flight=len(self._windows), wire=VERSION)
        self._reload_after(message)
        self._last_progress = asyncio.get_running_loop().time()
        resent = self._windows.resent
        self._windows.renew()
        self._welcomed.set()
        self._set_metrics(self._windows.resent - resent)

    def _report_lost(self, reason: str) -> None:
        if self._welcomed.is_set():
            self._was_silent = reason == "silent"
            log.warning("bus.lost", reason=reason, epoch=self._epoch, in_flight=len(self._windows))


def _refused(reason: Refusal) -> Answer:
    answer: Answer = asyncio.get_running_loop().create_future()
    answer.set_result(reason)
    return answer


async def watch(writer: ZmqConnection) -> None:
    """Raise ConnectionLost at the end of the connection."""
    raise ConnectionLost(await writer.ended())


async def run_until_failure(*parts: Coroutine[None, None, None]) -> None:
    """Run endless coroutines concurrently until one fails, cancel the others, and raise its exception.

    Not a TaskGroup: before Python 3.13 it forgets a cancellation that comes together with the failure.
    """
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if task in done:
            task.result()
