"""Who is let in at a socket, and how many were not: a thread that answers ZeroMQ's questions about keys, and hears of its refusals."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog
import zmq
from zmq.utils.monitor import parse_monitor_message
from zmq.utils.z85 import encode

from tokiod.clock import SystemClock
from tokiod.metrics import catalogue
from tokiod.runtime.log import Repeats

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from tokiod.bus.curve import Guard

log = structlog.get_logger()

UNKNOWN, NO_KEY, WRONG_SERVER, JUNK, UNFINISHED = REASONS = catalogue.REFUSALS
"""Why connections are refused: their key is nobody's; they don't encrypt; they encrypt for another server; they don't speak ZeroMQ, or in
a way that it does not allow; they were gone, or silent, before they had said who they are, as clients without a key are who heard that
the server wants one."""
SETTLED = 15.0
"""Seconds after which a connection has been let in or refused, however busy the machine is: thrice what a handshake may take."""

_ASKED_AT = "inproc://zeromq.zap.01"
_TOLD_AT, _ENDED_AT = "inproc://door.events", "inproc://door.end"
_FAILED = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | _FAILED
_PROTOCOL: dict[int, str] = {
    zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH: NO_KEY,
    zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC: WRONG_SERVER,
    # Who goes on speaking while its key is looked up, or when it was refused and is counted already.
    zmq.PROTOCOL_ERROR_ZMTP_UNSPECIFIED: "",
}
_LONGEST_REQUEST = 13


class Door:
    """Watches one server's socket, in the same context, from before it is bound until it is closed.

    A thread of its own: the writer's loop is at times in a sync, and who comes then must neither wait for it nor be forgotten. libzmq
    waits for whoever listens to its events, with all connections of the socket, so there is no limit to those that wait here.
    refused: counted by reason (REASONS); a line per reason and interval tells of it.

    Each connection is counted once. libzmq says, in order and by its descriptor, when one comes and when it goes; of most that it ends,
    why, right before they go; but not of all, and not of which it speaks when one is let in or its key is nobody's. So how many were
    ended without a word is what is left of those that came when all that is known of, and who is just being asked, is taken away.
    """

    def __init__(self, name: str, context: zmq.SyncContext, guard: Guard | None, refused: Counter[str]) -> None:
        self._name, self._event = name, f"{name}.refused"
        self._guard = guard
        self._refused = refused
        self._clock = SystemClock()
        self._repeats = Repeats(self._clock)
        self._came = self._settled = 0
        self._fresh: dict[int, float] = {}
        self._said, self._asker = "", dict[str, str]()
        self._questions, self._events = context.socket(zmq.ROUTER), context.socket(zmq.PAIR)
        self._end, self._ending = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        for socket in (self._questions, self._events, self._end, self._ending):
            socket.linger = socket.rcvhwm = socket.sndhwm = 0
        self._questions.bind(_ASKED_AT)
        self._ending.bind(_ENDED_AT)
        self._end.connect(_ENDED_AT)
        self._thread = threading.Thread(target=self._run, name=f"{name} door", daemon=True)

    def watch(self, socket: zmq.SyncSocket) -> None:
        """Begin, with a socket that is not bound yet."""
        socket.monitor(_TOLD_AT, _EVENTS)
        self._events.connect(_TOLD_AT)
        self._thread.start()

    def close(self) -> None:
        """End the thread; the socket is closed first."""
        if self._thread.is_alive():
            self._end.send(b"")
            self._thread.join()
        for socket in (self._questions, self._events, self._end, self._ending):
            socket.close(0)

    def _run(self) -> None:
        poller = zmq.Poller()
        for socket in (self._questions, self._events, self._ending):
            poller.register(socket, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(1000 if self._fresh else None))
            if self._ending in ready:
                return
            if self._questions in ready:
                self._answer(self._questions.recv_multipart())
            if self._events in ready:
                self._hear(self._events.recv_multipart())
            self._miss()

    def _answer(self, question: Sequence[bytes]) -> None:
        """Say by ZAP (RFC 27) whether a connection with this key may come in."""
        # libzmq asks it within this process; whoever is connecting has no say in its form.
        peer, _, version, request, _domain, address, _identity, _mechanism, *credentials = question
        key = encode(credentials[0]) if credentials and len(question) < _LONGEST_REQUEST else b""
        may = self._guard is not None and key in self._guard.allowed
        status = (b"200", b"OK", key) if may else (b"400", b"unknown key", b"")
        self._questions.send_multipart([peer, b"", version, request, *status, b""])
        if not may:
            # Counted when libzmq says so: it may have gone before it was answered, and then that is what is said of it.
            self._asker = {"address": address.decode(), "key": key.decode()}

    def _hear(self, message: list[bytes]) -> None:
        event = parse_monitor_message(message)
        said, self._said = self._said, ""
        match event["event"]:
            case zmq.EVENT_ACCEPTED:
                self._came += 1
                self._fresh[event["value"]] = self._clock.monotonic()
            case zmq.EVENT_DISCONNECTED:
                self._part(event["value"], said)
            case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._settled += 1
            case zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self._settle(UNKNOWN)
            case zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                self._said = _PROTOCOL.get(event["value"], JUNK)
            case zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                self._said = UNFINISHED

    def _part(self, descriptor: int, said: str) -> None:
        """Note who went, and what was said of it. One that is not fresh any more was let in long ago, or is counted."""
        if self._fresh.pop(descriptor, None) is not None and said:
            self._settle(said)

    def _miss(self) -> None:
        """Count those that were ended without a word."""
        before = self._clock.monotonic() - SETTLED
        while self._fresh and next(iter(self._fresh.values())) < before:
            del self._fresh[next(iter(self._fresh))]
        if (missing := self._came - self._settled - len(self._fresh)) > 0:
            self._settle(JUNK, missing)

    def _settle(self, reason: str, count: int = 1) -> None:
        self._settled += count
        self._refused[reason] += count
        catalogue.REFUSED_CONNECTIONS.inc(self._name, reason, by=count)
        if times := self._repeats(reason):
            log.warning(self._event, reason=reason, times=max(times, count), **(self._asker if reason == UNKNOWN else {}))
