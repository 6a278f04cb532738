"""The agent's connection to its hub: it dials, greets, answers what the hub asks, and dials again after a break."""

from __future__ import annotations

import heapq
import struct
from typing import TYPE_CHECKING, Protocol

import zmq

from tokiod.agent import wire
from tokiod.agent.sensor import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from tokiod.agent.keys import AgentKeys
    from tokiod.agent.metric import Metric, Value
    from tokiod.agent.wire import JobRow

MIN_DELAY_SECONDS, MAX_DELAY_SECONDS = 2.0, 60.0
"""Between two dials: doubled after each that fails, and drawn from half of it to all of it, so that nodes do not dial together."""
SPREAD_SECONDS = 10.0
"""After the end of a connection, over which the next dial is drawn: all nodes lose their hub in the same moment, and a handshake costs it
0.3 ms. An hour is in memory."""
HELLO_SECONDS, HELLO_SPREAD_SECONDS = 60.0, 30.0
"""Silence of the hub after which it is greeted again: it may have been started anew on a connection that the network kept."""
NOT_CONNECTED = "not connected, tries again"
CONNECT_SECONDS = 30.0
"""Limit for a dial with its handshake."""
LOOK_SECONDS = 10.0
"""After which turn() asks the sockets for events although no descriptor was readable: a limit for a dial is seen by it."""
MAX_ASKED_ROWS = 1440
"""Of one message: no hub asks for more than is in memory."""
TOO_MANY_JOBS = "jobs: too many for a row"
"""Those that run are in a later row: counters are as the job has them."""
_EVENT = struct.Struct("=H")
"""The first bytes of a message of a monitor. pyzmq's own parser imports asyncio, which costs a node 10 MB."""
_KEEPALIVE = ((zmq.TCP_KEEPALIVE, 1), (zmq.TCP_KEEPALIVE_IDLE, 20), (zmq.TCP_KEEPALIVE_INTVL, 10), (zmq.TCP_KEEPALIVE_CNT, 4))
_ENDED = (
    zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)  # fmt: skip


class Store(Protocol):
    """The rows of the node."""

    def starts(self) -> Sequence[float]:
        """Return the starts of the rows in memory, oldest first."""
        ...

    def values(self, start: float) -> tuple[dict[str, Value], dict[str, int]]:
        """Return the values of a row by metric, and how many readings were dropped, by reason."""
        ...

    def jobs(self, start: float) -> Sequence[JobRow]:
        """Return the jobs of a row as the wire sends them, those that ended first."""
        ...


