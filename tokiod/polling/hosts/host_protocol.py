"""Messages between the writer's host and the other hosts: one frame of JSON each, distinguished by "type".

    host -> daemon   Hello        names the host and its process; on each connection until the Welcome
                     Alive        the answer to each Beat: a sign of life, and the host's clock
                     answers of tokiod.crossing.dialogue
                     Goodbye      the host's process ends
    daemon -> host   Welcome, Refused  the answers to a Hello
                     Beat         a sign of life, and the daemon's clock
                     requests of tokiod.crossing.dialogue

The daemon asks and the host answers: so a host can deliver only what the daemon asked its own key for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from tokiod.crossing.dialogue import VERSION, Answer, Asked
from tokiod.errors import Malformed

if TYPE_CHECKING:
    from tokiod.crossing.codec import Frame

__all__ = ["VERSION", "Answer", "Asked"]

MAX_FRAME_BYTES = 64 << 10
"""Of a frame on the wire, also during the handshake: libzmq allocates it before it knows the key."""
PART_BYTES = MAX_FRAME_BYTES - 4096
"""Of a window in a message: encryption and framing need the rest."""

Short = Annotated[str, msgspec.Meta(max_length=200)]


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A process of a host. session: of this process; tokiod: its version; sources: that its configuration gives it."""

    host: Short
    session: Short
    version: int
    tokiod: Short
    sources: tuple[Short, ...] = ()


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """The answer to a Beat. time: the host's clock, UTC epoch seconds; echo: the time of the Beat."""

    time: float
    echo: float


class Goodbye(msgspec.Struct, frozen=True, tag="goodbye"):
    """The process ends."""


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """A connection is accepted. epoch: this run of the daemon, which knows no earlier lanes."""

    epoch: str


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """A Hello is refused, for a reason in a sentence."""

    reason: str


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """A sign of life. time: the daemon's clock; echo, held: the time of the host's last Alive, and seconds since it came; None before."""

    time: float
    echo: float | None = None
    held: float = 0.0


FromHost = Hello | Alive | Goodbye | Answer
ToHost = Welcome | Refused | Beat | Asked

encode = msgspec.json.encode
_from_host: msgspec.json.Decoder[FromHost] = msgspec.json.Decoder(FromHost)
_to_host: msgspec.json.Decoder[ToHost] = msgspec.json.Decoder(ToHost)
_FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_from_host(frame: Frame) -> FromHost:
    """Decode a message of a host. Raises Malformed."""
    try:
        return _from_host.decode(frame)
    except _FAILURES as error:
        raise Malformed("control", str(error)) from None


def decode_to_host(frame: Frame) -> ToHost:
    """Decode a message of the daemon. Raises Malformed."""
    try:
        return _to_host.decode(frame)
    except _FAILURES as error:
        raise Malformed("control", str(error)) from None
