"""The hub of a simulated site: the real one, with connections in memory to agents and clients. It is killed and starts again."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from collectors.nodes.hub_protocol import Answer, Request
from tokiod.crossing import dialogue
from tokiod.crossing.asking import Asking
from tokiod.errors import Transient
from tokiod.hub.hub import Hub

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from tests.simulation.clock import MachineClock
    from tests.simulation.loop import SimulatedLoop
    from tokiod.config.sections import HubConfig
    from tokiod.crossing.codec import Frame
    from tokiod.window_data import WindowData

HUBS: dict[str, HubMachine] = {}
"""That of the site that is being simulated, by the name of its source."""
CLASS = "compute"
MAX_DELAY_SECONDS = 1.0
"""Of a message: the hub bears no more than two seconds of difference between clocks."""
DOWN_SECONDS = 60.0
_EVENT = struct.Struct("=HI")


class OneClass:
    """All nodes are of one class, which may have any name."""

    def of(self, _key: bytes) -> str:
        """Return the class."""
        return CLASS

    def allows(self, _name: str, _node: str) -> bool:
        """Allow it."""
        return True


class HubMachine:
    """The process of the hub: it runs until it is killed, and another one follows."""

    def __init__(self, loop: SimulatedLoop, clock: MachineClock, rng: random.Random, config: HubConfig, power: asyncio.Event) -> None:
        self.loop, self.clock, self.rng, self.power = loop, clock, rng, power
        self.hub: Hub | None = None
        self._config = config
        self._sockets: dict[bytes, AgentSocket] = {}
        self._clients: dict[bytes, HubClient] = {}
        self._wake = asyncio.Event()
        self._numbers = itertools.count(1)
        self._decode = msgspec.json.Decoder(Request).decode

    async def keep(self) -> None:
        """Run the hub again and again."""
        while True:
            await self.power.wait()
            self.hub = hub = Hub(self._config, OneClass(), self.clock, self._send, self._reply)  # type: ignore[arg-type]
            while self.hub is hub and self.power.is_set():
                self._wake.clear()
                seconds = hub.turn()
                waiting = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait({waiting}, timeout=max(0.01, min(seconds, 60.0)))
                waiting.cancel()
            self.die()
            await asyncio.sleep(DOWN_SECONDS * self.rng.random())

    def die(self) -> None:
        """End the process, and all connections with it. A client that waits for an answer gets none."""
        self.hub = None
        self._wake.set()
        self._clients.clear()
        for socket in list(self._sockets.values()):
            socket.end(zmq.EVENT_DISCONNECTED)
        self._sockets.clear()

    def client(self) -> HubClient:
        """Return a connection for the daemon's processes."""
        return HubClient(self, next(self._numbers).to_bytes(4, "big"))

    def context(self, on_event: Callable[[], None]) -> AgentContext:
        """Return what makes the sockets of an agent. on_event: called when one of them has something."""
        return AgentContext(self, on_event)

    def delay(self) -> float:
        """Return how long a message takes."""
        return self.rng.random() * MAX_DELAY_SECONDS

    def attach(self, socket: AgentSocket) -> None:
        """Connect an agent, or let it know that nothing listens."""
        if self.hub is None:
            socket.end(zmq.EVENT_CLOSED)
        elif socket.is_open:
            socket.route = next(self._numbers).to_bytes(4, "big")
            self._sockets[socket.route] = socket
            socket.add_event(zmq.EVENT_HANDSHAKE_SUCCEEDED)

    def receive(self, socket: AgentSocket, message: bytes) -> None:
        """Let a message of an agent arrive."""
        if self.hub is not None and self._sockets.get(socket.route) is socket:
            self.hub.receive(socket.route, b"", "10.0.0.1", message)
            self._wake.set()

    def detach(self, socket: AgentSocket) -> None:
        """Forget a connection that its agent ended."""
        self._sockets.pop(socket.route, None)

    def request(self, client: HubClient, frame: bytes) -> None:
        """Let a request of a client arrive. Raises Transient while no hub is there."""
        if self.hub is None:
            raise Transient("no hub")
        self._clients[client.route] = client
        self.hub.request(client.route, self._decode(frame))
        self._wake.set()

    def _send(self, route: bytes, message: bytes) -> bool:
        if (socket := self._sockets.get(route)) is None:
            return False
        self.loop.call_later(self.delay(), socket.put, message)
        return True

    def _reply(self, route: bytes, answer: Answer, frames: Sequence[Frame]) -> bool:
        if (client := self._clients.get(route)) is not None:
            self.loop.call_soon(client.put, msgspec.json.encode(answer), list(map(bytes, frames)))
        return client is not None


