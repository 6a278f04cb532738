"""The collectors' end of the inner bus: windows out, and each one's fate back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Self
from uuid import uuid4

import structlog
import zmq.asyncio

from tokiod.bus import protocol
from tokiod.bus.connection import REFUSED, Lost, dealer, first_failure, watch
from tokiod.bus.in_flight import Unacknowledged
from tokiod.bus.wire import pieces
from tokiod.clock import SystemClock
from tokiod.errors import Malformed, Refusal
from tokiod.metrics import catalogue
from tokiod.runtime.log import Repeats
from tokiod.window_data import tables_unstored
from tokiod.window_result import Answer, Stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokiod.bus.curve import ClientKeys
    from tokiod.window_data import Collected

__all__ = ["Answer", "Sender", "State", "Stored"]

log = structlog.get_logger()

PAUSE = 0.05
"""Seconds between two connections, so that a writer that throws each one out is not stormed."""
MOST_PATIENT = 30.0
STUCK = 300.0
"""Seconds without an answer from a writer that goes on saying that it lives, after which something is wrong with one of the two."""
SURE = 3
"""Refusals in a row that mean one: a writer that is killed while it greets looks the same once."""
UNWELCOME = 10
"""A connection without a Welcome is thrown away after so many times `silence`: its peer may have gone without a trace."""


@dataclass(frozen=True, slots=True)
class State:
    """How it stands between this process and the writer.

    resent: windows sent again, ever; answered, postponed: answers, and such that say "later", ever.
    """

    connected: bool
    epoch: str | None
    unacknowledged: int
    unacknowledged_bytes: int
    resent: int
    answered: int
    postponed: int


class Sender:
    """Send windows to a writer that may be slow, frozen, killed and restarted, until it says of each what became of it.

    ZeroMQ alone tells neither that a peer is gone nor what it had read, and a socket that outlives its peer hands old messages to the
    next one. So only acknowledgements count, and a connection is never mended: when the peer disconnects, speaks with another epoch or
    is silent for too long, the socket is thrown away, and on a new one every unacknowledged window is sent again as a new attempt.
    A writer that was silent and then answers with the same epoch was only slow (a long sync): from then on it gets twice the time,
    or a disk that always takes longer than our patience would never get a window acknowledged.

    silence: seconds (real ones: this is about processes) without a word after which the writer counts as gone.
    on_reload: called when stored windows may have been lost: at each new epoch, the first included, and when the writer says so.
    keys: what the writer wants to see, where not everybody may talk to it.
    """

    def __init__(  # noqa: PLR0913 - each with a default, by name
        self,
        endpoint: str,
        *,
        max_windows: int = 4,
        max_bytes: int = 64 << 20,
        silence: float = 1.0,
        on_reload: Callable[[], None] = lambda: None,
        keys: ClientKeys | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._repeats = Repeats(SystemClock())
        self._silence = silence
        self._patience = silence
        self._on_reload = on_reload
        self._name = uuid4().hex
        self._windows = Unacknowledged(max_windows, max_bytes)
        self._welcomed = asyncio.Event()
        self._epoch: str | None = None
        self._was_silent = False
        self._answered = self._postponed = self._refused = 0
        self._moved = 0.0

    @property
    def state(self) -> State:
        """How it stands now."""
        windows = self._windows
        return State(self._welcomed.is_set(), self._epoch, len(windows), windows.nbytes, windows.resent, self._answered, self._postponed)

    def _count(self, resent: int = 0) -> None:
        catalogue.set_in_flight(len(self._windows), self._windows.nbytes, resent)

    async def welcomed(self) -> None:
        """Wait until a writer has welcomed this process."""
        await self._welcomed.wait()

    async def submit(self, collected: Collected) -> Answer:
        """Hand over a window once there is room for it; the future becomes the writer's answer, however long that takes.

        The batches must not be changed before that. The future is cancelled when run() ends first. A window with rows of a table is
        refused at once: the bus carries matrices only.
        """
        if collected.tables:
            return _refused(collected)
        begun = asyncio.get_running_loop().time()
        if not self._windows:
            self._moved = begun
        answer = await self._windows.add(collected)
        catalogue.count_submitted(collected, answer, asyncio.get_running_loop().time() - begun)
        self._count()
        return answer

    def stuck(self, now: float) -> str:
        """Say that a writer that lives has answered nothing for far too long, or nothing; now: the loop's time."""
        waited = now - self._moved
        return f"no answer from the writer for {waited:.0f} s" if self._welcomed.is_set() and self._windows and waited > STUCK else ""

    async def run(self) -> None:
        """Keep the conversation with the writer going; ends only by cancellation."""
        context = zmq.asyncio.Context()
        try:
            for connection in count(1):
                await self._converse(context, connection)
                await asyncio.sleep(PAUSE)
        finally:
            context.destroy(linger=0)
            self._windows.cancel()

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running
        self._windows.cancel()

    async def _converse(self, context: zmq.asyncio.Context, connection: int) -> None:
        """Be one connection, from its first Hello until it is lost."""
        with dealer(context, self._endpoint, self._keys) as (socket, monitor):
            try:
                await first_failure(watch(monitor), self._greet(socket, connection), self._listen(socket), self._send(socket))
            except Lost as lost:
                self._lose(str(lost))
            finally:
                self._welcomed.clear()

    async def _greet(self, socket: zmq.asyncio.Socket, connection: int) -> None:
        hello = protocol.encode(protocol.Hello(self._name, connection))
        while True:
            await socket.send(hello)
            await asyncio.sleep(self._silence)

    async def _send(self, socket: zmq.asyncio.Socket) -> None:
        await self._welcomed.wait()
        while True:
            attempt, collected = await self._windows.next()
            for frames in pieces(collected, attempt):
                await socket.send_multipart(frames, copy=False)
                if not self._windows.is_current(attempt):
                    break

    async def _listen(self, socket: zmq.asyncio.Socket) -> None:
        try:
            async with asyncio.timeout(self._silence * UNWELCOME):
                while not self._welcomed.is_set():
                    self._take(await socket.recv())
            while True:
                async with asyncio.timeout(self._patience):
                    self._take(await socket.recv())
        except TimeoutError:
            raise Lost("silent") from None

    def _take(self, frame: bytes) -> None:
        try:
            message = protocol.decode_from_writer(frame)
        except Malformed as error:
            raise Lost(str(error)) from None
        if self._welcomed.is_set() and message.epoch != self._epoch:
            raise Lost("another epoch")
        match message:
            case protocol.Welcome():
                self._welcome(message.epoch)
            case protocol.Ack():
                self._resolve(message.attempt, Stored(message.cells, message.dropped))
            case protocol.Reject():
                self._resolve(message.attempt, message.refusal)
            case protocol.Reload():
                self._on_reload()

    def _resolve(self, attempt: int, outcome: Stored | Refusal) -> None:
        if isinstance(outcome, Refusal) and outcome.when == "busy":
            self._postponed += 1
        else:
            self._answered += 1
        self._moved = asyncio.get_running_loop().time()
        self._windows.resolve(attempt, outcome)
        self._count()

    def _welcome(self, epoch: str) -> None:
        if self._welcomed.is_set():
            raise Lost("forgotten by the writer")
        self._refused = 0
        is_new = epoch != self._epoch
        if is_new:
            self._patience = self._silence
        elif self._was_silent:
            self._patience = min(2 * self._patience, max(MOST_PATIENT, self._silence))
        self._epoch = epoch
        self._was_silent = False
        log.info("bus.connected", epoch=epoch, unacknowledged=len(self._windows))
        if is_new:
            self._on_reload()
        self._moved = asyncio.get_running_loop().time()
        resent = self._windows.resent
        self._windows.renew()
        self._welcomed.set()
        self._count(self._windows.resent - resent)

    def _lose(self, reason: str) -> None:
        if self._welcomed.is_set():
            self._was_silent = reason == "silent"
            log.warning("bus.lost", reason=reason, epoch=self._epoch, unacknowledged=len(self._windows))
        elif reason == REFUSED:
            self._refused += 1
            if self._refused >= SURE and (times := self._repeats(reason)):
                log.error("bus.access_denied", reason=reason, times=times)


def _refused(collected: Collected) -> Answer:
    answer: Answer = asyncio.get_running_loop().create_future()
    answer.set_result(tables_unstored(collected))
    return answer
