"""One other host, as the writer's host sees it: its connection, its clock, and what it is asked."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import msgspec
import structlog

from tokiod.bus import host_protocol as protocol
from tokiod.bus import wire
from tokiod.bus.clock_difference import ClockDifference
from tokiod.bus.header import decode_header
from tokiod.bus.reassembly import Reassembly
from tokiod.errors import Fatal, Malformed, NotYet, Refusal, Transient
from tokiod.metrics import catalogue
from tokiod.published.hosts import HostState
from tokiod.window import MAX_WINDOW_BYTES, iso

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokiod.bus.header import Frame, Piece
    from tokiod.clock import Clock
    from tokiod.config.hosts import HostConfig
    from tokiod.dropped import Why
    from tokiod.published.hosts import Trouble
    from tokiod.window_data import Collected

log = structlog.get_logger()

SILENCE_SECONDS = 20.0
"""Real seconds without a message, four heartbeats, after which a host counts as unreachable."""
RECONNECT_SECONDS = 10.0
"""How long a request waits for a host that is not connected: most breaks are shorter."""
MAX_INCOMPLETE_BYTES = MAX_WINDOW_BYTES + (64 << 20)
"""Of the pieces of a host's incomplete windows, as of the bus."""
KEPT_ENDED = 1024
"""Requests whose late answers are known as such."""

NAME, SOURCE, UNASKED, MALFORMED, VERSION, OLDER = catalogue.HOST_REFUSALS
"""Why a message is refused. NAME: a Hello under the name of another host than the key's; SOURCE: a window of a source of another host;
UNASKED: one that was not asked for; VERSION: of the wire; OLDER: a process that another one, which is connected, has replaced."""


class HostRefused(Exception):  # noqa: N818 - an event, as a refused connection is
    """A message of a host is refused. reason: one of catalogue.HOST_REFUSALS."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class RemoteFault(Exception):  # noqa: N818 - a fault in a collector, whose class is not known here
    """A collector on another host failed by a fault in tokiod; the host's log has its traceback."""


class _Request(msgspec.Struct, eq=False):
    message: protocol.Collect | protocol.Count
    answer: asyncio.Future[Collected | int | None]
    trouble: str = ""
    why: dict[str, Why] = {}