class HubClient:
    """What takes the place of collectors.nodes.client.HubClient. A request to a hub that is killed meanwhile waits for ever."""

    name = "the hub"

    def __init__(self, hub: HubMachine, route: bytes) -> None:
        self.route = route
        self._hub = hub
        self._asking = Asking(self.name, lambda message: hub.request(self, dialogue.encode(message)))
        self._decode = msgspec.json.Decoder(dialogue.Answer).decode

    async def ask(self, make: Callable[[int], dialogue.Collect | dialogue.Count]) -> WindowData | int | None:
        """Send a request that arrives in a while, and return the answer."""
        await asyncio.sleep(self._hub.delay())
        return await self._asking.ask(make)

    def tell(self, message: dialogue.Stored | dialogue.Close) -> None:
        """Send nothing, as the real one."""

    def put(self, message: bytes, frames: list[bytes]) -> None:
        """Let an answer arrive."""
        self._asking.answered(self._decode(message), frames)

    def close(self) -> None:
        """Have nothing open."""


class AgentContext:
    """Makes sockets in the place of a zmq.Context."""

    def __init__(self, hub: HubMachine, on_event: Callable[[], None]) -> None:
        self.hub, self.on_event = hub, on_event

    def socket(self, _kind: int) -> AgentSocket:
        """Make a socket."""
        return AgentSocket(self)


class _Inbox:
    """What a socket and its monitor share: messages that have come."""

    def __init__(self) -> None:
        self.messages: deque[Any] = deque()

    def getsockopt(self, option: int) -> int:
        """Return whether there are any, and no descriptor."""
        return zmq.POLLIN * bool(self.messages) if option == zmq.EVENTS else -1

    def recv(self, _flags: int) -> Any:
        """Return the next."""
        return self.messages.popleft()

    recv_multipart = recv

    def close(self, _linger: int) -> None:
        """Forget them."""
        self.messages.clear()


class AgentSocket(_Inbox):
    """An agent's DEALER. What it does not use may be set all the same."""

    def __init__(self, context: AgentContext) -> None:
        super().__init__()
        self.route = b""
        self.is_open = True
        self._hub, self._on_event, self._monitor = context.hub, context.on_event, _Inbox()

    def setsockopt(self, _option: int, _value: int) -> None:
        """Have no options."""

    def get_monitor_socket(self, _events: int) -> _Inbox:
        """Return where events of the connection come."""
        return self._monitor

    def disable_monitor(self) -> None:
        """Have no monitor any more."""
        self._monitor.messages.clear()

    def connect(self, _endpoint: str) -> None:
        """Connect in a while."""
        self._hub.loop.call_later(self._hub.delay(), self._hub.attach, self)

    def send(self, message: bytes, _flags: int) -> None:
        """Let a message arrive in a while."""
        self._hub.loop.call_later(self._hub.delay(), self._hub.receive, self, message)

    def close(self, linger: int) -> None:
        """End the connection from this side."""
        super().close(linger)
        self.is_open = False
        self._hub.detach(self)

    def put(self, message: bytes) -> None:
        """Let a message of the hub arrive."""
        if self.is_open:
            self.messages.append(message)
            self._on_event()

    def end(self, event: int) -> None:
        """End the connection from the other side."""
        self.messages.clear()
        self.add_event(event)

    def add_event(self, event: int) -> None:
        """Let the monitor report something."""
        if self.is_open:
            self._monitor.messages.append([_EVENT.pack(event, 0)])
            self._on_event()
