"""One other host, as the writer's host sees it: its connection, its clock, and what it is asked."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING

import structlog

from tokiod.bus.clock_difference import ClockDifference
from tokiod.crossing.asking import Asking, Unasked
from tokiod.errors import Malformed, Transient
from tokiod.metrics import catalogue
from tokiod.polling.hosts import host_protocol as protocol
from tokiod.published.hosts import HostState
from tokiod.window import iso

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokiod.clock import Clock
    from tokiod.config.hosts import HostConfig
    from tokiod.crossing.codec import Frame
    from tokiod.crossing.dialogue import Close, Collect, Count, Stored
    from tokiod.published.hosts import Trouble
    from tokiod.window_data import WindowData

log = structlog.get_logger()

SILENCE_SECONDS = 20.0
"""Real seconds without a message, four heartbeats, after which a host counts as unreachable."""
RECONNECT_SECONDS = 10.0
"""How long a request waits for a host that is not connected: most breaks are shorter."""
KEPT = 1024
"""Sessions and routes of the past that are known as such."""

NAME, UNASKED, MALFORMED, VERSION, OLDER = catalogue.HOST_REFUSALS
"""Why a message is refused. NAME: a Hello under the name of another host than the key's; UNASKED: an answer that was not asked for;
VERSION: of the wire; OLDER: a process that another one, which is connected, has replaced."""


class HostRefused(Exception):  # noqa: N818 - an event, as a refused connection is
    """A message of a host is refused. reason: one of catalogue.HOST_REFUSALS."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class RemoteHost:
    """The state of one host.

    send: sends a message on the connection of a route; returns False where it has ended.
    config: its section, which a reload may replace; route: of its connection, None while it has none; asking: its requests.
    """

    def __init__(self, config: HostConfig, clock: Clock, send: Callable[[bytes, protocol.ToHost], bool]) -> None:
        self.config = config
        self.route: bytes | None = None
        self.refused: Counter[str] = Counter()
        self.difference = ClockDifference()
        self._clock, self._send = clock, send
        self._hello: protocol.Hello | None = None
        self._address = ""
        self._trouble: Trouble = "new"
        self._reason = ""
        self._contact: float | None = None
        self._heard = 0.0
        self._last_alive: tuple[float, float] | None = None
        self._older: deque[str] = deque(maxlen=KEPT)
        self._routes: deque[bytes] = deque(maxlen=KEPT)
        self.name = f"host {config.name}"
        self.asking = Asking(self.name, self._ask, f" (on {self.name})")
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
        if hello.version != protocol.VERSION:
            versions = f"it speaks version {hello.version} of the wire, this one speaks {protocol.VERSION}"
            self.refuse("refused", f"{versions}: run the same version of tokiod on both")
            raise HostRefused(VERSION, self._reason)
        if self._hello is not None and hello.session != self._hello.session:
            self._older.append(self._hello.session)
        if hello.session in self._older:
            self._older.remove(hello.session)
        if route != self.route:
            self._routes.append(route)
            self.asking.fail_all(f"the connection to host {self.config.name} was interrupted")
            self.difference, self._last_alive = ClockDifference(), None
            self._log.info("host.connected", address=address, version=hello.tokiod, wire=hello.version)
        self.route, self._hello, self._address = route, hello, address
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
        self.asking.fail_all(self.sentence())

    def refuse(self, trouble: Trouble, reason: str) -> None:
        """Note why it can't connect."""
        if self.route is None:
            self._trouble, self._reason = trouble, reason

    def expect(self) -> None:
        """Note that it can connect now."""
        if self._contact is None:
            self.refuse("new", "")
        else:
            self.refuse("unreachable", f"it has not connected again, last contact {iso(int(self._contact))}")

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
        wire = self._hello.version if self._hello else None
        return HostState(
            name=self.config.name, trouble=trouble, reason=reason, sources=self.config.sources, contact=self._contact,
            address=self._address, version=self._hello.tokiod if self._hello else "", wire=wire, refused=dict(self.refused),
            clock=self.difference.seconds if self.difference.is_known else None,
            clock_bound=self.difference.bound if self.difference.is_known else None,
        )  # fmt: skip

    # ---- what it is asked

    async def ask(self, make: Callable[[int], Collect | Count]) -> WindowData | int | None:
        """Ask for a window or a count, and return it; see Asking.ask(). Raises Transient while the host is not connected."""
        if not self._connected.is_set():
            try:
                async with asyncio.timeout(RECONNECT_SECONDS):
                    await self._connected.wait()
            except TimeoutError:
                raise Transient(self.sentence()) from None
        return await self.asking.ask(make)

    def tell(self, message: Stored | Close) -> None:
        """Send what needs no answer. A host that is not connected has forgotten its lanes anyway."""
        if self.route is not None:
            self._send(self.route, message)

    def answered(self, answer: protocol.Answer, frames: Sequence[Frame]) -> None:
        """Take an answer, and the frames of its data. Raises HostRefused for one that was not asked for, and Malformed."""
        try:
            self.asking.answered(answer, frames)
        except Unasked as error:
            raise HostRefused(UNASKED, str(error)) from None

    def _ask(self, message: protocol.Asked) -> None:
        if self.route is None or not self._send(self.route, message):
            self.lose("its connection has ended")
            raise Transient(self.sentence())