class RemoteHost:
    """The state of one host.

    send: sends a message on the connection of a route; returns False where it has ended.
    config: its section, which a reload may replace; route: of its connection, None while it has none.
    """

    def __init__(self, config: HostConfig, clock: Clock, send: Callable[[bytes, protocol.ToHost], bool]) -> None:
        self.config = config
        self.route: bytes | None = None
        self.refused: Counter[str] = Counter()
        self.difference = ClockDifference()
        self._clock, self._send = clock, send
        self._hello: protocol.Hello | None = None
        self._address = ""
        self._wire: int | None = None
        self._trouble: Trouble = "new"
        self._reason = ""
        self._contact: float | None = None
        self._heard = 0.0
        self._last_alive: tuple[float, float] | None = None
        self._older: deque[str] = deque(maxlen=KEPT_ENDED)
        self._routes: deque[bytes] = deque(maxlen=KEPT_ENDED)
        self._numbers = count(1)
        self._requests: dict[int, _Request] = {}
        self._ended: deque[int] = deque(maxlen=KEPT_ENDED)
        self._reassembly = Reassembly(MAX_INCOMPLETE_BYTES)
        self._connected = asyncio.Event()
        self._log = log.bind(host=config.name)

    # ---- its connection

    def greet(self, hello: protocol.Hello, route: bytes, address: str, real_now: float) -> None:
        """Take a Hello. Raises HostRefused."""
        if hello.host != self.config.name:
            raise HostRefused(NAME, f"a process with the key of host {self.config.name} greeted as {hello.host}")
        # One that was replaced counts again once its successor has ended: that may have been started by hand for a moment.
        if hello.session in self._older and self.route is not None:
            raise HostRefused(OLDER, f"another process of host {hello.host} has connected since")
        if hello.version not in protocol.VERSIONS:
            self.refuse("refused", f"it speaks version {hello.version} of the wire, this one speaks {_listed(protocol.VERSIONS)}")
            raise HostRefused(VERSION, self._reason)
        if self._hello is not None and hello.session != self._hello.session:
            self._older.append(self._hello.session)
        if hello.session in self._older:
            self._older.remove(hello.session)
        if route != self.route:
            self._routes.append(route)
            self._fail_all(f"the connection to host {self.config.name} was interrupted")
            self.difference, self._last_alive = ClockDifference(), None
            self._log.info("host.connected", address=address, version=hello.tokiod, wire=hello.version)
        self.route, self._hello, self._address, self._wire = route, hello, address, hello.version
        self._trouble, self._reason = "", ""
        self.note_message(real_now)
        self._connected.set()

    def is_current(self, route: bytes) -> bool:
        """Return whether a message is of its connection; False for one of an earlier connection. Raises Malformed for one without Hello."""
        if route != self.route and route not in self._routes:
            raise Malformed("hello", "a message on a connection without a Hello")
        return route == self.route

    def note_message(self, real_now: float) -> None:
        """Note a sign of life. real_now: monotonic seconds of the machine."""
        self._heard, self._contact = real_now, self._clock.time()

    def check_silence(self, real_now: float) -> None:
        """End its connection if it has sent nothing for too long."""
        if self.route is not None and real_now - self._heard > SILENCE_SECONDS:
            self.lose(f"no message for {SILENCE_SECONDS:g} s")

    def lose(self, why: str, trouble: Trouble = "unreachable") -> None:
        """End its connection. why: what has happened, a clause."""
        if self.route is None:
            return
        self.route = None
        self._connected.clear()
        self._trouble = trouble
        self._reason = f"{why}, last contact {iso(int(self._contact or 0))}"
        self._log.warning("host.lost", reason=self._reason, state=trouble)
        self._fail_all(self.sentence())

    def refuse(self, trouble: Trouble, reason: str) -> None:
        """Note why it can't connect."""
        if self.route is None:
            self._trouble, self._reason = trouble, reason

    def sentence(self) -> str:
        """Return why its sources can't be asked."""
        name = self.config.name
        match self._trouble:
            case "new":
                return f"host {name} has not connected since the daemon started: does `tokiod collectors` run there?"
            case "stopped":
                return f"host {name} has stopped its collectors ({self._reason}); its sources wait, those of other hosts go on"
            case "refused":
                return f"host {name} is refused: {self._reason}"
            case _:
                return f"host {name} is unreachable ({self._reason}); its sources wait, those of other hosts go on"

    def beat(self) -> None:
        """Send a sign of life, with the daemon's clock and what the host needs to compare it with its own."""
        if self.route is not None:
            now = self._clock.time()
            echo, came = self._last_alive or (None, now)
            if not self._send(self.route, protocol.Beat(now, echo, now - came)):
                self.lose("its connection has ended")

    def alive(self, message: protocol.Alive) -> None:
        """Take the answer to a Beat."""
        now, is_first = self._clock.time(), self._last_alive is None
        self._last_alive = message.time, now
        self.difference.note(now, message.time, message.echo)
        if is_first:
            self.beat()

    def state(self) -> HostState:
        """Return its state."""
        trouble, reason = self._trouble, self._reason
        limit = self.config.max_clock_difference
        if not trouble and self.difference.exceeds(limit):
            trouble = "clock"
            reason = f"its clock is {self.difference.seconds:+.1f} s ahead of the writer's host's, the limit is {limit} s: set it by NTP"
        return HostState(
            name=self.config.name, trouble=trouble, reason=reason, sources=self.config.sources, contact=self._contact,
            address=self._address, version=self._hello.tokiod if self._hello else "", wire=self._wire, refused=dict(self.refused),
            clock=self.difference.seconds if self.difference.is_known else None,
            clock_bound=self.difference.bound if self.difference.is_known else None,
        )  # fmt: skip

    # ---- what it is asked

    def check_tables(self) -> None:
        """Raise Transient while its version of the wire has no tables."""
        if self._wire is not None and self._wire < protocol.TABLES:
            raise Transient(f"host {self.config.name} speaks version {self._wire} of the wire, without tables: upgrade its tokiod")

    async def ask(self, make: Callable[[int], protocol.Collect | protocol.Count]) -> Collected | int | None:
        """Ask for a window or a count, and return it. make: makes the message from its number.

        Raises Transient while the host is not connected, what the host's collector raised, and RemoteFault.
        """
        if not self._connected.is_set():
            try:
                async with asyncio.timeout(RECONNECT_SECONDS):
                    await self._connected.wait()
            except TimeoutError:
                raise Transient(self.sentence()) from None
        number = next(self._numbers)
        request = self._requests[number] = _Request(make(number), asyncio.get_running_loop().create_future())
        try:
            if self.route is None or not self._send(self.route, request.message):
                self.lose("its connection has ended")
                # lose() does nothing where the connection had ended before.
                self._fail_all(self.sentence())
            return await request.answer
        finally:
            del self._requests[number]
            self._ended.append(number)
            if request.answer.cancelled() and self.route is not None:
                self._send(self.route, protocol.Cancel(number))

    def tell(self, message: protocol.Stored | protocol.Close) -> None:
        """Send what needs no answer. A host that is not connected has forgotten its lanes anyway."""
        if self.route is not None:
            self._send(self.route, message)

    def answered(self, message: protocol.Answer) -> None:
        """Take an answer. Raises HostRefused for one that was not asked for."""
        request = self._requests.get(message.id)
        if request is None:
            if message.id not in self._ended:
                raise HostRefused(UNASKED, f"an answer to request {message.id}")
        elif isinstance(message, protocol.Answered):
            request.trouble, request.why = message.trouble, message.why
        elif request.answer.done():
            return
        elif isinstance(message, protocol.Counted):
            request.answer.set_result(message.records)
        else:
            request.answer.set_exception(self._error(message))

    def piece(self, frames: Sequence[Frame], of_others: Callable[[str], bool]) -> None:
        """Take a piece of a window. of_others: whether a source is another host's. Raises HostRefused and Malformed."""
        header = decode_header(frames)
        piece = header.piece
        if piece is None:
            raise Malformed("piece", "not a piece of a window")
        if (request := self._asked(piece, of_others)) is None:
            return
        try:
            content = wire.decode_rows(header, frames) if header.table is not None else wire.decode_batch(header, frames)
            arrived = self._reassembly.add(b"", header, content)
        except (Malformed, Refusal) as error:
            self._reassembly.settle(b"", piece)
            if not request.answer.done():
                request.answer.set_exception(Transient(f"host {self.config.name} sent a malformed window: {error}"))
            raise error if isinstance(error, Malformed) else Malformed("size", str(error)) from None
        self._reassembly.pop_excess()
        if arrived is not None and not request.answer.done():
            request.answer.set_result(replace(arrived.collected, trouble=request.trouble, why=request.why))

    def _asked(self, piece: Piece, of_others: Callable[[str], bool]) -> _Request | None:
        """Return the request that a piece belongs to, None for one that has ended."""
        if piece.source not in self.config.sources and of_others(piece.source):
            raise HostRefused(SOURCE, f"a window of source {piece.source}, which is another host's")
        request = self._requests.get(piece.attempt)
        if request is None and piece.attempt in self._ended:
            return None
        asked = request.message if request is not None else None
        if not isinstance(asked, protocol.Collect) or (piece.source, piece.start, piece.end) != (asked.source, asked.start, asked.end):
            raise HostRefused(UNASKED, f"a window of source {piece.source}")
        return request

    def _error(self, failed: protocol.Failed) -> Exception:
        text = f"{failed.message} (on host {self.config.name})"
        match failed.outcome:
            case "not_yet":
                return NotYet(text, failed.ended_at)
            case "timeout":
                return TimeoutError(text)
            case "fatal":
                return Fatal(text)
            case "bug":
                return RemoteFault(text)
            case "rejected":
                return Refusal(text, "never")
            case _:
                return Transient(text, failed.ended_at)

    def _fail_all(self, reason: str) -> None:
        self._reassembly.forget(b"")
        for request in self._requests.values():
            if not request.answer.done():
                request.answer.set_exception(Transient(reason))


def _listed(versions: Sequence[int]) -> str:
    return " and ".join(map(str, versions))