class Link:
    """One agent's end of the wire. `turn` never waits; one of `filenos` becomes readable when it should be called.

    session: of this run of the agent; a hub that hears two of one name gives windows to the one that it heard of later.
    state: for a person. answered, malformed: messages of this run. examples: returns one example for each reason of a row's drops.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a test replaces
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        keys: AgentKeys,
        node: str,
        session: str,
        version: str,
        step: int,
        metrics: Sequence[Metric],
        job_metrics: Sequence[Metric],
        rows: Store,
        time: Callable[[], float],
        monotonic: Callable[[], float],
        random: Random,
        examples: Callable[[float], Mapping[str, str]] = lambda _start: {},
    ) -> None:
        self.state = "connecting"
        self.answered = self.malformed = self.dials = 0
        self._context, self._endpoint, self._keys = context, endpoint, keys
        self._node, self._session, self._version, self._step = node, session, version, step
        self._metrics, self._job_metrics, self._rows = metrics, job_metrics, rows
        self._time, self._monotonic, self._random, self._examples = time, monotonic, random, examples
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._filenos: Sequence[int] = ()
        self._is_connected = self._has_sent = False
        self._looked = float("-inf")
        self._delay = MIN_DELAY_SECONDS
        # The first dial is spread too: a cluster boots at once.
        self._dial_at = monotonic() + random.random() * MIN_DELAY_SECONDS
        self._dialled_at = self._hello_at = 0.0
        self._due: list[tuple[float, int, float]] = []

    def filenos(self) -> Sequence[int]:
        """Return the descriptors that become readable when turn() has something to do."""
        return self._filenos

    def next_due(self) -> float:
        """Return the monotonic time of the next answer or dial."""
        if self._socket is None:
            return self._dial_at
        return min(self._due[0][0] if self._due else float("inf"), self._hello_at if self._is_connected else float("inf"))

    def turn(self, *, is_ready: bool = True) -> None:
        """Dial, greet, take what the hub asks, and send the answers that are due. is_ready: whether a descriptor became readable."""
        now = self._monotonic()
        if not (is_ready or self._has_sent or now >= self.next_due() or now - self._looked >= LOOK_SECONDS):
            return
        self._looked, self._has_sent = now, False
        if self._socket is None:
            if now >= self._dial_at:
                self._dial(now)
            return
        self._watch(now)
        if self._is_connected:
            self._receive(now)
        if self._is_connected and now >= self._hello_at:
            self._greet(now)
        while self._is_connected and self._due and self._due[0][0] <= now:
            self._answer(*heapq.heappop(self._due)[1:])

    def greet_again(self) -> None:
        """Greet the hub at the next turn: other rows are in memory. It asks again for what it waits for."""
        self._due.clear()
        self._hello_at = self._monotonic()

    def close(self) -> None:
        """End the connection."""
        if self._socket is not None and self._monitor is not None:
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close(0)
        self._socket = self._monitor = None
        self._filenos = ()
        self._is_connected = False
        self._due.clear()

    def _dial(self, now: float) -> None:
        self.dials += 1
        socket = self._context.socket(zmq.DEALER)
        socket.linger, socket.immediate, socket.sndhwm = 0, True, 2 * MAX_ASKED_ROWS
        socket.setsockopt(zmq.RECONNECT_IVL, -1)
        socket.setsockopt(zmq.MAXMSGSIZE, wire.MAX_FRAME_BYTES)
        socket.setsockopt(zmq.IPV6, int("[" in self._endpoint))
        for option, value in _KEEPALIVE:
            socket.setsockopt(option, value)
        socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = self._keys.hub, self._keys.public, self._keys.secret
        self._monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | _ENDED)
        self._socket, self._dialled_at = socket, now
        self._filenos = (int(socket.getsockopt(zmq.FD)), int(self._monitor.getsockopt(zmq.FD)))
        socket.connect(self._endpoint)

    def _watch(self, now: float) -> None:
        """Follow the connection's events."""
        while self._monitor is not None and int(self._monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            event = _EVENT.unpack_from(self._monitor.recv_multipart(zmq.NOBLOCK)[0])[0]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._is_connected, self.state = True, "connected"
                self._hello_at = now
            else:
                refused = event & (zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
                self._broken(now, "refused: the hub does not know this key, or has another one" if refused else NOT_CONNECTED)
        if self._socket is not None and not self._is_connected and now - self._dialled_at > CONNECT_SECONDS:
            self._broken(now, f"{NOT_CONNECTED} (no answer)")

    def _broken(self, now: float, state: str) -> None:
        if self._is_connected:
            self._dial_at, self._delay = now + SPREAD_SECONDS * self._random.random(), MIN_DELAY_SECONDS
        else:
            self._dial_at = now + self._delay * (0.5 + self._random.random() / 2)
            self._delay = min(2 * self._delay, MAX_DELAY_SECONDS)
        self.close()
        self.state = state

    def _greet(self, now: float) -> None:
        starts = self._rows.starts()
        since = int(starts[0] if starts else self._time())
        self._hello_at = self._next_hello(now)
        self._send(wire.hello(self._node, self._session, self._version, self._step, since, self._metrics, self._job_metrics))

    def _next_hello(self, now: float) -> float:
        return now + HELLO_SECONDS + self._random.random() * HELLO_SPREAD_SECONDS

    def _receive(self, now: float) -> None:
        while self._socket is not None and int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            message = self._socket.recv(zmq.NOBLOCK)
            try:
                asked = wire.from_hub(message)
            except ValueError as error:
                self.malformed += 1
                self.state = clean(str(error))
                continue
            if isinstance(asked, wire.Refused):
                self.state = f"refused: {asked.reason}"
                continue
            self.state, self._delay = "connected", MIN_DELAY_SECONDS
            self._hello_at = max(self._hello_at, self._next_hello(now))
            self._plan(asked, now)

    def _plan(self, asked: wire.Ask, now: float) -> None:
        """Draw when each asked row is sent."""
        ahead = self._time() - asked.time
        first = -(-asked.start // self._step) * self._step
        for start in range(first, asked.end, self._step)[:MAX_ASKED_ROWS]:
            heapq.heappush(self._due, (now + self._random.random() * max(0.0, asked.within), start, ahead))

    def _answer(self, start: int, ahead: float) -> None:
        time, values = self._time(), None
        dropped: dict[str, int] = {}
        examples: Mapping[str, str] = {}
        jobs: Sequence[JobRow] = ()
        if start in self._rows.starts() and start + self._step <= time:
            found, dropped = self._rows.values(start)
            values = [found.get(metric.name) for metric in self._metrics]
            jobs, examples = self._rows.jobs(start), self._examples(start)
            if len(jobs) > wire.MAX_JOBS:
                dropped = {**dropped, TOO_MANY_JOBS: len(jobs) - wire.MAX_JOBS}
        if self._send(wire.row(self._node, self._session, start, time, ahead, values, dropped, jobs[: wire.MAX_JOBS], examples)):
            self.answered += 1

    def _send(self, message: bytes) -> bool:
        """Send a message, or drop it if the connection does not take it: the hub asks again."""
        if self._socket is None:
            return False
        # Sending may take the signal of a message that came meanwhile: the next turn looks for it.
        self._has_sent = True
        try:
            for part in wire.parts(message):
                self._socket.send(part, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True
